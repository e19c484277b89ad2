"""Cuts edges one at a time, many at once: which go together, and what is measured on each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from threading import Lock

import torch
from torch import Tensor

from circuits.attention_math import At, Input, take
from circuits.edge_engine import Engine
from circuits.graph import Edge, Node, Reader
from circuits.memory_plan import share_memory
from circuits.prepared import Prepared
from circuits.side_by_side import side_by_side


@dataclass(frozen=True)
class Item:
    """One row of the result: an edge cut at some positions."""

    row: int
    source: Node
    reader: Reader


@dataclass(frozen=True)
class Outcome:
    """Logits of some items at scored positions `at`, `"item batch at d_vocab"`."""

    items: list[Item]
    at: At
    logits: Tensor


Case = tuple[int, Item]
"""An item, and the number of its source in a chunk of sources."""


class Plan:
    """Computes the effect of every edge and position group on every example.

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
        self.prepared, self.edges, base = prepared, edges, prepared.base
        n_examples, n_pos = base.batch.tokens.shape
        first = prepared.replacements.unchanged_before
        spans = [tuple(range(n_pos))] if groups is None else list(groups.values())
        self.spans = [tuple(p for p in span if first <= p < n_pos) for span in spans]
        share = share_memory(prepared, memory_budget)
        self.workers, self.chunk_tokens = share.workers, share.tokens
        self.slab = max(1, min(n_examples, self.chunk_tokens // n_pos))
        self.slabs = [slice(i, i + self.slab) for i in range(0, n_examples, self.slab)]
        self.engines = [Engine(base.rows(slab), prepared.wanted) for slab in self.slabs]
        self.base_logits = base.logits[:, list(prepared.wanted)]
        self.order = [prepared.wanted.index(p) for p in prepared.scored]

    def run(self) -> Tensor:
        """Computes every row: metric(ablated) - metric(base), `"row batch"`."""
        baseline = self.prepared.baseline
        result = baseline.new_zeros(len(self.edges) * len(self.spans), len(baseline))
        one_at_a_time = Lock()  # The metric may be the caller's own, who need not think of threads.

        def fill(outcomes: Callable[[], Iterable[Outcome]]) -> None:
            for outcome in outcomes():
                with one_at_a_time:
                    for item, logits in zip(outcome.items, outcome.logits, strict=True):
                        result[item.row] = self._measure(outcome.at, logits) - baseline

        side_by_side(fill, self._pieces(), self.workers)
        return result

    def _pieces(self) -> Iterator[Callable[[], Iterable[Outcome]]]:
        """Cuts of a few sources at a time into one layer's q, k or v, its MLP, or the logits.

        Where nothing differs, or nothing can reach a scored position, no outcome says anything
        about a row, and its effect is exactly zero.
        """
        for number, span in enumerate(self.spans):
            items = [
                Item(i * len(self.spans) + number, edge.source, edge.reader)
                for i, edge in enumerate(self.edges)
                if span
            ]
            for (kind, layer, inputs), members in groupby(sorted(items, key=_slot), key=_slot):
                for chunk in self._chunks(list(members), span):
                    if kind == "attention":
                        yield partial(self._attention, layer, inputs, chunk, span)
                    else:
                        yield partial(self._direct, kind, layer, chunk, span)

    def _chunks(self, items: list[Item], span: At) -> Iterator[dict[Node, list[Item]]]:
        """As many sources at a time as fill a chunk."""
        by_source: dict[Node, list[Item]] = {}
        for item in items:
            by_source.setdefault(item.source, []).append(item)
        at_once = max(1, self.chunk_tokens // (self.slab * len(span)))
        sources = list(by_source)
        for start in range(0, len(sources), at_once):
            yield {source: by_source[source] for source in sources[start : start + at_once]}

    def _direct(
        self, kind: str, layer: int, chunk: dict[Node, list[Item]], span: At
    ) -> list[Outcome]:
        """Cuts of edges into an MLP or the logits."""
        deltas = [self._delta(source, span) for source in chunk]
        results = []
        for engine, slab in zip(self.engines, self.slabs, strict=True):
            delta = torch.stack([delta[slab] for delta in deltas])
            if kind == "mlp":
                results.append(engine.cut_mlp(layer, delta, span))
            else:
                results.append(engine.cut_logits(delta, span))
        return _outcomes([item for (item,) in chunk.values()], results)

    def _attention(
        self, layer: int, inputs: tuple[Input, ...], chunk: dict[Node, list[Item]], span: At
    ) -> Iterator[Outcome]:
        """Cuts of edges into heads: what every head writes now, then each head's case onwards."""
        deltas = [self._delta(source, span) for source in chunk]
        changed = [
            engine.cut_attention(layer, inputs, torch.stack([d[slab] for d in deltas]), span)
            for engine, slab in zip(self.engines, self.slabs, strict=True)
        ]
        at = changed[0][0]
        if not at:
            return
        heads: dict[int | None, list[Case]] = {}
        for number, items in enumerate(chunk.values()):
            for item in items:
                heads.setdefault(item.reader.index, []).append((number, item))
        for part in self._parts(heads, len(at)):
            yield from self._heads(layer, part, at, [dz for _, dz in changed])

    def _heads(
        self, layer: int, part: list[tuple[int | None, list[Case]]], at: At, changed: list[Tensor]
    ) -> list[Outcome]:
        """The cases of some heads (all heads together where they are merged), from z to logits."""
        every = range(self.prepared.weights.n_heads)
        heads = [every if head is None else [head] for head, _ in part]
        results = []
        for engine, dz in zip(self.engines, changed, strict=True):
            pieces = [
                _pick(dz, [number for number, _ in cases], held)
                for (_, cases), held in zip(part, heads, strict=True)
            ]
            results.append(engine.after_attention(layer, heads, at, pieces))
        return _outcomes([item for _, cases in part for _, item in cases], results)

    def _parts(
        self, heads: dict[int | None, list[Case]], n_at: int
    ) -> Iterator[list[tuple[int | None, list[Case]]]]:
        """Heads' cases in parts that fill a chunk each."""
        room = max(1, self.chunk_tokens // (self.slab * n_at))
        part: list[tuple[int | None, list[Case]]] = []
        held = 0
        for head, cases in heads.items():
            for start in range(0, len(cases), room):
                piece = cases[start : start + room]
                if part and held + len(piece) > room:
                    yield part
                    part, held = [], 0
                part.append((head, piece))
                held += len(piece)
        if part:
            yield part

    def _delta(self, source: Node, span: At) -> Tensor:
        """Replacement minus output of a source at the positions where it is cut."""
        nodes = [source]
        if source.kind == "attn":
            nodes = [Node("head", source.layer, h) for h in range(self.prepared.weights.n_heads)]
        value, output = self.prepared.replacements.value, self.prepared.base.output
        total = take(value(nodes[0]), span) - take(output(nodes[0]), span)
        for node in nodes[1:]:
            total = total + (take(value(node), span) - take(output(node), span))
        return total

    def _measure(self, at: At, logits: Tensor) -> Tensor:
        """The metric on an edge's logits, the base run's where they cannot change."""
        wanted = self.prepared.wanted
        if len(at) < len(wanted):
            full = self.base_logits.clone()
            full[:, [wanted.index(p) for p in at]] = logits
            logits = full
        if self.order != sorted(self.order):
            logits = logits[:, self.order]
        return self.prepared.metric(logits)


def _outcomes(items: list[Item], results: list[tuple[At, Tensor]]) -> list[Outcome]:
    """Logits of all slabs of the batch put together; nothing where they cannot change."""
    at = results[0][0]
    return [Outcome(items, at, torch.cat([part for _, part in results], dim=1))] if at else []


def _pick(dz: Tensor, edges: list[int], heads: Sequence[int]) -> Tensor:
    """Some edges and some neighbouring heads; a view where all edges are wanted."""
    held = dz[:, :, heads[0] : heads[-1] + 1]
    return held if edges == list(range(dz.shape[0])) else held[edges]


def _slot(item: Item) -> tuple[str, int, tuple[Input, ...]]:
    """Readers that are computed together."""
    reader = item.reader
    if reader.kind in ("mlp", "logits"):
        return reader.kind, reader.layer, ()
    return "attention", reader.layer, (reader.input,) if reader.input else ("q", "k", "v")
