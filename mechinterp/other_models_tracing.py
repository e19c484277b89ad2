"""Somebody else's model, traced on pairs of prompts: find it, read them, ask `circuits`."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.metrics import resolve_metric
from mechinterp.memory_budget import refuse_what_does_not_fit, share_out
from mechinterp.memory_needs import Shape
from mechinterp.other_models import Source, load_model
from mechinterp.prompt_file import read_prompts
from mechinterp.prompts import PromptBatch, encode_prompts
from mechinterp.tasks import Measure
from mechinterp.tasks.base import measure
from mechinterp.trace_parts import Examples, Options, Parts, Say, measure_parts

MetricName = Literal["loss", "logit-diff", "kl"]
COPIES = 3
"""How often the weights are in memory while loading: as transformers' model, laid out anew, and as
TransformerLens's model."""
AT_ONCE = 16
"""Prompts in a forward pass of the whole model."""


@dataclass(frozen=True)
class OtherTraced:
    """Everything measured on somebody else's model.

    Attributes:
        source: which model.
        data: the file of pairs.
        data_sha256: of its bytes.
        n_pairs: how many it holds.
        metric: what was measured on the logits at the last position of every prompt.
        options: how it was traced.
        clean: the metric on the clean prompts.
        corrupt: the metric on the corrupt ones; None where not all prompts have a partner.
        n_params: parameters of the model.
        parts: heads, edges and circuit.
    """

    source: Source
    data: Path
    data_sha256: str
    n_pairs: int
    metric: MetricName
    options: Options
    clean: Measure
    corrupt: Measure | None
    n_params: int
    parts: Parts


def trace_other(
    source: Source,
    data: Path,
    metric: MetricName,
    options: Options,
    say: Say = lambda _: None,
) -> OtherTraced:
    """Traces a model that was not trained here: heads, edges, and the circuit that is enough.

    The metric is read at the last position of every prompt: "loss" is the cross-entropy (nats) of
    the answer, "logit-diff" the logit of the answer minus that of the wrong one (the most likely
    other token where none is given), "kl" the divergence (nats) from the model as it is. Shorter
    prompts are padded on the left and masked.

    Args:
        source: which model; see `other_models.find_model`.
        data: JSONL with the pairs.
        metric: what is measured.
        options: ablation, granularity, number of examples, device, memory budget.
        say: told what is being done.

    Returns:
        All the numbers.

    Raises:
        InputError: no such file, a line that cannot be used, a model that cannot be
            traced, or a memory budget that is too small.
    """
    say("reading the pairs")
    prompts = read_prompts(data)
    batch = encode_prompts(
        prompts[: options.examples],
        source.encode,
        d_vocab=source.cfg.d_vocab,
        n_ctx=source.cfg.n_ctx,
        paired=options.ablation == "patch",
        answered=metric != "kl",
    )
    options = replace(options, examples=len(batch.clean))
    n_pos = batch.clean.shape[1]
    source.cfg.n_ctx = _context(source.cfg, n_pos)
    shape = Shape.of(source.cfg, n_pos, 1, COPIES)
    refuse_what_does_not_fit(shape, options)
    say("loading the model")
    hooked = load_model(source, _unpadded(batch), options.device)
    examples = _examples(batch, metric, options.device)
    say("measuring the metric")
    clean, corrupt = _values(hooked, examples, batch.paired)
    parts = measure_parts(hooked, examples, options, say, share_out(shape, options))
    return OtherTraced(
        source=source,
        data=data,
        data_sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        n_pairs=len(prompts),
        metric=metric,
        options=options,
        clean=clean,
        corrupt=corrupt,
        n_params=sum(parameter.numel() for parameter in hooked.parameters()),
        parts=parts,
    )


def _context(cfg: Any, n_pos: int) -> int:
    """Positions that masks and rotary tables are made for; embedded positions are all loaded."""
    embedded = cfg.positional_embedding_type not in ("rotary", "alibi")
    return cfg.n_ctx if embedded else min(cfg.n_ctx, n_pos)


def _unpadded(batch: PromptBatch) -> Tensor:
    """The first prompt by itself."""
    row = batch.clean[0, : batch.scored + 1]
    return row[None] if batch.mask is None else row[batch.mask[0, : batch.scored + 1].bool()][None]


def _examples(batch: PromptBatch, metric: MetricName, device: str) -> Examples:
    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    clean = there(batch.clean)
    assert clean is not None
    name = metric.replace("-", "_")
    return Examples(clean, there(batch.corrupt), (batch.scored,), name, there(batch.mask))


def _values(hooked: Any, examples: Examples, paired: bool) -> tuple[Measure, Measure | None]:
    """The metric on the clean prompts and on their partners, by plain forward passes."""
    clean = _logits(hooked, examples.clean, examples)
    corrupt = examples.corrupt if examples.metric == "logit_diff" else None
    function = resolve_metric(examples.metric, clean, examples.clean, examples.scored, corrupt)
    if not paired or examples.corrupt is None:
        return measure(function(clean)), None
    other = _logits(hooked, examples.corrupt, examples)
    return measure(function(clean)), measure(function(other))


@torch.inference_mode()
def _logits(
    hooked: Any, tokens: Tensor, examples: Examples
) -> Float[Tensor, "batch scored d_vocab"]:
    """Logits at the scored position."""
    last = examples.scored[-1] + 1
    found = []
    for start in range(0, len(tokens), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        mask = None if examples.mask is None else examples.mask[rows, :last]
        logits = hooked(tokens[rows, :last], attention_mask=mask)
        found.append(logits[:, list(examples.scored)].clone())
    return torch.cat(found)
