"""Which cuts are computed together, and how much memory that takes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from circuits.attention_math import At, Input, take
from circuits.edge_engine import Engine
from circuits.errors import InputError
from circuits.graph import Edge, Node, Reader
from circuits.prepared import Prepared

TOKENS_AT_ONCE = 4096
"""Tokens (edges x examples x positions) in one chunk: what runs fastest on CPU caches."""
MEMORY_BUDGET = 2 * 2**30
"""Bytes, when none are given."""


@dataclass(frozen=True)
class Item:
    """One row of the result: an edge cut at some positions."""

    row: int
    source: Node
    reader: Reader


def source_positions(positions: object, n_pos: int) -> dict[str, tuple[int, ...]] | None:
    """Gives the position groups by name, or None when edges are cut at all positions at once.

    Raises:
        InputError: an empty group, a repeated one, or a position outside of the batch.
    """
    if positions is None:
        return None
    if isinstance(positions, Mapping):
        named = [(str(name), group) for name, group in positions.items()]
    elif isinstance(positions, Sequence) and not isinstance(positions, str):
        named = [(_group_name(group), group) for group in positions]
    else:
        raise InputError(
            f"positions={positions!r}: give a mapping of names to positions, or a list of positions"
        )
    groups: dict[str, tuple[int, ...]] = {}
    for name, group in named:
        members = [group] if isinstance(group, int) else list(group)
        at = sorted({int(p) + n_pos if int(p) < 0 else int(p) for p in members})
        if not at or at[0] < 0 or at[-1] >= n_pos:
            raise InputError(f"positions[{name!r}]={members} must hold positions in 0..{n_pos - 1}")
        if name in groups:
            raise InputError(f"positions names {name!r} twice")
        groups[name] = tuple(at)
    if not groups:
        raise InputError("positions is empty: name at least one position, or pass None for all")
    return groups


def _group_name(group: object) -> str:
    return ",".join(map(str, group)) if isinstance(group, Sequence) else str(group)


class Plan:
    """Cuts edges one at a time, many at once, in chunks that fit the caches and the budget.

    Args:
        prepared: runs, replacements and metric.
        edges: to cut; the rows of the result are edges x position groups.
        groups: position groups by name, or None to cut at all positions.
        memory_budget: bytes, or None for the default.
    """

    def __init__(
        self,
        prepared: Prepared,
        edges: Sequence[Edge],
        groups: Mapping[str, At] | None,
        memory_budget: int | None,
    ) -> None:
        self.prepared, self.base = prepared, prepared.base
        n_examples, n_pos = self.base.batch.tokens.shape
        first = prepared.replacements.unchanged_before
        spans = [tuple(range(n_pos))] if groups is None else list(groups.values())
        self.spans = [tuple(p for p in span if first <= p < n_pos) for span in spans]
        self.edges = edges
        self.chunk_tokens, rows = _sizes(prepared, memory_budget)
        starts = range(0, n_examples, rows)
        self.engines = [
            Engine(self.base.rows(slice(start, start + rows)), prepared.wanted) for start in starts
        ]
        self.slabs = [slice(start, start + rows) for start in starts]
        self.result = torch.zeros(
            len(edges) * len(spans),
            n_examples,
            dtype=prepared.baseline.dtype,
            device=prepared.baseline.device,
        )
        self.base_logits = self.base.logits[:, list(prepared.wanted)]
        order = {p: i for i, p in enumerate(prepared.wanted)}
        self.order = [order[p] for p in prepared.scored]

    def run(self) -> Tensor:
        """Computes every row: metric(ablated) - metric(base), `"row batch"`."""
        for number, span in enumerate(self.spans):
            if not span:
                continue  # Nothing differs there: the effect is exactly zero.
            items = [
                Item(i * len(self.spans) + number, edge.source, edge.reader)
                for i, edge in enumerate(self.edges)
            ]
            for slot, members in groupby(sorted(items, key=_slot), key=_slot):
                self._slot(slot[0], slot[1], list(members), span)
        return self.result

    def _slot(self, kind: str, layer: int, items: list[Item], span: At) -> None:
        """All cuts of edges into one layer's heads, its MLP, or the logits."""
        by_source: dict[Node, list[Item]] = {}
        for item in items:
            by_source.setdefault(item.source, []).append(item)
        rows = max(s.stop - s.start for s in self.slabs)
        at_once = max(1, self.chunk_tokens // (rows * len(span)))
        sources = list(by_source)
        for start in range(0, len(sources), at_once):
            chunk = sources[start : start + at_once]
            deltas = [self._delta(source, span) for source in chunk]
            if kind == "attention":
                self._attention(layer, [by_source[s] for s in chunk], deltas, span)
                continue
            results = [
                engine.cut_mlp(layer, self._stacked(deltas, slab), span)
                if kind == "mlp"
                else engine.cut_logits(self._stacked(deltas, slab), span)
                for engine, slab in zip(self.engines, self.slabs, strict=True)
            ]
            self._record([by_source[s][0] for s in chunk], results)

    def _attention(
        self, layer: int, items: list[list[Item]], deltas: list[Tensor], span: At
    ) -> None:
        """Cuts of edges into heads: what every head would write, then each head's case onwards."""
        wanted: dict[tuple[Input, ...], dict[int | None, list[tuple[int, Item]]]] = {}
        for number, members in enumerate(items):
            for item in members:
                inputs: tuple[Input, ...] = (
                    (item.reader.input,) if item.reader.input else ("q", "k", "v")
                )
                heads = wanted.setdefault(inputs, {})
                heads.setdefault(item.reader.index, []).append((number, item))
        for inputs, heads in wanted.items():
            changed = [
                engine.cut_attention(layer, inputs, self._stacked(deltas, slab), span)
                for engine, slab in zip(self.engines, self.slabs, strict=True)
            ]
            at = changed[0][0]
            if not at:
                continue
            for part in self._split(heads, len(at)):
                self._heads(layer, part, at, [dz for _, dz in changed])

    def _heads(
        self,
        layer: int,
        part: list[tuple[int | None, list[tuple[int, Item]]]],
        at: At,
        changed: list[Tensor],
    ) -> None:
        every = range(self.prepared.weights.n_heads)
        heads = [every if head is None else [head] for head, _ in part]
        results = []
        for engine, dz in zip(self.engines, changed, strict=True):
            pieces = [
                _pick(dz, [number for number, _ in members], held)
                for (_, members), held in zip(part, heads, strict=True)
            ]
            results.append(engine.after_attention(layer, heads, at, pieces))
        self._record([item for _, members in part for _, item in members], results)

    def _split(
        self, heads: dict[int | None, list[tuple[int, Item]]], n_at: int
    ) -> Iterator[list[tuple[int | None, list[tuple[int, Item]]]]]:
        """Parts of the cuts that make one chunk each."""
        rows = max(s.stop - s.start for s in self.slabs)
        room = max(1, self.chunk_tokens // (rows * n_at))
        part: list[tuple[int | None, list[tuple[int, Item]]]] = []
        held = 0
        for head, members in heads.items():
            for start in range(0, len(members), room):
                piece = members[start : start + room]
                if held + len(piece) > room and part:
                    yield part
                    part, held = [], 0
                part.append((head, piece))
                held += len(piece)
        if part:
            yield part

    def _delta(self, source: Node, span: At) -> Tensor:
        """Replacement minus output of a source at the positions where it is cut."""
        replacements = self.prepared.replacements
        if source.kind != "attn":
            nodes = [source]
        else:
            nodes = [Node("head", source.layer, h) for h in range(self.prepared.weights.n_heads)]
        total = None
        for node in nodes:
            gap = take(replacements.value(node), span) - take(self.base.output(node), span)
            total = gap if total is None else total + gap
        assert total is not None
        return total

    @staticmethod
    def _stacked(deltas: list[Tensor], slab: slice) -> Tensor:
        return torch.stack([delta[slab] for delta in deltas])

    def _record(self, items: list[Item], results: list[tuple[At, Tensor]]) -> None:
        """Measures each edge's logits, put together from all slabs of the batch."""
        at = results[0][0]
        if not at:
            return
        logits = torch.cat([part for _, part in results], dim=1)
        where = [i for i, p in enumerate(self.prepared.wanted) if p in at]
        for item, own in zip(items, logits, strict=True):
            full = own
            if len(where) < len(self.prepared.wanted):
                full = self.base_logits.clone()
                full[:, where] = own
            if self.order != sorted(self.order):
                full = full[:, self.order]
            self.result[item.row] = self.prepared.metric(full) - self.prepared.baseline


def _pick(dz: Tensor, edges: list[int], heads: Sequence[int]) -> Tensor:
    """Some edges and some neighbouring heads; a view where all edges are wanted."""
    held = dz[:, :, heads[0] : heads[-1] + 1]
    return held if edges == list(range(dz.shape[0])) else held[edges]


def _slot(item: Item) -> tuple[str, int]:
    reader = item.reader
    return ("attention" if reader.kind in ("head", "attn") else reader.kind), reader.layer


def _sizes(prepared: Prepared, memory_budget: int | None) -> tuple[int, int]:
    """Tokens in a chunk and examples in a slab that keep within the memory budget."""
    budget = MEMORY_BUDGET if memory_budget is None else memory_budget
    base = prepared.base
    n_examples, n_pos = base.batch.tokens.shape
    per_token = _bytes_per_token(prepared)
    held = _held_bytes(prepared)
    room = (budget - held) // per_token
    if room < n_pos:
        raise InputError(
            f"memory_budget={budget} bytes is too small: the streams of {n_examples} examples take "
            f"{held} and one example's chunk {per_token * n_pos}; give at least "
            f"{held + per_token * n_pos} or fewer examples"
        )
    tokens = min(TOKENS_AT_ONCE, int(room))
    return tokens, max(1, min(n_examples, tokens // n_pos))


def _bytes_per_token(prepared: Prepared) -> int:
    """Working memory of a chunk for each token in it."""
    weights, size = prepared.weights, prepared.baseline.element_size()
    n_pos = prepared.base.batch.tokens.shape[1]
    heads, d_head, d_model = weights.attention[0].W_O.shape
    d_pre = weights.mlps[0].W_in.shape[1] if weights.mlps else 0
    numbers = 8 * d_model + 3 * d_pre + 8 * heads * d_head + 3 * heads * n_pos
    return size * (numbers + 3 * weights.W_U.shape[1])


def _held_bytes(prepared: Prepared) -> int:
    """Memory of the streams and replacements, which are held for the whole computation."""
    tokens, size = prepared.base.batch.tokens.numel(), prepared.baseline.element_size()
    weights, n_pos = prepared.weights, prepared.base.batch.tokens.shape[1]
    heads, d_head, d_model = weights.attention[0].W_O.shape
    runs = 1 + (prepared.replacements.corrupt is not None) + (prepared.base is not prepared.clean)
    layer = 4 * heads * d_head + 4 * d_model + heads * n_pos
    nodes = 1 + weights.n_layers * (heads + bool(weights.mlps))
    numbers = runs * (layer * weights.n_layers + weights.W_U.shape[1]) + nodes * d_model
    return size * tokens * numbers
