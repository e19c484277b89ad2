"""Heads, edges and the circuit of any model on any batch: the parts that every trace has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Int
from torch import Tensor

from circuits import EdgeEffects, edge_effects, edge_gradients, faithfulness, prune
from circuits.agreement import Agreement, agreement
from circuits.circuit_faithfulness import Faithfulness
from circuits.head_ablation import HeadEffects, head_effects
from circuits.pruning import PrunedCircuit
from mechinterp.resident_memory import hand_back

BUDGET = 0.05
"""KL (nats) that the pruned circuit may lose at the scored positions, the paper's procedure."""

PRUNED_ON = 32
"""Examples that pruning runs on: it measures whole circuits hundreds of times."""

PRUNING_ROUNDS = 2
"""Measurements of all edges while pruning: 479 fell to 300, and 5 more took 22 edges in a trial."""

HELD_OUT = 96
"""Further examples, at most, that the pruned circuit and the random ones are tried on."""

RANDOM_CIRCUITS = 4
"""Random circuits of the same size that the pruned one is compared with."""

GRADIENT_METHODS = ("eap", "eap-ig-inputs", "eap-ig-activations")
GRADIENT_STEPS = 5
"""Points on the path of the integrated methods, as their authors use."""

Ablation = Literal["zero", "mean", "resample", "patch"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How a model is traced."""

    ablation: Ablation = "zero"
    granularity: Literal["head", "layer"] = "head"
    examples: int = 256
    device: str = "cpu"
    gradients: bool = False
    """Whether to compare gradient methods with the exact effects."""
    mechanism: str | None = None
    """The only mechanism test to run, in place of everything else."""
    memory_budget: int | None = None
    """Bytes that the whole process may take; None for no limit."""


@dataclass(frozen=True)
class Rooms:
    """What the parts of a trace may take, each at its time.

    Attributes:
        edges: bytes for measuring every edge; None for what `circuits` takes by itself.
        pruning: bytes for measuring every edge that is left while pruning.
        held_out: examples, at most, that the pruned circuit is tried on.
    """

    edges: int | None = None
    pruning: int | None = None
    held_out: int = HELD_OUT


@dataclass(frozen=True)
class Examples:
    """What a model is traced on.

    Attributes:
        clean: the sequences, with the token after the last scored position.
        corrupt: their partners; None where nothing asks for them.
        scored: positions whose logits are read.
        metric: what heads and edges are measured by: "loss", "logit_diff" or "kl".
        mask: 0 at padding; None where there is none.
    """

    clean: Int[Tensor, "batch pos"]
    corrupt: Int[Tensor, "batch pos"] | None
    scored: tuple[int, ...]
    metric: str = "loss"
    mask: Int[Tensor, "batch pos"] | None = None

    def rows(self, rows: slice) -> "Examples":
        """Some of the examples."""
        corrupt = None if self.corrupt is None else self.corrupt[rows]
        mask = None if self.mask is None else self.mask[rows]
        return Examples(self.clean[rows], corrupt, self.scored, self.metric, mask)

    def asked(self, metric: str, ablation: Ablation) -> dict[str, Any]:
        """These examples as arguments of `circuits`; partners only where they are read."""
        read = ablation == "patch" or metric == "logit_diff"
        return {
            "clean": self.clean,
            "metric": metric,
            "ablation": ablation,
            "corrupt": self.corrupt if read else None,
            "scored": self.scored,
            "attention_mask": self.mask,
        }


@dataclass(frozen=True)
class Parts:
    """Which components and connections of a model matter.

    Attributes:
        heads: effect of ablating each head on the metric at the scored positions.
        edges: effect of cutting each edge, likewise.
        circuit: the edges that are left when all has gone that can go within `BUDGET`, on the
            first `PRUNED_ON` examples.
        faithfulness: what that circuit alone does on the others, beside random circuits; None when
            there are no others.
        gradients: agreement with the exact effects of each gradient method that was asked for.
    """

    heads: HeadEffects
    edges: EdgeEffects
    circuit: PrunedCircuit
    faithfulness: Faithfulness | None
    gradients: dict[str, Agreement]


def measure_parts(
    model: Any,
    examples: Examples,
    options: Options,
    say: Say,
    rooms: Rooms,
) -> Parts:
    """Measures every head and every edge, prunes the circuit and tries it on other examples.

    Args:
        model: a HookedTransformer.
        examples: what to measure on.
        options: ablation, granularity, whether to compare gradient methods.
        say: told what is being done, before each part.
        rooms: what each part may take.

    Raises:
        InputError: see `circuits.edge_effects`.
    """

    def begin(doing: str) -> None:
        say(doing)
        if rooms.edges is not None:  # What one part has freed is to be had by the next.
            hand_back()

    asked = examples.asked(examples.metric, options.ablation)
    begin("ablating heads")
    heads = head_effects(model, **asked)
    begin("cutting edges")
    edges = edge_effects(model, **asked, granularity=options.granularity, memory_budget=rooms.edges)
    agreed = {}
    if options.gradients:
        agreed = _gradients(model, asked, options, edges, begin, rooms.edges)
    begin("pruning the circuit")
    few = examples.rows(slice(PRUNED_ON)).asked("kl", options.ablation)
    circuit = prune(
        model,
        **few,
        granularity=options.granularity,
        budget=BUDGET,
        rounds=PRUNING_ROUNDS,
        memory_budget=rooms.pruning,
    )
    others = examples.rows(slice(PRUNED_ON, PRUNED_ON + rooms.held_out))
    if len(others.clean) < 2:
        return Parts(heads, edges, circuit, None, agreed)
    begin("trying the circuit")
    tried = faithfulness(
        model, circuit, **others.asked("kl", options.ablation), n_random=RANDOM_CIRCUITS
    )
    return Parts(heads, edges, circuit, tried, agreed)


def _gradients(
    model: Any,
    asked: dict[str, Any],
    options: Options,
    exact: EdgeEffects,
    say: Say,
    room: int | None,
) -> dict[str, Agreement]:
    """How well each gradient method agrees with the exact effects of the same edges."""
    agreed = {}
    for method in GRADIENT_METHODS:
        if method == "eap" and asked["metric"] == "kl":  # Its gradient is zero at the clean run.
            continue
        say(f"estimating edges by {method}")
        estimated = edge_gradients(
            model,
            **asked,
            method=method,
            steps=GRADIENT_STEPS,
            granularity=options.granularity,
            memory_budget=room,
        )
        agreed[method] = agreement(exact, estimated)
    return agreed
