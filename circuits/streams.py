"""The factored forward pass: what every node writes, what every reader reads, with any edges cut.

`run_streams` is an ordinary forward pass in plain tensors in which each reader has its own input:
the sum of what the nodes before it wrote, with the outputs on its cut edges replaced. It is exact
for any set of cut edges and differentiable.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.attention_math import (
    Input,
    Placement,
    all_columns,
    attention_pattern,
    head_outputs,
    project,
    score_bias,
)
from circuits.graph import Edge, Node, Reader
from circuits.model_weights import ModelWeights

Cuts = Mapping[Reader, frozenset[Node]]
"""For every reader with cut edges, the sources cut from it; heads apart."""

EMBED = Node("embed", -1)


@dataclass(frozen=True)
class Batch:
    """Tokens and what the model makes of them before its first block."""

    tokens: Int[Tensor, "batch pos"]
    embed: Float[Tensor, "batch pos d_model"]
    """Token plus position embedding; token alone with rotary, ALiBi or shortformer positions."""
    placement: Placement


@dataclass(frozen=True)
class ReaderGroup:
    """Inputs of one layer's heads that read the same thing."""

    columns: tuple[tuple[Input, int], ...]
    cut: frozenset[Node]
    resid: Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True)
class LayerStreams:
    """What one layer read and wrote."""

    groups: tuple[ReaderGroup, ...]
    q: Float[Tensor, "batch head pos d_head"]
    k: Float[Tensor, "batch head pos d_head"]
    v: Float[Tensor, "batch head pos d_head"]
    pattern: Float[Tensor, "batch head query key"]
    z: Float[Tensor, "batch head pos d_head"]
    bias: Float[Tensor, "batch_or_one head_or_one query key"]
    """Added to the scores: where queries may not look, and ALiBi."""
    mlp_in: Float[Tensor, "batch pos d_model"] | None
    mlp_out: Float[Tensor, "batch pos d_model"] | None

    def rows(self, rows: slice) -> "LayerStreams":
        """Views of some examples of the batch."""
        return LayerStreams(
            tuple(replace(group, resid=group.resid[rows]) for group in self.groups),
            self.q[rows],
            self.k[rows],
            self.v[rows],
            self.pattern[rows],
            self.z[rows],
            self.bias[rows] if self.bias.shape[0] > 1 else self.bias,
            None if self.mlp_in is None else self.mlp_in[rows],
            None if self.mlp_out is None else self.mlp_out[rows],
        )


@dataclass(frozen=True)
class Streams:
    """One run of the model, factored into streams.

    Nothing in it is ever changed in place by this package.
    """

    weights: ModelWeights
    batch: Batch
    cuts: Cuts
    embed: Float[Tensor, "batch pos d_model"]
    layers: tuple[LayerStreams, ...]
    resid: tuple[Float[Tensor, "batch pos d_model"], ...]
    """The residual stream after every layer, uncut."""
    logits_in: Float[Tensor, "batch pos d_model"]
    logits: Float[Tensor, "batch pos d_vocab"]

    def output(self, node: Node) -> Float[Tensor, "batch pos d_model"]:
        """What a node writes: z W_O of a head (without b_O), an MLP's output (with b_out)."""
        if node.kind == "embed":
            return self.embed
        layer = self.layers[node.layer]
        if node.kind == "mlp":
            assert layer.mlp_out is not None
            return layer.mlp_out
        attention = self.weights.attention[node.layer]
        if node.kind == "attn":
            return head_outputs(attention, layer.z)
        assert node.index is not None
        return layer.z[:, node.index] @ attention.W_O[node.index]

    def reader_input(self, reader: Reader) -> Float[Tensor, "batch pos d_model"]:
        """What a reader reads, before its norm; heads apart, or merged where they read the same."""
        if reader.kind == "logits":
            return self.logits_in
        layer = self.layers[reader.layer]
        if reader.kind == "mlp":
            assert layer.mlp_in is not None
            return layer.mlp_in
        column = (reader.input or "q", reader.index or 0)
        return next(group.resid for group in layer.groups if column in group.columns)

    def rows(self, rows: slice) -> "Streams":
        """Views of some examples of the batch."""
        return replace(
            self,
            batch=Batch(
                self.batch.tokens[rows], self.batch.embed[rows], self.batch.placement.rows(rows)
            ),
            embed=self.embed[rows],
            layers=tuple(layer.rows(rows) for layer in self.layers),
            resid=tuple(resid[rows] for resid in self.resid),
            logits_in=self.logits_in[rows],
            logits=self.logits[rows],
        )


def simple_edges(edge: Edge, n_heads: int) -> list[tuple[Node, Reader]]:
    """An edge as pairs of one node and one reader with heads, q, k and v apart."""
    source, reader = edge.source, edge.reader
    heads = range(n_heads)
    sources = [source]
    if source.kind == "attn":
        sources = [Node("head", source.layer, head) for head in heads]
    readers = [reader]
    if reader.kind == "attn":
        inputs: tuple[Input, ...] = (reader.input,) if reader.input else ("q", "k", "v")
        readers = [Reader("head", reader.layer, head, x) for head in heads for x in inputs]
    return [(s, r) for r in readers for s in sources]


def cuts_of(edges: Iterable[Edge], n_heads: int) -> Cuts:
    """Gathers edges, of any granularity, by reader."""
    cuts: dict[Reader, set[Node]] = {}
    for edge in edges:
        for source, reader in simple_edges(edge, n_heads):
            cuts.setdefault(reader, set()).add(source)
    return {reader: frozenset(sources) for reader, sources in cuts.items()}


def run_streams(
    weights: ModelWeights,
    batch: Batch,
    cuts: Cuts | None = None,
    value: Callable[[Node], Tensor] | None = None,
    outputs: Mapping[Node, Tensor] | None = None,
    offsets: Mapping[Reader, Tensor] | None = None,
) -> Streams:
    """Runs the model with any set of edges cut.

    A reader's input is the residual stream, minus what the sources cut from it write in this very
    run, plus their replacement. Uncut readers of a layer share one input, so an uncut run costs
    about one plain forward pass and a fully cut one about 3.5. Gradients flow where the caller's
    grad mode, and tensors that require them, ask for it.

    Args:
        weights: the model.
        batch: the tokens, embedded.
        cuts: for each reader (heads apart), the nodes cut from it; see `cuts_of`.
        value: replacement of a node's output on cut edges, `"batch pos d_model"` or broadcastable.
        outputs: outputs to use in place of what these nodes would write (heads apart).
        offsets: added to what these readers read; with zeros that require gradients, the gradient
            of anything with respect to a reader's input.

    Returns:
        The streams of this run.
    """
    run = _Run(weights, batch, cuts or {}, value, outputs or {}, offsets or {})
    return run.forward()


class _Run:
    """One forward pass under way: the residual stream so far and the outputs behind it."""

    def __init__(
        self,
        weights: ModelWeights,
        batch: Batch,
        cuts: Cuts,
        value: Callable[[Node], Tensor] | None,
        outputs: Mapping[Node, Tensor],
        offsets: Mapping[Reader, Tensor],
    ) -> None:
        self.weights, self.batch, self.cuts = weights, batch, cuts
        self.value, self.given, self.offsets = value, outputs, offsets
        self.was_cut = frozenset().union(*cuts.values()) if cuts else frozenset[Node]()
        self.written: dict[Node, Tensor] = {}
        self.resid = self._write(EMBED, batch.embed)

    def forward(self) -> Streams:
        layers, resid = [], []
        for index in range(self.weights.n_layers):
            layers.append(self._layer(index))
            resid.append(self.resid)
        logits_in = self._read(Reader("logits", self.weights.n_layers))
        return Streams(
            weights=self.weights,
            batch=self.batch,
            cuts=self.cuts,
            embed=self.written[EMBED],
            layers=tuple(layers),
            resid=tuple(resid),
            logits_in=logits_in,
            logits=self.weights.unembed(logits_in),
        )

    def _layer(self, index: int) -> LayerStreams:
        before = self.resid
        groups = self._groups(index)
        q, k, v = self._qkv(index, groups)
        attention = self.weights.attention[index]
        bias = score_bias(attention, self.batch.placement)
        padded = self.batch.placement.real is not None
        pattern = attention_pattern(attention, q, k, bias, padded)
        z = pattern @ v
        out = self._attention_out(index, z)
        mlp_in = mlp_out = None
        if self.weights.mlps:
            if not self.weights.parallel:
                self.resid = before + out
            mlp_in = self._read(Reader("mlp", index))
            mlp_out = self._write(Node("mlp", index), self.weights.mlps[index](mlp_in))
            out = out + mlp_out
        self.resid = before + out
        return LayerStreams(groups, q, k, v, pattern, z, bias, mlp_in, mlp_out)

    def _groups(self, index: int) -> tuple[ReaderGroup, ...]:
        """Heads' inputs gathered by what is cut from them, so that each is computed once."""
        columns: dict[tuple[frozenset[Node], Reader | None], list[tuple[Input, int]]] = {}
        for x, head in all_columns(self.weights.n_heads):
            reader = Reader("head", index, head, x)
            key = (self.cuts.get(reader, frozenset()), reader if reader in self.offsets else None)
            columns.setdefault(key, []).append((x, head))
        return tuple(
            ReaderGroup(
                tuple(members), cut, self._read(Reader("head", index, members[0][1], members[0][0]))
            )
            for (cut, _), members in columns.items()
        )

    def _qkv(self, index: int, groups: tuple[ReaderGroup, ...]) -> tuple[Tensor, Tensor, Tensor]:
        every = tuple(range(self.batch.placement.n_pos))
        attention = self.weights.attention[index]
        parts = [
            project(attention, self.batch.placement, group.resid, group.columns, every)
            for group in groups
        ]
        stacked, n_heads = parts[0], self.weights.n_heads
        if len(parts) > 1:
            where = {c: i for i, c in enumerate(c for group in groups for c in group.columns)}
            order = torch.tensor([where[c] for c in all_columns(n_heads)], device=stacked.device)
            stacked = torch.cat(parts, dim=1).index_select(1, order)
        q, k, v = stacked.split(n_heads, dim=1)
        return q, k.contiguous(), v.contiguous()

    def _attention_out(self, index: int, z: Tensor) -> Tensor:
        """The sum of the heads' outputs and b_O; heads are taken apart where somebody asks."""
        attention = self.weights.attention[index]
        nodes = [Node("head", index, head) for head in range(self.weights.n_heads)]
        if not any(node in self.was_cut or node in self.given for node in nodes):
            return head_outputs(attention, z) + attention.b_O
        total = attention.b_O
        for head, node in enumerate(nodes):
            total = total + self._write(node, z[:, head] @ attention.W_O[head])
        return total

    def _write(self, node: Node, output: Tensor) -> Tensor:
        output = self.given.get(node, output)
        if node in self.was_cut or node.kind == "embed":
            self.written[node] = output
        return output

    def _read(self, reader: Reader) -> Tensor:
        x = self.resid
        for node in sorted(self.cuts.get(reader, frozenset()), key=_causal):
            assert self.value is not None, "cut edges need replacement values"
            x = x + (self.value(node) - self.written[node])
        return x + self.offsets[reader] if reader in self.offsets else x


def _causal(node: Node) -> tuple[int, bool, int]:
    return node.layer, node.kind == "mlp", node.index or 0
