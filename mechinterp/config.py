"""Everything that decides a run, as frozen values that go to and from plain JSON."""

import dataclasses
import functools
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from circuits.errors import InputError

Variant = Literal["bz_to_a", "az_to_b", "b_to_a", "a_to_b"]
Sharing = Literal["shared", "private", "supergroup"]
Normalization = Literal["LN", "LNPre", "RMS", "RMSPre", "none"]
Positions = Literal["standard", "rotary", "shortformer", "alibi"]
LearningRate = Literal["constant", "cosine"]
Forward = Literal["scored", "whole"]


@dataclass(frozen=True)
class MarginalsConfig:
    """Marginals task (paper 1): a random table from (B, z) to A, K selectors for each B."""

    k: int = 20
    """Selectors (and answers) for each B."""
    n_b: int = 1000
    """Number of distinct B strings."""
    variant: Variant = "bz_to_a"
    """Which strings are shown and which one is asked for."""
    z_sharing: Sharing = "shared"
    """Whether all B use the same selectors, each its own, or one set for each supergroup."""
    supergroups: int = 1
    """Selector sets when z_sharing is "supergroup"."""
    z_length: int = 2
    """Characters in a selector; private selectors may need more than 2."""
    distinct_prefix: int = 1
    """Characters of A that differ inside a fibre: 0 no rule, 1 for K <= 36, 2 for larger K."""
    label_noise: float = 0.0
    """Probability that a training answer is another member of its fibre."""
    random_z_until: int = 0
    """First step that shows the real selector; before it z is random (the marginal control)."""
    mapping_seed: int = 42
    """Seed of the table."""


@dataclass(frozen=True)
class MarkovChainsConfig:
    """Markov-chain task (paper 2): predict the next state of one of K frozen random chains."""

    n_states: int = 8
    """States of every chain (C)."""
    k: int | Literal["inf"] = 32
    """Frozen training chains, or inf for a fresh chain for every sequence."""
    length: int = 64
    """States in a sequence (N)."""
    dirichlet: float = 1.0
    """Concentration of the Dirichlet that the rows are drawn from."""
    held_out: int = 64
    """New chains for evaluation; the same for every run with these sizes."""
    chain_seed: int = 0
    """Seed of the training chains."""


TaskConfig = MarginalsConfig | MarkovChainsConfig


@dataclass(frozen=True)
class ModelConfig:
    """A HookedTransformer, initialised as TransformerLens does."""

    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    d_head: int | None = None
    """Width of a head; d_model / n_heads when not given."""
    d_mlp: int | None = None
    """Width of an MLP; 4 d_model when not given."""
    act_fn: str = "gelu"
    normalization: Normalization = "LN"
    positions: Positions = "standard"
    n_ctx: int = 32
    """Longest sequence the model can read."""
    attn_only: bool = False
    init_seed: int = 42
    """Seed of the initial weights, apart from every data seed."""


@dataclass(frozen=True)
class TrainingConfig:
    """AdamW on next-token cross-entropy at the scored positions."""

    steps: int = 8000
    batch: int = 128
    lr: float = 1e-3
    lr_schedule: LearningRate = "constant"
    warmup: int = 0
    """Steps of linear warm-up."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float | None = None
    """Gradient-norm limit; none by default."""
    gradient_noise: float = 0.0
    """Norm of the Gaussian noise added to each gradient, over the norm of that gradient."""
    lr_factor: tuple[str, ...] = ()
    """PATTERN=FACTOR: multiplies the rate of parameters whose name matches the regular expression,
    such as blocks.1.attn.W_[QK], or of single heads, such as L1H0.W_Q; the first match counts."""
    forward: Forward = "scored"
    """Whether the last layer is computed at the scored positions only, or the whole forward pass as
    TransformerLens has it; the same up to rounding, which training blows up in the long run."""
    data_seed: int = 0
    """Seed of the training batches."""
    eval_every: int = 50
    """Steps between two rows of metrics."""
    eval_examples: int = 64
    """Evaluation sequences for each row of metrics."""


@dataclass(frozen=True)
class CheckpointConfig:
    """Which steps are kept: 0 and the last, log-spaced early ones, regular ones, named ones."""

    save_every: int = 200
    """Steps between regular checkpoints; 0 for none."""
    save_log: int = 6
    """Log-spaced checkpoints before the first regular one."""
    save_at: tuple[int, ...] = ()
    """Further steps to keep."""


@dataclass(frozen=True)
class RunConfig:
    """All that decides a run: the same value on the same machine gives the same weights."""

    task: TaskConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)


MARKOV_MODEL = ModelConfig(
    n_layers=2, n_heads=1, d_model=64, normalization="none", positions="rotary", n_ctx=64
)
"""Paper 2's model at CPU scale; rotary because learned positions find the previous token slowly."""

MARKOV_TRAINING = TrainingConfig(batch=64, weight_decay=0.0)

TASK_CONFIGS: dict[str, type] = {"marginals": MarginalsConfig, "markov_chains": MarkovChainsConfig}


def to_json(config: RunConfig) -> dict[str, Any]:
    """Gives the configuration as plain JSON values; `from_json` is its exact inverse."""
    body = dataclasses.asdict(config)
    body["task"] = {"name": task_name(config.task), **body["task"]}
    return body


def task_name(config: TaskConfig) -> str:
    """Gives the name a task goes by on the command line and on disk."""
    return next(name for name, cls in TASK_CONFIGS.items() if isinstance(config, cls))


def from_json(body: object) -> RunConfig:
    """Reads a configuration back, refusing anything that does not belong in one.

    Args:
        body: what `to_json` gave, typically through a JSON file.

    Raises:
        InputError: a field is missing, unknown, of the wrong type or out of range; it is named.
    """
    sections = _fields_of(body, "config", {"task", "model", "training", "checkpoints"})
    task = _fields_of(sections["task"], "config.task")
    name = task.pop("name", None)
    if not isinstance(name, str) or name not in TASK_CONFIGS:
        raise InputError(f"config.task.name is {name!r}; allowed: {', '.join(TASK_CONFIGS)}")
    config = RunConfig(
        _build(TASK_CONFIGS[name], task, "config.task"),
        _build(ModelConfig, sections["model"], "config.model"),
        _build(TrainingConfig, sections["training"], "config.training"),
        _build(CheckpointConfig, sections["checkpoints"], "config.checkpoints"),
    )
    validate(config)
    return config


def _fields_of(body: object, where: str, required: set[str] | None = None) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise InputError(f"{where} is {type(body).__name__}; it has to be a JSON object")
    if required is not None and set(body) != required:
        raise InputError(
            f"{where} has the fields {sorted(map(str, body))}; it needs exactly {sorted(required)}"
        )
    return dict(body)


# Costs more than all the rest of reading a configuration.
_hints = functools.cache(typing.get_type_hints)


def _build(cls: type, body: object, where: str) -> Any:
    values = _fields_of(body, where)
    hints = _hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise InputError(f"{where} has unknown fields {unknown}; allowed: {', '.join(hints)}")
    missing = sorted(set(hints) - set(values))
    if missing:
        raise InputError(f"{where} lacks {missing}; every field has to be written out")
    return cls(**{k: _typed(v, hints[k], f"{where}.{k}") for k, v in values.items()})


def _typed(value: Any, hint: Any, where: str) -> Any:
    """Checks one JSON value against a field's type; lists become tuples, and int float."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        if any(value == a and type(value) is type(a) for a in typing.get_args(hint)):
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            inner = typing.get_args(hint)[0]
            return tuple(_typed(v, inner, where) for v in value)
    elif origin in (types.UnionType, typing.Union):
        for option in typing.get_args(hint):
            try:
                return _typed(value, option, where)
            except InputError:
                continue
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif type(value) is hint:
        return value
    allowed = typing.get_args(hint) if origin is Literal else getattr(hint, "__name__", hint)
    raise InputError(f"{where} is {str(value)[:60]!r}; it has to be {allowed}")


def validate(config: RunConfig) -> None:
    """Refuses hyper-parameters out of range, before any work is done.

    Raises:
        InputError: names the field, its value and what is allowed.
    """
    m, t, c = config.model, config.training, config.checkpoints
    for name, value, low in (
        ("n_layers", m.n_layers, 1),
        ("n_heads", m.n_heads, 1),
        ("d_model", m.d_model, 1),
        ("d_head", m.d_head if m.d_head is not None else 1, 1),
        ("d_mlp", m.d_mlp if m.d_mlp is not None else 1, 1),
        ("n_ctx", m.n_ctx, 1),
        ("steps", t.steps, 0),
        ("batch", t.batch, 1),
        ("warmup", t.warmup, 0),
        ("eval_every", t.eval_every, 1),
        ("eval_examples", t.eval_examples, 2),
        ("save_every", c.save_every, 0),
        ("save_log", c.save_log, 0),
    ):
        if value < low:
            raise InputError(f"{name} is {value}; it has to be at least {low}")
    for name, value, low, high in (
        ("lr", t.lr, 0.0, math.inf),
        ("eps", t.eps, 0.0, math.inf),
        ("beta1", t.beta1, 0.0, 1.0),
        ("beta2", t.beta2, 0.0, 1.0),
        ("weight_decay", t.weight_decay, 0.0, math.inf),
        ("clip", t.clip if t.clip is not None else 1.0, 0.0, math.inf),
        ("gradient_noise", t.gradient_noise, 0.0, math.inf),
    ):
        if not low <= value < high:
            raise InputError(f"{name} is {value}; it has to be in [{low:g}, {high:g})")
    _validate_seeds(config)
    if m.d_head is None and m.d_model % m.n_heads:
        raise InputError(
            f"d_model {m.d_model} is not a multiple of n_heads {m.n_heads}; give d_head as well"
        )
    if any(not 0 <= step <= t.steps for step in c.save_at):
        raise InputError(f"save_at is {c.save_at}; each has to lie in 0..{t.steps} (steps)")


def _validate_seeds(config: RunConfig) -> None:
    seeds = {"init_seed": config.model.init_seed, "data_seed": config.training.data_seed}
    for name in ("mapping_seed", "chain_seed"):
        if hasattr(config.task, name):
            seeds[name] = getattr(config.task, name)
    for name, value in seeds.items():
        if not 0 <= value < 2**32:
            raise InputError(f"{name} is {value}; it has to be in 0..2**32-1")
