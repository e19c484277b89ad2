"""A model and a batch, ready to be run as any circuit, and what such a run leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.attention_math import At, score_bias, take
from circuits.graph import Node, Reader
from circuits.model_weights import ModelWeights
from circuits.streams import Batch
from circuits.wiring import Wiring


@dataclass(frozen=True)
class CircuitRun:
    """One run of a circuit.

    Nodes and readers are numbered as in the wiring. `excess` is what a node writes beyond its
    replacement, so that cutting an edge takes the excess away and nothing else.
    """

    kept: Float[Tensor, "reader node"]
    excess: dict[int, Tensor]
    """By node, `"batch pos d_model"`; of the last layer's nodes at scored positions only."""
    late: dict[int, Tensor]
    """The same at scored positions, for nodes that somebody there reads."""
    inputs: dict[int, Tensor]
    """What readers read, by reader, where gradients are wanted."""
    logits: Float[Tensor, "batch scored d_vocab"]

    def excess_at(self, node: int, at: At) -> Float[Tensor, "batch at d_model"]:
        """A node's excess at all positions, or at the scored ones."""
        return excess_at(self.excess, self.late, node, at)


@dataclass(frozen=True)
class CircuitModel:
    """A model and a batch, ready to be run as any circuit.

    Attributes:
        weights: the model.
        batch: the tokens, embedded.
        wiring: of the graph that circuits are made of.
        value: what stands in for a node's output on a cut edge; `"batch pos d_model"`, or 1 for
            the batch.
        scored: positions whose logits are wanted, ascending.
    """

    weights: ModelWeights
    batch: Batch
    wiring: Wiring
    value: Callable[[Node], Tensor]
    scored: At
    _cache: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, rows: slice) -> "CircuitModel":
        """The same for some examples of the batch."""

        def value(node: Node) -> Tensor:
            whole = self.value(node)
            return whole if whole.shape[0] == 1 else whole[rows]

        batch = self.batch
        part = Batch(batch.tokens[rows], batch.embed[rows], batch.placement.rows(rows))
        return CircuitModel(self.weights, part, self.wiring, value, self.scored)

    @property
    def every(self) -> At:
        """All positions."""
        return tuple(range(self.batch.placement.n_pos))

    def reads_at(self, reader: Reader) -> At:
        """Positions at which what a reader reads can reach the logits wanted."""
        last = reader.layer >= self.weights.n_layers - 1
        return self.scored if last and reader.input not in ("k", "v") else self.every

    def base(self, reader: Reader) -> Tensor:
        """What a reader reads when all its edges are cut: replacements and attention's biases."""
        key = f"{reader.kind in ('mlp', 'logits')}{reader.layer}"
        if key not in self._cache:
            total = self._biases(reader)
            for edge in self.wiring.heads_apart.edges:
                if edge.reader == reader:
                    total = total + self.value(edge.source)
            self._cache[key] = total
        return self._cache[key]

    def bias(self, layer: int) -> Tensor:
        """What is added to a layer's attention scores."""
        key = f"scores {layer}"
        if key not in self._cache:
            self._cache[key] = score_bias(self.weights.attention[layer], self.batch.placement)
        return self._cache[key]

    def _biases(self, reader: Reader) -> Tensor:
        same = reader.kind == "mlp" and not self.weights.parallel
        passed = self.weights.attention[: reader.layer + same]
        return sum((a.b_O for a in passed), torch.zeros_like(self.weights.attention[0].b_O))


def excess_at(excess: dict[int, Tensor], late: dict[int, Tensor], node: int, at: At) -> Tensor:
    """A node's excess at all positions, or at the scored ones; the latter are kept in `late`."""
    whole = excess[node]
    if whole.shape[1] == len(at):
        return whole
    if node not in late:
        late[node] = take(whole, at)
    return late[node]
