"""Names and order: the nodes, readers and edges of a transformer, and circuits made of them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from circuits.errors import InputError, has_entries, near_matches

Granularity = Literal["head", "layer", "layer-qkv"]
MOST_EDGES = 4_000_000
"""Edges of the largest graph that is read from a file; GPT-2 XL has 2.3 million."""

GRANULARITIES: tuple[Granularity, ...] = ("head", "layer", "layer-qkv")


@dataclass(frozen=True)
class Node:
    """Something that writes into the residual stream.

    `kind` is "embed", "head", "attn" (the heads of a layer merged) or "mlp"; `layer` is -1 for the
    embedding, and `index` is the head's number, else None.
    """

    kind: Literal["embed", "head", "attn", "mlp"]
    layer: int
    index: int | None = None

    @property
    def name(self) -> str:
        """`embed`, `L0H3`, `A0` or `M0`."""
        if self.kind == "embed":
            return "embed"
        if self.kind == "head":
            return f"L{self.layer}H{self.index}"
        return f"{'A' if self.kind == 'attn' else 'M'}{self.layer}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reader:
    """Something that reads the residual stream: a head's q, k or v, an MLP, or the logits.

    `input` is "q", "k" or "v" for one input of a head or of a layer's heads, and None otherwise;
    with kind "attn" and input None the three are read together.
    """

    kind: Literal["head", "attn", "mlp", "logits"]
    layer: int
    index: int | None = None
    input: Literal["q", "k", "v"] | None = None

    @property
    def name(self) -> str:
        """`L0H3.q`, `A0`, `A0.k`, `M0` or `logits`."""
        if self.kind == "logits":
            return "logits"
        stem = f"L{self.layer}H{self.index}" if self.kind == "head" else f"A{self.layer}"
        if self.kind == "mlp":
            stem = f"M{self.layer}"
        return f"{stem}.{self.input}" if self.input else stem

    @property
    def node(self) -> str | None:
        """Name of the node whose input this is; None for the logits."""
        return None if self.kind == "logits" else self.name.split(".")[0]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Edge:
    """What one node writes, as one reader sees it."""

    source: Node
    reader: Reader

    @property
    def name(self) -> str:
        """For example `L0H3->L2H1.q`."""
        return f"{self.source.name}->{self.reader.name}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Graph:
    """Every node, reader and edge of a model, in causal order.

    Edges are ordered by reader, then by source. Two graphs are equal when their edges are.
    """

    n_layers: int
    n_heads: int
    attn_only: bool = False
    parallel: bool = False
    """Attention and MLP of a layer read the same stream, so heads do not feed their layer's MLP."""
    granularity: Granularity | str = "head"

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise InputError(
                f"granularity={self.granularity!r} is not known: use 'head' (every head apart), "
                "'layer' (a layer's heads merged) or 'layer-qkv' (merged, but q, k and v apart)"
            )

    @classmethod
    def of(cls, model: Any, granularity: Granularity | str = "head") -> "Graph":
        """Reads the graph of a model from its configuration.

        Args:
            model: a HookedTransformer, or anything with such a `cfg`.
            granularity: "head": every head apart, each with its q, k and v (2 layers of one head
                make 23 edges); "layer": a layer's heads merged into `A0`, which reads q, k and v
                together (15 edges); "layer-qkv": merged, with `A0.q`, `A0.k` and `A0.v` apart (23).

        Returns:
            The graph.

        Raises:
            InputError: the model has no such configuration, or the granularity is unknown.
        """
        cfg = getattr(model, "cfg", None)
        if cfg is None or not hasattr(cfg, "n_layers") or not hasattr(cfg, "n_heads"):
            raise InputError(
                f"model={type(model).__name__} has no cfg with n_layers and n_heads: "
                "pass a TransformerLens HookedTransformer"
            )
        return cls(
            n_layers=int(cfg.n_layers),
            n_heads=int(cfg.n_heads),
            attn_only=bool(getattr(cfg, "attn_only", False)),
            parallel=bool(getattr(cfg, "parallel_attn_mlp", False)),
            granularity=granularity,
        )

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Sources in the order in which they write."""
        nodes = [Node("embed", -1)]
        for layer in range(self.n_layers):
            if self.granularity == "head":
                nodes += [Node("head", layer, head) for head in range(self.n_heads)]
            else:
                nodes.append(Node("attn", layer))
            if not self.attn_only:
                nodes.append(Node("mlp", layer))
        return tuple(nodes)

    @cached_property
    def readers(self) -> tuple[Reader, ...]:
        """Readers in the order in which they read."""
        readers: list[Reader] = []
        for layer in range(self.n_layers):
            readers += self._attention_readers(layer)
            if not self.attn_only:
                readers.append(Reader("mlp", layer))
        return (*readers, Reader("logits", self.n_layers))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, ordered by reader and then by source."""
        return tuple(
            Edge(source, reader)
            for reader in self.readers
            for source in self.nodes
            if self._reads(reader, source)
        )

    def edge(self, edge: str | Edge) -> Edge:
        """Finds an edge by its name.

        Raises:
            InputError: no such edge here; the message lists near matches.
        """
        found = self._by_name.get(str(edge))
        if found is None:
            raise InputError(
                f"edge {str(edge)!r} is not in this graph of {len(self.edges)} edges; "
                f"near matches: {near_matches(str(edge), self._by_name)}"
            )
        return found

    def select(self, edges: Any) -> tuple[Edge, ...]:
        """Finds edges by name, in the order given; None stands for all of them.

        Args:
            edges: names or edges, or None.

        Raises:
            InputError: an unknown or a repeated edge, or a bare string.
        """
        if edges is None:
            return self.edges
        if isinstance(edges, str):
            raise InputError(f"edges={edges!r} is one string: pass a list of edge names")
        if not has_entries(edges):
            raise InputError(f"edges={edges} is one {type(edges).__name__}: pass a list of edges")
        chosen = tuple(self.edge(edge) for edge in edges)
        repeated = [edge.name for i, edge in enumerate(chosen) if edge in chosen[:i]]
        if repeated:
            raise InputError(f"edges lists {repeated[0]!r} twice: name each edge once")
        return chosen

    def to_json(self) -> dict[str, Any]:
        """Plain values from which `from_json` makes an equal graph."""
        return {
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "attn_only": self.attn_only,
            "parallel": self.parallel,
            "granularity": self.granularity,
        }

    @classmethod
    def from_json(cls, values: Any) -> "Graph":
        """The graph that `to_json` described.

        Raises:
            InputError: a field is missing, unknown or of another type, or the graph would have
                more than `MOST_EDGES` edges.
        """
        kinds = {"attn_only": bool, "parallel": bool, "granularity": str}
        kinds |= {"n_layers": int, "n_heads": int}
        if not isinstance(values, dict) or {"n_layers", "n_heads"} - set(values):
            raise InputError(
                f"graph JSON {str(values)[:60]!r} does not describe a graph: "
                "it needs n_layers and n_heads"
            )
        for name, value in values.items():
            if name not in kinds or type(value) is not kinds[name]:
                raise InputError(
                    f"graph JSON has {name[:40]!r} = {str(value)[:40]!r}; its fields are "
                    + ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
                )
        return bounded(cls(**values))

    @cached_property
    def _by_name(self) -> dict[str, Edge]:
        return {edge.name: edge for edge in self.edges}

    def _attention_readers(self, layer: int) -> list[Reader]:
        inputs: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")
        if self.granularity == "layer":
            return [Reader("attn", layer)]
        if self.granularity == "layer-qkv":
            return [Reader("attn", layer, None, x) for x in inputs]
        return [Reader("head", layer, head, x) for head in range(self.n_heads) for x in inputs]

    def _reads(self, reader: Reader, source: Node) -> bool:
        if source.layer < reader.layer:
            return True
        same_layer_attention = source.layer == reader.layer and source.kind in ("head", "attn")
        return reader.kind == "mlp" and same_layer_attention and not self.parallel


@dataclass(frozen=True)
class Circuit:
    """A set of a graph's edges; the other edges are cut.

    Sets combine with `|`, `&`, `-`, `^` and `~` (complement), all on one graph.
    """

    graph: Graph
    edges: frozenset[Edge]

    @classmethod
    def of(cls, graph: Graph, edges: Iterable[str | Edge] | None = None) -> "Circuit":
        """The circuit of the edges named; of all edges when none are given."""
        return cls(graph, frozenset(graph.select(edges)))

    def __post_init__(self) -> None:
        stray = sorted(edge.name for edge in self.edges if edge.name not in self.graph._by_name)
        if stray:
            self.graph.edge(stray[0])

    def __len__(self) -> int:
        return len(self.edges)

    def __iter__(self) -> Iterator[Edge]:
        return (edge for edge in self.graph.edges if edge in self.edges)

    def __contains__(self, edge: str | Edge) -> bool:
        return self.graph.edge(edge) in self.edges

    def __or__(self, other: "Circuit") -> "Circuit":
        return Circuit(self.graph, self.edges | self._same_graph(other).edges)

    def __and__(self, other: "Circuit") -> "Circuit":
        return Circuit(self.graph, self.edges & self._same_graph(other).edges)

    def __sub__(self, other: "Circuit") -> "Circuit":
        return Circuit(self.graph, self.edges - self._same_graph(other).edges)

    def __xor__(self, other: "Circuit") -> "Circuit":
        return Circuit(self.graph, self.edges ^ self._same_graph(other).edges)

    def __invert__(self) -> "Circuit":
        return Circuit(self.graph, frozenset(self.graph.edges) - self.edges)

    def __le__(self, other: "Circuit") -> bool:
        return self.edges <= self._same_graph(other).edges

    @property
    def names(self) -> list[str]:
        """Names of the edges in causal order."""
        return [edge.name for edge in self]

    def jaccard(self, other: "Circuit") -> float:
        """Shared edges over all edges of the two; 1.0 for two empty circuits."""
        union = len(self | other)
        return len(self & other) / union if union else 1.0

    def connected(self) -> "Circuit":
        """Drops, to a fixed point, edges that lie on no path from `embed` to `logits`.

        An edge stays when its source has an edge coming in (or is `embed`) and its reader's node
        has an edge going out (or is `logits`).
        """
        edges = self.edges
        while True:
            fed = {edge.reader.node for edge in edges} | {"embed"}
            heard = {edge.source.name for edge in edges} | {None}
            kept = frozenset(e for e in edges if e.source.name in fed and e.reader.node in heard)
            if kept == edges:
                return Circuit(self.graph, edges)
            edges = kept

    def to_json(self) -> str:
        """One JSON object with the graph and the edge names in causal order."""
        return json.dumps({"graph": self.graph.to_json(), "edges": self.names})

    @classmethod
    def from_json(cls, text: str) -> "Circuit":
        """The circuit that `to_json` wrote.

        Raises:
            InputError: not such a JSON object, or it names an edge that its graph lacks.
        """
        try:
            values = json.loads(text)
            graph, edges = values["graph"], values["edges"]
            if not isinstance(edges, list) or not all(isinstance(edge, str) for edge in edges):
                raise TypeError("edges are a list of names")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                "circuit JSON must be an object with 'graph' and 'edges', as Circuit.to_json writes"
            ) from error
        return cls.of(Graph.from_json(graph), edges)

    def _same_graph(self, other: "Circuit") -> "Circuit":
        if self.graph != other.graph:
            raise InputError(
                f"circuits of two graphs do not combine: {self.graph.to_json()} and "
                f"{other.graph.to_json()}"
            )
        return other


def bounded(graph: Graph) -> Graph:
    """Gives a graph back that was described by a file, before its edges are listed.

    Raises:
        InputError: it has no layer or no head, or more than `MOST_EDGES` edges.
    """
    if graph.n_layers < 1 or graph.n_heads < 1:
        raise InputError(
            f"a graph of {graph.n_layers} layers with {graph.n_heads} heads: at least 1 of each"
        )
    each = graph.n_heads if graph.granularity == "head" else 1
    n_edges = graph.n_layers * (graph.n_layers + 1) // 2 * (each + 1) * (3 * each + 1)
    if n_edges > MOST_EDGES:
        raise InputError(
            f"a graph of {graph.n_layers} layers with {graph.n_heads} heads has about "
            f"{n_edges:.2g} edges; at most {MOST_EDGES:,} are read from a file"
        )
    return graph
