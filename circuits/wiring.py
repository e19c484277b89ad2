"""The edges of a graph as entries of a matrix of readers by nodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.graph import Edge, Graph, Node, Reader
from circuits.streams import simple_edges


@dataclass(frozen=True)
class Wiring:
    """The edges of a graph as entries of a matrix of readers by nodes, heads apart."""

    graph: Graph

    @cached_property
    def heads_apart(self) -> Graph:
        """The same model's graph at head granularity."""
        shape = self.graph.to_json() | {"granularity": "head"}
        return Graph.from_json(shape)

    @cached_property
    def nodes(self) -> dict[Node, int]:
        """Columns."""
        return {node: i for i, node in enumerate(self.heads_apart.nodes)}

    @cached_property
    def readers(self) -> dict[Reader, int]:
        """Rows."""
        return {reader: i for i, reader in enumerate(self.heads_apart.readers)}

    @cached_property
    def entries(self) -> dict[Edge, list[tuple[int, int]]]:
        """Entries (row, column) that an edge stands for: one, or several of merged heads."""
        return {
            edge: [
                (self.readers[reader], self.nodes[node])
                for node, reader in simple_edges(edge, self.graph.n_heads)
            ]
            for edge in self.graph.edges
        }

    def kept(self, edges: Iterable[Edge], share: float = 1.0) -> Float[Tensor, "reader node"]:
        """A matrix with `share` at these edges and 0 elsewhere."""
        matrix, width = torch.zeros(len(self.readers), len(self.nodes)), len(self.nodes)
        entries = [row * width + column for edge in edges for row, column in self.entries[edge]]
        matrix.view(-1)[entries] = share
        return matrix

    def gather(self, matrix: Float[Tensor, "reader node *rest"]) -> Float[Tensor, "edge *rest"]:
        """Sums a matrix of readers by nodes over each edge's entries, in the graph's order."""
        rows = [torch.tensor(self.entries[edge]).unbind(-1) for edge in self.graph.edges]
        return torch.stack([matrix[row, column].sum(0) for row, column in rows])
