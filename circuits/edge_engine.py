"""From a changed input of one reader to changed logits, recomputing nothing that cannot change.

All is relative to a base run. A change is what the nodes after the cut edge write now, minus what
they wrote in the base run, at the positions where that can differ: one tensor
`"edge batch at d_model"` for several edges at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from circuits.attention_math import (
    At,
    Input,
    attention_pattern,
    head_outputs,
    project,
    put,
    take,
)
from circuits.graph import Node, Reader
from circuits.streams import LayerStreams, ReaderGroup, Streams


@dataclass(frozen=True)
class Change:
    """What has changed in the residual stream so far."""

    at: At
    total: Tensor
    """Sum of all changes, `"edge batch at d_model"`."""
    nodes: frozenset[Node]
    """Nodes that may have changed."""
    parts: tuple[tuple[Node, Tensor], ...] = ()
    """Single nodes' changes, for those that the base run cuts from some reader."""

    def moved(self, at: At) -> "Change":
        """The same at other positions; zero where nothing had changed."""
        if at == self.at:
            return self
        parts = tuple((node, move(part, self.at, at)) for node, part in self.parts)
        return Change(at, move(self.total, self.at, at), self.nodes, parts)

    def plus(
        self, total: Tensor, nodes: frozenset[Node], parts: Sequence[tuple[Node, Tensor]]
    ) -> "Change":
        """With further nodes' change at the same positions."""
        return Change(self.at, self.total + total, self.nodes | nodes, (*self.parts, *parts))


def move(x: Tensor, at: At, to: At) -> Tensor:
    """Takes `x`, known at positions `at`, to positions `to`; zero where it is not known."""
    if at == to:
        return x
    inside = take(x, indices(at, to))
    placed = indices(to, at)
    if len(placed) == len(to):
        return inside
    zeros = x.new_zeros(*x.shape[:-2], len(to), x.shape[-1])
    return put(zeros, inside, placed) if placed else zeros


@lru_cache(maxsize=4096)
def common(at: At, other: At) -> At:
    """Positions in both, in the order of the first."""
    members = set(other)
    return tuple(p for p in at if p in members)


@lru_cache(maxsize=4096)
def indices(at: At, wanted: At) -> At:
    """Where in `at` the positions stand that are also in `wanted`."""
    members = set(wanted)
    return tuple(i for i, p in enumerate(at) if p in members)


class Engine:
    """Propagates changes through some examples of a base run.

    Args:
        base: the run that the changes are relative to.
        scored: positions whose logits are wanted, ascending.
    """

    def __init__(self, base: Streams, scored: At) -> None:
        self.base, self.weights, self.scored = base, base.weights, scored
        self.n_heads = self.weights.n_heads
        self.every = tuple(range(base.batch.placement.n_pos))
        self.was_cut = frozenset().union(*base.cuts.values()) if base.cuts else frozenset[Node]()
        self.padded = base.batch.placement.real is not None

    def needed(self, layer: int) -> At:
        """Positions at which a layer's attention and MLP outputs can reach the logits wanted."""
        return self.scored if layer == self.weights.n_layers - 1 else self.every

    def cut_attention(
        self, layer: int, inputs: Sequence[Input], delta: Tensor, at: At
    ) -> tuple[At, Tensor]:
        """Changes of every head's z when these of its inputs lose or gain `delta`.

        Args:
            layer: of the readers.
            inputs: which of q, k, v are changed together.
            delta: `"edge batch at d_model"`, added to what the heads read.
            at: its positions.

        Returns:
            Positions, and the changes `"edge batch head at d_head"`; what a head would write if
            only it had been cut, for all heads at once.
        """
        new = self._projected(layer, inputs, at, lambda group, to: move(delta, at, to))
        queries = self._queries(layer, at, "k" in inputs or "v" in inputs)
        if "v" not in inputs:  # The first token sees itself alone, whatever q and k are.
            queries = tuple(p for p in queries if p > 0)
        if not queries:
            return (), delta.new_zeros(0)
        return queries, self._z_change(layer, new, queries)

    def after_attention(
        self, layer: int, heads: Sequence[Sequence[int]], at: At, dz: Sequence[Tensor]
    ) -> tuple[At, Tensor]:
        """Logits after some heads' z have changed.

        Args:
            layer: of the heads.
            heads: for each entry of `dz`, which heads its head axis holds.
            at: positions of the changes.
            dz: `"edge batch head at d_head"` each; edges are stacked in this order.

        Returns:
            Scored positions that can change, and logits there, `"edge batch at d_vocab"`.
        """
        attention = self.weights.attention[layer]
        totals = [head_outputs(attention, z, h) for z, h in zip(dz, heads, strict=True)]
        total = totals[0] if len(totals) == 1 else torch.cat(totals)
        nodes = frozenset(Node("head", layer, head) for held in heads for head in held)
        change = Change(at, total, nodes, tuple(self._head_parts(layer, heads, dz)))
        if self.weights.mlps and not self.weights.parallel:
            change = self._through_mlp(layer, change)
        return self._onwards(layer + 1, change)

    def cut_mlp(self, layer: int, delta: Tensor, at: At) -> tuple[At, Tensor]:
        """Logits after an MLP's input has changed by `delta`, `"edge batch at d_model"`."""
        here = common(at, self.needed(layer))
        if not here:
            return (), delta.new_zeros(0)
        streams = self.base.layers[layer]
        assert streams.mlp_in is not None
        assert streams.mlp_out is not None
        mlp_in = take(streams.mlp_in, here) + move(delta, at, here)
        total = self.weights.mlps[layer](mlp_in) - take(streams.mlp_out, here)
        node = Node("mlp", layer)
        parts = ((node, total),) if node in self.was_cut else ()
        change = Change(here, total, frozenset([node]), parts)
        return self._onwards(layer + 1, change)

    def cut_logits(self, delta: Tensor, at: At) -> tuple[At, Tensor]:
        """Logits after the final residual stream has changed by `delta`."""
        here = common(at, self.scored)
        if not here:
            return (), delta.new_zeros(0)
        return here, self.weights.unembed(take(self.base.logits_in, here) + move(delta, at, here))

    def _onwards(self, layer: int, change: Change) -> tuple[At, Tensor]:
        """Through all layers from `layer` on, to the logits."""
        for index in range(layer, self.weights.n_layers):
            change = self._through_layer(index, change)
        at = common(change.at, self.scored)
        if not at:
            return (), change.total.new_zeros(0)
        change = change.moved(at)
        delta = self._seen(change, Reader("logits", self.weights.n_layers))
        if delta is None:
            return (), change.total.new_zeros(0)
        return at, self.weights.unembed(take(self.base.logits_in, at) + delta)

    def _through_layer(self, layer: int, change: Change) -> Change:
        """One block, all its readers reading the changed stream."""
        at = self._queries(layer, change.at, True)
        if not at:
            return Change((), change.total.new_zeros(0), frozenset())
        after = change.moved(at)
        dz = self._heads_respond(layer, change, at)
        if dz is not None:
            every = range(self.n_heads)
            parts = self._head_parts(layer, [every], [dz])
            nodes = frozenset(Node("head", layer, head) for head in every)
            after = after.plus(head_outputs(self.weights.attention[layer], dz), nodes, parts)
        if not self.weights.mlps:
            return after
        if not self.weights.parallel:
            return self._through_mlp(layer, after)
        here = change.moved(common(change.at, at))
        response = self._mlp_response(layer, here) if here.at else None
        if response is None:
            return after
        return self._plus_mlp(layer, after, move(response, here.at, at))

    def _through_mlp(self, layer: int, change: Change) -> Change:
        response = self._mlp_response(layer, change) if change.at else None
        if response is None:
            return change
        return self._plus_mlp(layer, change, response)

    def _plus_mlp(self, layer: int, change: Change, response: Tensor) -> Change:
        node = Node("mlp", layer)
        parts = [(node, response)] if node in self.was_cut else []
        return change.plus(response, frozenset([node]), parts)

    def _mlp_response(self, layer: int, change: Change) -> Tensor | None:
        delta = self._seen(change, Reader("mlp", layer))
        if delta is None:
            return None
        streams = self.base.layers[layer]
        assert streams.mlp_in is not None
        assert streams.mlp_out is not None
        mlp_in = take(streams.mlp_in, change.at) + delta
        return self.weights.mlps[layer](mlp_in).sub_(take(streams.mlp_out, change.at))

    def _heads_respond(self, layer: int, change: Change, queries: At) -> Tensor | None:
        """Changes of all heads' z when q, k and v all read the changed stream."""

        def delta_of(group: ReaderGroup, to: At) -> Tensor | None:
            x, head = group.columns[0]
            delta = self._seen(change, Reader("head", layer, head, x))
            return None if delta is None else move(delta, change.at, to)

        new = self._projected(layer, ("q", "k", "v"), change.at, delta_of)
        return self._z_change(layer, new, queries) if new else None

    def _seen(self, change: Change, reader: Reader) -> Tensor | None:
        """What a reader sees of a change; None when all of it is cut from the reader."""
        cut = self.base.cuts.get(reader, frozenset())
        if change.nodes <= cut:
            return None
        seen = change.total
        for node, part in change.parts:
            if node in cut:
                seen = seen - part
        return seen

    def _queries(self, layer: int, at: At, later: bool) -> At:
        """Positions of a layer's heads that change when their inputs do at `at`."""
        if not at:
            return ()
        needed = self.needed(layer)
        if later:
            return tuple(p for p in needed if p >= at[0])
        return common(needed, at)

    def _projected(
        self,
        layer: int,
        inputs: Sequence[Input],
        at: At,
        delta_of: Callable[[ReaderGroup, At], Tensor | None],
    ) -> dict[Input, tuple[At, Tensor]]:
        """New q, k, v of all heads, each with the positions at which it is new."""
        narrow = common(at, self.needed(layer))
        if "q" not in inputs or len(narrow) == len(at):
            return self._columns(layer, inputs, at, delta_of)
        rest: list[Input] = [x for x in inputs if x != "q"]
        new = self._columns(layer, rest, at, delta_of) if rest else {}
        return new | (self._columns(layer, ["q"], narrow, delta_of) if narrow else {})

    def _columns(
        self,
        layer: int,
        inputs: Sequence[Input],
        at: At,
        delta_of: Callable[[ReaderGroup, At], Tensor | None],
    ) -> dict[Input, tuple[At, Tensor]]:
        streams, placement = self.base.layers[layer], self.base.batch.placement
        wanted: list[tuple[Input, int]] = [(x, h) for x in inputs for h in range(self.n_heads)]
        found: list[tuple[Input, int]] = []
        parts: list[Tensor] = []
        for group in streams.groups:
            columns = [c for c in group.columns if c[0] in inputs]
            delta = delta_of(group, at) if columns else None
            if delta is None:
                continue
            resid = take(group.resid, at) + delta
            parts.append(project(self.weights.attention[layer], placement, resid, columns, at))
            found += columns
        if not parts:
            return {}
        missing = [c for c in wanted if c not in found]
        if missing:  # Every change is cut from these: they stay as they were.
            n_edges = parts[0].shape[0]
            held = torch.stack([take(_held(streams, c), at) for c in missing], dim=-3)
            parts.append(held.expand(n_edges, *held.shape))
            found += missing
        stacked = parts[0]
        if len(parts) > 1 or found != wanted:
            order = torch.tensor([found.index(c) for c in wanted], device=stacked.device)
            stacked = torch.cat(parts, dim=-3).index_select(-3, order)
        split = stacked.split(self.n_heads, dim=-3)
        return {x: (at, part) for x, part in zip(inputs, split, strict=True)}

    def _z_change(self, layer: int, new: dict[Input, tuple[At, Tensor]], queries: At) -> Tensor:
        """Changes of z at the queries, given new q, k or v at some positions."""
        streams, attention = self.base.layers[layer], self.weights.attention[layer]
        if "q" not in new and "k" not in new:
            at, v = new["v"]
            seen = take(take(streams.pattern, queries).transpose(-1, -2), at).transpose(-1, -2)
            return seen @ (v - take(streams.v, at))
        q = take(streams.q, queries)
        if "q" in new:
            at, changed = new["q"]
            changed = take(changed, indices(at, queries))
            q = put(q, changed, indices(queries, at)) if changed.shape[-2] else q
        k = put(streams.k, new["k"][1], new["k"][0]) if "k" in new else streams.k
        v = put(streams.v, new["v"][1], new["v"][0]) if "v" in new else streams.v
        bias = take(streams.bias, queries)
        pattern = attention_pattern(attention, q, k, bias, self.padded)
        return pattern @ v - take(streams.z, queries)

    def _head_parts(
        self, layer: int, heads: Sequence[Sequence[int]], dz: Sequence[Tensor]
    ) -> list[tuple[Node, Tensor]]:
        """Single heads' changes, for heads that the base run cuts from some reader."""
        attention, parts = self.weights.attention[layer], []
        for head in range(self.n_heads):
            if Node("head", layer, head) not in self.was_cut:
                continue
            pieces = []
            for z, members in zip(dz, heads, strict=True):
                shape = (*z.shape[:-3], z.shape[-2], attention.W_O.shape[-1])
                held = list(members)
                pieces.append(
                    z[..., held.index(head), :, :] @ attention.W_O[head]
                    if head in held
                    else z.new_zeros(shape)
                )
            parts.append((Node("head", layer, head), torch.cat(pieces)))
        return parts


def _held(streams: LayerStreams, column: tuple[Input, int]) -> Tensor:
    """A head's q, k or v in the base run, `"batch pos d_head"`."""
    x, head = column
    return {"q": streams.q, "k": streams.k, "v": streams.v}[x][:, head]
