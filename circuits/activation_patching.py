"""At which layer and position does the information sit that tells clean from corrupt?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.head_study import ROWS_AT_ONCE
from circuits.heads import (
    check_batch,
    check_pair,
    check_tokens,
    head_name,
    head_names,
    parse_positions,
)
from circuits.intervals import mean_interval
from circuits.metrics import Metric, MetricCallable, resolve_metric, scored_positions
from circuits.padded_heads import stretches, together
from circuits.provenance import provenance
from circuits.restart import Recording, Restart, record, restart_of
from circuits.source_positions import source_positions
from circuits.undisturbed import undisturbed

PatchedStream = Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "z"]
STREAMS: tuple[PatchedStream, ...] = ("resid_pre", "resid_mid", "attn_out", "mlp_out", "z")


@dataclass(frozen=True)
class PatchEffects:
    """Effects of carrying one activation from one run into the other.

    Attributes:
        table: one row a patch: `stream`, `layer`, `pos` (missing for heads), `head` (missing for
            positions), `effect`, `low`, `high`.
        per_example: metric(patched) - metric(run patched into).
        base: the metric of the run patched into, one value an example.
        donor: the metric of the run that the activations come from: what a patch of everything
            would reach.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: Float[Tensor, "patches batch"]
    base: Float[Tensor, " batch"]
    donor: Float[Tensor, " batch"]
    provenance: dict[str, Any]

    def grid(self) -> pd.DataFrame:
        """The mean effects as a frame for a heat map: layers by positions, or layers by heads."""
        table = self.table
        by_head = bool(table["head"].notna().to_numpy().all())
        column = "head" if by_head else "position" if "position" in table.columns else "pos"
        if column == "head":
            table = table.assign(head=[f"H{str(name).partition('H')[2]}" for name in table["head"]])
        grid = table.pivot(index="layer", columns=column, values="effect").astype(float)
        grid.index = pd.Index([f"L{layer}" for layer in grid.index], name="layer")
        return grid


def patch_effects(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"],
    metric: Metric,
    stream: PatchedStream | str = "resid_pre",
    direction: Literal["denoising", "noising"] | str = "denoising",
    positions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    scored: Sequence[int] | None = None,
    attention_mask: Int[Tensor, "batch pos"] | None = None,
) -> PatchEffects:
    """How far does one activation of the other run move the metric?

    "denoising" runs the corrupt sequence and puts one clean activation in: what suffices to bring
    the answer back? "noising" runs the clean sequence and puts one corrupt activation in: what is
    needed for the answer? (Meng et al., 2022; Heimersheim and Nanda, 2024.) The patches are those
    of `transformer_lens.patching`. Costs about half of a forward pass a patch, since a pass starts
    again at the patched layer, in chunks of about 256 sequences.

    Args:
        model: a HookedTransformer, left as it was found.
        clean: the sequences with the right answer.
        corrupt: one paired sequence for each, of the same length.
        metric: as in `head_effects`; names are resolved on the clean run.
        stream: "resid_pre", "resid_mid", "attn_out" or "mlp_out", patched at one layer and
            position at a time, or "z", patched at one head over all positions given.
        direction: which run is patched into which.
        positions: the positions to try (for "z": those to patch together); all if not given. A
            mapping of names to positions tries each group together, one row a layer and group.
        scored: positions that the metric reads; all if not given.
        attention_mask: 0 at padding, on the left or on the right, of both sequences. Patches of
            padding have no effect; the metric is one by name.

    Returns:
        The effects, layer after layer.

    Raises:
        InputError: for an unknown stream or direction, a stream that the model has not got, a
            batch that does not fit, or a position out of range.
    """
    _check(model, stream, direction)
    check_batch("clean", clean)
    check_batch("corrupt", corrupt)
    check_pair(clean, corrupt, "activation patching")
    check_tokens(model, clean, "clean", 1)
    check_tokens(model, corrupt, "corrupt", 1)
    names, places = _places(positions, clean.shape[1], stream)
    one = _Question(model, metric, stream, direction)
    if attention_mask is None:
        read = scored_positions(metric, scored, clean.shape[1])
        found = _ask(one, clean, corrupt, places, read)
    else:
        parts = [
            (s, _ask(one, s.tokens(clean), s.tokens(corrupt), [s.inside(at) for at in places], own))
            for s, own in stretches(attention_mask, clean, metric, scored)
        ]
        whole = [together(parts, lambda part, i=i: part[i], len(clean)) for i in range(3)]
        read, found = scored_positions(metric, scored, clean.shape[1]), tuple(whole)
    per_example, base, reached = found
    facts = provenance(
        model, clean, stream=stream, direction=direction, corrupt=corrupt,
        positions=[list(place) for place in places], scored=list(read),
        metric=metric if isinstance(metric, str) else getattr(metric, "__qualname__", "callable"),
        attention_mask=attention_mask,
    )  # fmt: skip
    rows = _rows(model, stream, len(places))
    table = _table(stream, rows, per_example, places, names)
    return PatchEffects(table, per_example, base[0], reached[0], facts)


@dataclass(frozen=True)
class _Question:
    """What is asked of every part of a batch."""

    model: Any
    metric: Metric
    stream: str
    direction: str


def _places(
    positions: Any, n_pos: int, stream: str
) -> tuple[list[str] | None, list[tuple[int, ...]]]:
    """Names of the groups, if they have any, and the positions that are patched together."""
    if isinstance(positions, Mapping):
        if stream == "z":
            raise InputError(
                "positions is a mapping, but stream='z' patches one set of positions for each "
                "head: give a list"
            )
        groups = source_positions(positions, n_pos) or {}
        return list(groups), list(groups.values())
    chosen = parse_positions(positions, n_pos)
    return None, [chosen] if stream == "z" else [(place,) for place in chosen]


def _ask(
    one: _Question,
    clean: Int[Tensor, "batch pos"],
    corrupt: Int[Tensor, "batch pos"],
    places: Sequence[Sequence[int]],
    read: tuple[int, ...],
) -> tuple[Float[Tensor, "patches batch"], Float[Tensor, "1 batch"], Float[Tensor, "1 batch"]]:
    """Effects of every patch, and the metric of the runs patched into and from."""
    model, metric, stream = one.model, one.metric, one.stream
    used = max(read) + 1 if model.cfg.attention_dir == "causal" else clean.shape[1]
    check_tokens(model, clean, "clean", used)
    with undisturbed(model):
        runs = [_recorded(model, tokens[:, :used], read, stream) for tokens in (clean, corrupt)]
        measured = resolve_metric(metric, runs[0].logits, clean, read, corrupt)
        into, donor = runs if one.direction == "noising" else runs[::-1]
        tokens = clean if one.direction == "noising" else corrupt
        restart = restart_of(model, tokens[:, :used], into, read)
        study = _Study(restart, into, donor, measured, measured(into.logits))
        per_example = _sweep(study, stream, [tuple(place) for place in places], used)
        return per_example, study.base[None], measured(donor.logits)[None]


@dataclass(frozen=True)
class _Study:
    """Two recorded runs and how to go on from the one that is patched into."""

    restart: Restart
    into: Recording
    donor: Recording
    metric: MetricCallable
    base: Float[Tensor, " batch"]

    def effects(
        self, n: int, run: Callable[[list[int], slice], Tensor]
    ) -> Float[Tensor, "patches batch"]:
        """Runs n patches in chunks; `run` gives the logits of some patches of some examples."""
        batch = self.base.shape[0]
        size = max(1, ROWS_AT_ONCE // batch)
        found = []
        for start in range(0, n, size):
            chunk = list(range(start, min(start + size, n)))
            spans = [slice(at, at + ROWS_AT_ONCE) for at in range(0, batch, ROWS_AT_ONCE)]
            parts = [run(chunk, span).unflatten(0, (len(chunk), -1)) for span in spans]
            logits = torch.cat(parts, dim=1)
            found += [self.metric(row) - self.base for row in logits]
        return torch.stack(found) if found else self.base.new_zeros(0, batch)


def _check(model: Any, stream: str, direction: str) -> None:
    if stream not in STREAMS:
        raise InputError(f"stream={stream!r} is unknown; choose one of {', '.join(STREAMS)}")
    if direction not in ("denoising", "noising"):
        raise InputError(f"direction={direction!r} is unknown; choose 'denoising' or 'noising'")
    head_names(model)  # Refuses what is no model.
    cfg = model.cfg
    if stream == "mlp_out" and cfg.attn_only:
        raise InputError("stream='mlp_out' was asked of an attention-only model, which has no MLP")
    if stream == "resid_mid" and (cfg.attn_only or cfg.parallel_attn_mlp):
        raise InputError(
            "stream='resid_mid' needs an MLP after the attention of each layer; this model is "
            "attention-only or parallel, so use 'resid_pre'"
        )


def _recorded(
    model: Any, tokens: Int[Tensor, "batch pos"], read: tuple[int, ...], stream: str
) -> Recording:
    needed = {"resid_pre", "z", stream} | ({"resid_post"} if stream == "mlp_out" else set())
    return record(model, tokens, read, sorted(needed))


def _rows(model: Any, stream: str, n_places: int) -> list[tuple[int, int]]:
    """(layer, head) or (layer, place) of every patch."""
    here = model.cfg.n_heads if stream == "z" else n_places
    return [(layer, each) for layer in range(model.cfg.n_layers) for each in range(here)]


def _sweep(
    study: _Study, stream: str, places: list[tuple[int, ...]], used: int
) -> Float[Tensor, "patches batch"]:
    """Every layer in turn."""
    cfg = study.restart.model.cfg
    found = []
    for layer in range(cfg.n_layers):
        if stream == "z":
            found.append(study.effects(cfg.n_heads, _head_patch(study, layer, places[0], used)))
        else:
            found.append(_position_effects(study, stream, layer, places, used))
    return torch.cat(found)


def _position_effects(
    study: _Study, stream: str, layer: int, places: list[tuple[int, ...]], used: int
) -> Float[Tensor, "patches batch"]:
    """Positions from which nothing reaches the metric have an effect of exactly 0."""
    last = layer == study.restart.model.cfg.n_layers - 1
    heard = set(study.restart.scored if last and stream != "resid_pre" else range(used))
    reached = [[p for p in place if p in heard] for place in places]
    live = [index for index, place in enumerate(reached) if place]
    run = _position_patch(study, stream, layer, [reached[index] for index in live])
    effects = study.base.new_zeros(len(places), study.base.shape[0])
    effects[live] = study.effects(len(live), run)
    return effects


def _position_patch(
    study: _Study, stream: str, layer: int, places: list[list[int]]
) -> Callable[[list[int], slice], Tensor]:
    into, donor, restart = study.into, study.donor, study.restart

    def run(chunk: list[int], span: slice) -> Tensor:
        old = into[stream][layer][span]
        new = donor[stream][layer][span]
        patched = old.repeat(len(chunk), *[1] * (old.dim() - 1)).unflatten(0, (len(chunk), -1))
        for row, index in enumerate(chunk):
            patched[row][:, places[index]] = new[:, places[index]]
        patched = patched.flatten(0, 1)
        if stream == "resid_pre":
            return restart.from_resid_pre(layer, patched)
        if stream == "resid_mid":
            return restart.from_resid_mid(layer, patched)
        if stream == "attn_out":
            resid_pre = into["resid_pre"][layer][span].repeat(len(chunk), 1, 1)
            return restart.from_attn_out(layer, resid_pre, patched)
        others = (into["resid_post"][layer][span] - old).repeat(len(chunk), 1, 1)
        return restart.from_resid_pre(layer + 1, others + patched)

    return run


def _head_patch(
    study: _Study, layer: int, places: tuple[int, ...], used: int
) -> Callable[[list[int], slice], Tensor]:
    where = [place for place in places if place < used]

    def run(chunk: list[int], span: slice) -> Tensor:
        old, new = study.into["z"][layer][span], study.donor["z"][layer][span]
        patched = old.repeat(len(chunk), 1, 1, 1).unflatten(0, (len(chunk), -1))
        for row, head in enumerate(chunk):
            patched[row, :, where, head] = new[:, where, head]
        attn_out = study.restart.attn_out(layer, patched.flatten(0, 1))
        resid_pre = study.into["resid_pre"][layer][span].repeat(len(chunk), 1, 1)
        return study.restart.from_attn_out(layer, resid_pre, attn_out)

    return run


def _table(
    stream: str,
    rows: list[tuple[int, int]],
    per_example: Float[Tensor, "patches batch"],
    places: list[tuple[int, ...]],
    names: list[str] | None,
) -> pd.DataFrame:
    mean, low, high = mean_interval(per_example)
    by_head = stream == "z"
    alone = not by_head and names is None
    columns: dict[str, Any] = {
        "stream": stream,
        "layer": [layer for layer, _ in rows],
        "pos": pd.array([places[each][0] if alone else None for _, each in rows], dtype="Int64"),
        "head": [head_name(row) if by_head else None for row in rows],
    }
    if names is not None:
        columns["position"] = [names[each] for _, each in rows]
    columns |= {"effect": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
    return pd.DataFrame(columns)
