"""Head ablation and patching of padded batches: rows of one padding are run together, unpadded.

A row means the same wherever its padding stands, so padding is taken off: rows whose tokens stand
at the same positions make one batch without padding. What is left to do is to translate positions,
to take means over all rows, and to put the rows back in order. Left-padded, right-padded and
unpadded batches then agree by construction.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.ablation import partners, position_mean
from circuits.checked_run import check_mask
from circuits.errors import InputError
from circuits.head_replacement import replacement_batch
from circuits.head_study import HeadStudy, study_with
from circuits.heads import Head, check_tokens
from circuits.metrics import Metric, scored_positions
from circuits.provenance import provenance
from circuits.restart import record
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class Stretch:
    """Rows of a padded batch whose tokens stand at the same positions, `start` to `stop`."""

    rows: Int[Tensor, " row"]
    start: int
    stop: int

    def tokens(self, batch: Int[Tensor, "batch pos"]) -> Int[Tensor, "row stretch"]:
        """These rows without their padding."""
        return batch[self.rows, self.start : self.stop]

    def inside(self, positions: Sequence[int]) -> list[int]:
        """Positions of the batch as positions of these rows; those in the padding are left out."""
        return [p - self.start for p in positions if self.start <= p < self.stop]


def stretches(
    mask: Int[Tensor, "batch pos"], tokens: Int[Tensor, "batch pos"], metric: Metric, read: object
) -> Iterator[tuple[Stretch, tuple[int, ...]]]:
    """Gathers rows by where their tokens stand, each with the positions that the metric reads.

    Args:
        mask: 0 at padding.
        tokens: the batch.
        metric: a metric's name.
        read: the positions to score, as the caller gave them.

    Raises:
        InputError: a bad mask, a callable metric, or an example without a scored position.
    """
    check_mask(mask, tokens)
    if not isinstance(metric, str):
        raise InputError(
            "attention_mask needs a metric by name (kl, loss or logit_diff): a callable cannot "
            "know which positions are padding; or take the padding off and call it for each length"
        )
    scored = scored_positions(metric, read, tokens.shape[1])
    ones = mask.long()
    start = ones.argmax(1)
    stop = start + ones.sum(1)
    for first, last in sorted(set(zip(start.tolist(), stop.tolist(), strict=True))):
        rows = ((start == first) & (stop == last)).nonzero()[:, 0]
        stretch = Stretch(rows, first, last)
        # But for KL, the token after a scored position has to be a token too.
        own = [p for p in stretch.inside(scored) if metric == "kl" or p + 1 < last - first]
        if not own:
            raise InputError(
                f"attention_mask leaves example {int(rows[0])} without a scored position: "
                "score a position inside every example, or drop the example"
            )
        yield stretch, tuple(own)


@dataclass(frozen=True)
class PaddedStudy:
    """Studies of unpadded rows that together are one of a padded batch.

    Attributes:
        parts: rows with their study.
        base: the metric of the clean pass, an example.
        provenance: what decides the numbers.
    """

    parts: tuple[tuple[Stretch, HeadStudy], ...]
    base: Float[Tensor, " batch"]
    provenance: dict[str, Any]

    def effects(self, sets: Sequence[tuple[Head, ...]]) -> Float[Tensor, "sets batch"]:
        """Gives metric(ablated) - metric(clean) of every set of heads, an example."""
        return together(self.parts, lambda study: study.effects(sets), len(self.base))

    def at(self, positions: Sequence[int] | None) -> "PaddedStudy":
        """The same with heads ablated at other positions of the padded batch."""
        parts = [
            (s, study.at(None if positions is None else s.inside(positions)))
            for s, study in self.parts
        ]
        return replace(self, parts=tuple(parts))


def padded_study(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    ablation: str,
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None,
    scored: Sequence[int] | None,
    mask: Int[Tensor, "batch pos"],
    seed: int,
) -> PaddedStudy:
    """Records what every ablation of heads on a padded batch shares. Arguments as `head_effects`.

    Raises:
        InputError: as `head_effects`; also see `stretches`.
    """
    donor = replacement_batch(ablation, clean, None, corrupt, metric)
    check_tokens(model, clean, "clean", 1)
    pieces = list(stretches(mask, clean, metric, scored))
    if corrupt is not None:
        check_tokens(model, corrupt, "corrupt", 1)
    if ablation == "resample":
        donor = clean[partners(len(clean), seed, mask.bool())]
    given = "patch" if donor is not None else "zero"
    parts = []
    for stretch, own in pieces:
        rows, other = stretch.tokens(clean), None if donor is None else stretch.tokens(donor)
        # A partner under "resample" is nobody's wrong answer.
        contrast = None if corrupt is None else stretch.tokens(corrupt)
        study = study_with(model, rows, metric, given, other, contrast, None, own, seed)
        parts.append((stretch, study))
    if ablation in ("mean", "mean-all"):
        parts = _with_means(model, clean, mask, ablation, parts)
    base = together(parts, lambda study: study.base[None], len(clean))[0]
    facts = provenance(
        model, clean, ablation=ablation, metric=metric, corrupt=corrupt, reference="clean",
        scored=list(scored_positions(metric, scored, clean.shape[1])), seed=seed,
        attention_mask_sha256=mask,
    )  # fmt: skip
    return PaddedStudy(tuple(parts), base, facts)


def together(
    parts: Sequence[tuple[Stretch, Any]],
    values: Callable[[Any], Float[Tensor, "some row"]],
    batch: int,
) -> Float[Tensor, "some batch"]:
    """Puts what each part gives for its rows back into the order of the batch."""
    found = [values(part) for _, part in parts]
    whole = found[0].new_empty(found[0].shape[0], batch)
    for (stretch, _), value in zip(parts, found, strict=True):
        whole[:, stretch.rows] = value
    return whole


def _with_means(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    mask: Int[Tensor, "batch pos"],
    ablation: str,
    parts: list[tuple[Stretch, HeadStudy]],
) -> list[tuple[Stretch, HeadStudy]]:
    """Replacements from all rows: places are counted from each row's first token."""
    real = mask.bool()
    kept: list[Tensor] = []
    for stretch, _ in parts:
        with undisturbed(model):
            own = record(model, stretch.tokens(clean), (0,), ("z",))["z"]
        if not kept:
            kept = [z.new_zeros(*clean.shape, *z.shape[2:]) for z in own]
        for whole, z in zip(kept, own, strict=True):
            whole[stretch.rows, stretch.start : stretch.stop] = z
    made, read = [], torch.zeros_like(real)
    for stretch, study in parts:
        read[stretch.rows, stretch.start : stretch.start + len(study.places)] = True
    for stretch, study in parts:
        swaps = []
        for whole in kept:
            if ablation == "mean-all":
                swaps.append(_mean_of_all(whole, read))
            else:
                mean = position_mean(whole, real)[stretch.rows, stretch.start : stretch.stop]
                swaps.append(mean[:, : len(study.places)])
        made.append((stretch, replace(study, swaps=tuple(swaps))))
    return made


def _mean_of_all(
    z: Float[Tensor, "batch pos head_index d_head"], read: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "1 1 head_index d_head"]:
    return z[read].mean(0)[None, None]
