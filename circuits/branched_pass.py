"""Many continuations of one beginning, scored together: the beginning is run once.

A task that compares K answers to one question asks for K nearly equal sequences. Here the question
and all its answers stand in one row; each answer sees the question and itself alone, at the
positions that it would have by itself. Scores are those of K separate sequences, to rounding, at
about (question + K answers) tokens in place of K (question + answer).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.attention_math import (
    Placement,
    all_columns,
    attention_pattern,
    head_outputs,
    project,
    score_bias,
)
from circuits.checked_run import TOLERANCE, check_length, check_tokens
from circuits.errors import InputError
from circuits.head_replacement import check_head_ablation, replacement, replacement_batch
from circuits.heads import Head
from circuits.model_weights import AttentionWeights, ModelWeights, read_weights
from circuits.restart import record
from circuits.undisturbed import undisturbed

ROWS_AT_ONCE = 32
"""Examples in one pass; larger ones leave the processor's cache."""


@dataclass(frozen=True)
class BranchedPass:
    """Beginnings with their continuations side by side, as the first layer reads them.

    Attributes:
        weights: the model's.
        resid: the stream before layer 0, `"batch place d_model"`.
        positions: where each place stands in its own sequence.
        seen: whether a place (rows) may look at another (columns).
        placement: the same for the attention.
        branches: tokens that are scored, `"batch branch scored"`; the last is never read.
        stem: tokens in a beginning.
        swaps: what an ablated head carries, a layer; none for a model that is left alone.
    """

    weights: ModelWeights
    resid: Float[Tensor, "batch place d_model"]
    positions: Int[Tensor, " place"]
    seen: Bool[Tensor, "place place"]
    placement: Placement
    branches: Int[Tensor, "batch branch scored"]
    stem: int
    swaps: tuple[Tensor, ...] = ()

    def log_probs(self, heads: Sequence[Head]) -> Float[Tensor, "head batch branch scored"]:
        """Gives the log-probabilities (nats) of every branch's tokens, with each head ablated.

        One pass from behind the head's attention on, a head; what comes before is run once for all.
        """
        found = torch.empty(len(heads), *self.branches.shape, dtype=torch.float64)
        for start in range(0, len(self.resid), ROWS_AT_ONCE):
            part, rows = self._rows(start), slice(start, start + ROWS_AT_ONCE)
            resid = part.resid
            for layer in range(self.weights.n_layers):
                z = part._z(layer, resid)
                for at, head in enumerate(heads):
                    if head[0] == layer:
                        ablated = part._after(layer, resid, part._ablated(z, head))
                        found[at, rows] = part._finish(layer + 1, ablated)
                resid = part._after(layer, resid, z)
        return found

    def clean_log_probs(self) -> Float[Tensor, "batch branch scored"]:
        """Gives the same of the model as it is."""
        parts = [self._rows(start) for start in range(0, len(self.resid), ROWS_AT_ONCE)]
        return torch.cat([part._finish(0, part.resid) for part in parts])

    def first(self) -> "BranchedPass":
        """The same for the first example alone."""
        return self._part(slice(1))

    def _finish(self, layer: int, resid: Tensor) -> Float[Tensor, "batch branch scored"]:
        """Blocks `layer` and later, and the log-probabilities of the branches' tokens."""
        for later in range(layer, self.weights.n_layers):
            resid = self._after(later, resid, self._z(later, resid))
        logits = self.weights.unembed(resid[:, self.stem - 1 :]).double().log_softmax(-1)
        n, branch, scored = self.branches.shape
        first = logits[:, :1, None].expand(n, branch, 1, -1)
        rest = logits[:, 1:].unflatten(1, (branch, scored - 1)) if scored > 1 else first[:, :, :0]
        both = torch.cat([first, rest], dim=2)
        return both.gather(-1, self.branches[..., None])[..., 0].cpu()

    def _z(self, layer: int, resid: Tensor) -> Float[Tensor, "batch head place d_head"]:
        attention, n_heads = self.weights.attention[layer], self.weights.n_heads
        every, columns = tuple(range(resid.shape[1])), all_columns(n_heads)
        q, k, v = project(attention, self.placement, resid, columns, every).split(n_heads, dim=-3)
        bias = _bias(attention, self.positions, self.seen)
        return torch.matmul(attention_pattern(attention, q, k, bias, False), v)

    def _ablated(self, z: Tensor, head: Head) -> Float[Tensor, "batch head place d_head"]:
        swap, changed = self.swaps[head[0]][:, :, head[1]], z.clone()
        changed[:, head[1]] = swap if swap.shape[1] == 1 else swap[:, self.positions]
        return changed

    def _after(self, layer: int, resid: Tensor, z: Tensor) -> Float[Tensor, "batch place d_model"]:
        attention = self.weights.attention[layer]
        out = resid + head_outputs(attention, z) + attention.b_O
        if not self.weights.mlps:
            return out
        return out + self.weights.mlps[layer](resid if self.weights.parallel else out)

    def _rows(self, start: int) -> "BranchedPass":
        return self._part(slice(start, start + ROWS_AT_ONCE))

    def _part(self, rows: slice) -> "BranchedPass":
        return replace(
            self,
            resid=self.resid[rows],
            placement=self.placement.rows(rows),
            branches=self.branches[rows],
            swaps=tuple(swap[rows] if len(swap) > 1 else swap for swap in self.swaps),
        )


def branched_pass(
    model: Any,
    stems: Int[Tensor, "batch stem"],
    branches: Int[Tensor, "batch branch scored"],
    ablation: str = "zero",
    reference: Int[Tensor, "reference_batch pos"] | None = None,
    corrupt: Int[Tensor, "batch pos"] | None = None,
    seed: int = 0,
) -> BranchedPass:
    """How likely is each of several continuations of a beginning, with each head taken away?

    Args:
        model: a HookedTransformer, which is left as it was found.
        stems: beginnings; their last position predicts the first token of every branch.
        branches: continuations of each beginning, all of one length.
        ablation: what a head's z becomes, as in `head_effects`.
        reference: sequences behind "mean", "mean-all" and "resample" (then one an example), at
            least as long as a beginning with a branch but its last token.
        corrupt: the same for "patch".
        seed: of the partners of "resample".

    Returns:
        The pass, ready to be run; see `BranchedPass.log_probs`. Nothing is run but the batch that
        replacements are made of.

    Raises:
        InputError: tokens that the model cannot read, an ablation without its batch, or one whose
            batch is too short; a model whose own log-probabilities are others.
    """
    _check_shapes(model, stems, branches)
    n, branch, scored = branches.shape
    read = branches[..., :-1].flatten(1)
    tokens, stem = torch.cat([stems, read], dim=1), stems.shape[1]
    check_tokens(model, "stems", tokens)
    length = stem + scored - 1
    check_length(model, length)
    weights = read_weights(model)
    tail = torch.arange(stem, length, device=tokens.device).repeat(branch)
    positions = torch.cat([torch.arange(stem, device=tokens.device), tail])
    owner = torch.arange(branch, device=tokens.device).repeat_interleave(scored - 1)
    owner = torch.cat([torch.full((stem,), -1, device=tokens.device), owner])
    seen = (positions <= positions[:, None]) & ((owner == -1) | (owner == owner[:, None]))
    resid = weights.embed_norm(weights.W_E[tokens.long()])
    apart = None
    if weights.W_pos is not None:
        placed = weights.W_pos[positions].expand_as(resid)
        resid, apart = (resid + placed, None) if weights.pos_in_stream else (resid, placed)
    swaps = _swaps(model, n, length, ablation, reference, corrupt, seed)
    placement = Placement(len(positions), apart, positions.expand(n, -1), None)
    made = BranchedPass(weights, resid, positions, seen, placement, branches, stem, swaps)
    _check_own(model, made, stems)
    return made


def _check_shapes(model: Any, stems: Any, branches: Any) -> None:
    check_tokens(model, "stems", stems)
    shape = tuple(branches.shape)
    if len(shape) != 3 or shape[0] != len(stems) or 0 in shape:
        raise InputError(
            f"branches has shape {shape}: give {len(stems)} rows, one a beginning, 'batch branch "
            "scored'"
        )
    check_tokens(model, "branches", branches.flatten(1))  # The last token too, which is scored.


def _check_own(model: Any, made: BranchedPass, stems: Int[Tensor, "batch stem"]) -> None:
    """Holds the first example against the model itself, one branch after the other."""
    branches = made.branches[0]
    alone = torch.cat([stems[:1].expand(len(branches), -1), branches[:, :-1]], dim=1)
    with undisturbed(model):
        logits = model(alone)[:, made.stem - 1 :].double().log_softmax(-1).cpu()
    own = logits.gather(-1, branches.cpu()[..., None])[..., 0]
    gap = float((made.first().clean_log_probs()[0] - own).abs().max())
    if not gap <= TOLERANCE[model.cfg.dtype] * max(1.0, float(own.abs().max())):
        raise InputError(
            f"scoring continuations side by side gives other log-probabilities than the model "
            f"itself (off by {gap:.2g}): a hook changes it, or it does something this package does "
            "not know"
        )


def _swaps(
    model: Any,
    n: int,
    length: int,
    ablation: str,
    reference: Tensor | None,
    corrupt: Tensor | None,
    seed: int,
) -> tuple[Tensor, ...]:
    """What ablated heads carry, layer by layer."""
    check_head_ablation(ablation)
    if ablation == "zero":
        replacement_batch(ablation, torch.zeros(0, 0, dtype=torch.long), reference, corrupt)
        cfg = model.cfg
        return (torch.zeros(1, 1, cfg.n_heads, cfg.d_head, device=model.W_E.device),) * cfg.n_layers
    name = "corrupt" if ablation == "patch" else "reference"
    source = corrupt if ablation == "patch" else reference
    if source is None or source.shape[1] < length:
        has = "is missing" if source is None else f"has {source.shape[1]} positions"
        raise InputError(
            f"{name} {has}: ablation={ablation!r} needs sequences of {length} positions or more"
        )
    like = torch.full((n, source.shape[1]), -1, device=source.device)  # Stands for no tokens.
    replacement_batch(ablation, like, reference, corrupt)
    with undisturbed(model):
        z = record(model, source, (0,), ("z",))["z"]
    return tuple(replacement(ablation, layer, seed) for layer in z)


def _bias(
    layer: AttentionWeights, positions: Int[Tensor, " place"], seen: Bool[Tensor, "place place"]
) -> Float[Tensor, "1 head_or_one place place"]:
    """What is added to the scores: as in a sequence by itself, and nothing of other branches."""
    length = int(positions.max()) + 1
    alone = score_bias(layer, Placement(length, None, None, None))
    apart = alone[:, :, positions][:, :, :, positions]
    return torch.where(seen, apart, -torch.inf)
