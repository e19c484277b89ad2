"""The engine of head ablation: many sets of heads, each computed from its first layer on."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.head_replacement import replacement, replacement_batch
from circuits.heads import Head, check_tokens, parse_positions
from circuits.metrics import Metric, MetricCallable, resolve_metric, scored_positions
from circuits.provenance import provenance, tensor_sha256
from circuits.restart import Recording, Restart, hooked, record, restart_of
from circuits.side_by_side import side_by_side, workers_on
from circuits.undisturbed import undisturbed

ROWS_AT_ONCE = 256
"""Sequences in one chunk; on a CPU larger chunks leave the cache and are slower."""


@dataclass(frozen=True)
class HeadStudy:
    """A recorded clean pass, the replacements, and the metric: all that one ablation needs.

    Attributes:
        model: the model under study.
        clean: recorded clean pass.
        restart: how to go on from a layer.
        swaps: what ablated heads carry, one tensor a layer that broadcasts against z.
        places: True at the positions where heads are ablated.
        metric: from logits at the scored positions to one value an example.
        base: the metric of the clean pass.
        provenance: what decides the numbers.
    """

    model: Any
    clean: Recording
    restart: Restart
    swaps: tuple[Tensor, ...]
    places: Bool[Tensor, " pos"]
    metric: MetricCallable
    base: Float[Tensor, " batch"]
    provenance: dict[str, Any]

    def at(self, positions: Sequence[int] | None) -> "HeadStudy":
        """The same with heads ablated at other positions; None stands for everywhere."""
        places = torch.zeros_like(self.places)
        where = range(len(places)) if positions is None else positions
        places[[p for p in where if p < len(places)]] = True
        return replace(self, places=places)

    def effects(self, sets: Sequence[tuple[Head, ...]]) -> Float[Tensor, "sets batch"]:
        """Gives metric(ablated) - metric(clean) of every set of heads, an example."""
        with undisturbed(self.model):
            return self._effects(sets)

    def _effects(self, sets: Sequence[tuple[Head, ...]]) -> Float[Tensor, "sets batch"]:
        batch = self.base.shape[0]
        found = torch.empty(len(sets), batch, dtype=self.base.dtype, device=self.base.device)
        one_at_a_time = Lock()  # The metric may be the caller's own, who need not think of threads.

        def fill(chunk: list[int]) -> None:
            logits = self._logits([sets[index] for index in chunk])
            with one_at_a_time:
                for row, index in enumerate(chunk):
                    found[index] = self.metric(logits[row]) - self.base

        side_by_side(fill, _chunks(sets, max(1, ROWS_AT_ONCE // batch)), self._workers(sets))
        return found

    def _workers(self, sets: Sequence[tuple[Head, ...]]) -> int:
        """One where hooks come and go: they are the model's, which all threads would share."""
        hooks_come = any(layer != heads[0][0] for heads in sets for layer, _ in heads)
        alone = hooks_come or self.restart.plain is None or hooked(self.model)
        return 1 if alone else workers_on(self.base.device)

    def _logits(self, sets: list[tuple[Head, ...]]) -> Float[Tensor, "sets batch scored d_vocab"]:
        """All sets of one chunk begin in the same layer."""
        layer = sets[0][0][0]
        masks = self._masks(sets)
        parts = []
        for rows in torch.arange(self.base.shape[0]).split(ROWS_AT_ONCE):
            span = slice(int(rows[0]), int(rows[-1]) + 1)
            resid_pre = self.clean["resid_pre"][layer][span]
            z = self.clean["z"][layer][span]
            z = self._swapped(_stacked(z, len(sets)), layer, masks, span)
            with self._later_layers(layer, masks, span):
                attn_out = self.restart.attn_out(layer, z)
                logits = self.restart.from_attn_out(layer, _stacked(resid_pre, len(sets)), attn_out)
            parts.append(logits.unflatten(0, (len(sets), -1)))
        return torch.cat(parts, dim=1)

    def _masks(self, sets: list[tuple[Head, ...]]) -> Bool[Tensor, "sets layer head_index"]:
        cfg = self.model.cfg
        masks = torch.zeros(len(sets), cfg.n_layers, cfg.n_heads, dtype=torch.bool)
        for row, heads in enumerate(sets):
            for layer, head in heads:
                masks[row, layer, head] = True
        return masks.to(self.places.device)

    def _swapped(
        self,
        z: Float[Tensor, "rows pos head_index d_head"],
        layer: int,
        masks: Bool[Tensor, "sets layer head_index"],
        span: slice,
    ) -> Float[Tensor, "rows pos head_index d_head"]:
        swap = self.swaps[layer]
        swap = swap[span] if swap.shape[0] > 1 else swap
        where = masks[:, None, None, layer, :, None] & self.places[:, None, None]
        return torch.where(where, swap, z.unflatten(0, (len(masks), -1))).flatten(0, 1)

    def _later_layers(
        self, first: int, masks: Bool[Tensor, "sets layer head_index"], span: slice
    ) -> AbstractContextManager[Any]:
        """Hooks for those heads of the sets that lie above the layer of the restart."""

        def swapper(layer: int) -> Any:
            def swap(z: Tensor, hook: Any) -> Tensor:
                return self._swapped(z, layer, masks, span)

            return swap

        above = [layer for layer in range(first + 1, masks.shape[1]) if masks[:, layer].any()]
        hooks = [(f"blocks.{layer}.attn.hook_z", swapper(layer)) for layer in above]
        return self.model.hooks(fwd_hooks=hooks) if hooks else nullcontext()


def head_study(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    ablation: str,
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None,
    positions: Sequence[int] | None,
    scored: Sequence[int] | None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None,
    seed: int,
) -> HeadStudy:
    """Records what every ablation of heads shares. Arguments as in `head_effects`."""
    other = replacement_batch(ablation, clean, reference, corrupt, metric)
    study = study_with(model, clean, metric, ablation, other, corrupt, positions, scored, seed)
    named = "clean" if reference is None else tensor_sha256([reference])
    return replace(study, provenance=study.provenance | {"reference": named})


def study_with(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    ablation: str,
    other: Int[Tensor, "rows other_pos"] | None,
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None,
    positions: Sequence[int] | None,
    scored: Sequence[int] | None,
    seed: int,
) -> HeadStudy:
    """The same with replacements from a batch that has been looked at already.

    Args:
        other: the batch that replacements are made of; None for the clean one.
        corrupt: the batch that "logit_diff" contrasts with, if any.
    """
    n_pos = clean.shape[1]
    read = scored_positions(metric, scored, n_pos)
    used = max(read) + 1 if model.cfg.attention_dir == "causal" else n_pos
    check_tokens(model, clean, "clean", used)
    where = parse_positions(positions, n_pos)
    if other is not None:
        check_tokens(model, other, "corrupt" if ablation == "patch" else "reference", used)
    with undisturbed(model):
        recording = record(model, clean[:, :used], read, ("resid_pre", "z"))
        donor = recording if other is None else record(model, other[:, :used], read, ("z",))
        restart = restart_of(model, clean[:, :used], recording, read)
        measured = resolve_metric(metric, recording.logits, clean, read, corrupt)
        base = measured(recording.logits)
    places = torch.zeros(n_pos, dtype=torch.bool, device=recording.logits.device)
    places[list(where)] = True
    return HeadStudy(
        model,
        recording,
        restart,
        tuple(replacement(ablation, z, seed) for z in donor["z"]),
        places[:used],
        measured,
        base,
        provenance(
            model,
            clean,
            ablation=ablation,
            metric=metric if isinstance(metric, str) else _title(metric),
            positions=list(where),
            scored=list(read),
            corrupt=corrupt,
            seed=seed,
        ),
    )


def _chunks(sets: Sequence[tuple[Head, ...]], size: int) -> Iterator[list[int]]:
    """Indices of sets that start in the same layer, at most `size` at once."""
    by_layer: dict[int, list[int]] = {}
    for index, heads in enumerate(sets):
        by_layer.setdefault(heads[0][0], []).append(index)
    for indices in by_layer.values():
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


def _stacked(stream: Tensor, n: int) -> Tensor:
    """The same examples once for each set, set after set along the batch."""
    return stream[None].expand(n, *stream.shape).flatten(0, 1)


def _title(metric: MetricCallable) -> str:
    return getattr(metric, "__qualname__", type(metric).__name__)
