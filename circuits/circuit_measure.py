"""A metric, measured on any circuit of one model and batch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit_model import CircuitModel, CircuitRun
from circuits.circuit_run import run_circuit
from circuits.edge_plan import Plan
from circuits.errors import InputError
from circuits.graph import Circuit, Edge, Graph
from circuits.prepared import Prepared
from circuits.streams import cuts_of
from circuits.wiring import Wiring


@dataclass(frozen=True)
class CircuitMeasure:
    """Runs circuits and measures them.

    Attributes:
        prepared: the checked input and the metric.
        model: the factored model that circuits are run with.
        memory_budget: bytes that measuring all edges may take; None for 2 GiB.
    """

    prepared: Prepared
    model: CircuitModel
    memory_budget: int | None = None

    @classmethod
    def of(cls, prepared: Prepared, memory_budget: int | None = None) -> "CircuitMeasure":
        """From checked input."""
        model = CircuitModel(
            weights=prepared.weights,
            batch=prepared.clean.batch,
            wiring=Wiring(prepared.graph),
            value=prepared.replacements.value,
            scored=prepared.wanted,
        )
        return cls(prepared, model, memory_budget)

    def run(self, edges: Iterable[Edge], previous: CircuitRun | None = None) -> CircuitRun:
        """Runs the circuit of these edges; with an earlier run, recomputes what differs."""
        return run_circuit(self.model, self.model.wiring.kept(edges), previous)

    def logits(self, run: CircuitRun) -> Float[Tensor, "batch scored d_vocab"]:
        """A run's logits in the order in which positions were asked for."""
        return in_order(self.prepared, run.logits)

    def values(self, run: CircuitRun) -> Float[Tensor, " batch"]:
        """The metric on a run."""
        return self.prepared.metric(self.logits(run))

    def each_removed(self, circuit: Circuit) -> Float[Tensor, "edge batch"]:
        """The metric on a circuit without each of its edges alone, in the circuit's order."""
        prepared = self.prepared
        base = prepared.cut(cuts_of((~circuit).edges, prepared.weights.n_heads))
        baseline = prepared.metric(prepared.at_scored(base.logits))
        within = replace(prepared, base=base, baseline=baseline)
        return Plan(within, tuple(circuit), None, self.memory_budget).run() + baseline


def in_order(
    prepared: Prepared, logits: Float[Tensor, "batch scored d_vocab"]
) -> Float[Tensor, "batch scored d_vocab"]:
    """Logits at ascending positions, in the order in which they were asked for."""
    if prepared.scored == prepared.wanted:
        return logits
    order = [prepared.wanted.index(position) for position in prepared.scored]
    return logits.index_select(1, torch.tensor(order, device=logits.device))


def check_circuit(name: str, circuit: Any, model: Any) -> None:
    """Raises InputError when a circuit belongs to a model of another shape.

    Args:
        name: of the argument, for the message.
        circuit: any circuit.
        model: the model that it is to be run on.
    """
    if not isinstance(circuit, Circuit):
        raise InputError(f"{name} is {type(circuit).__name__}: give a Circuit")
    graph = Graph.of(model, circuit.graph.granularity)
    if graph != circuit.graph:
        raise InputError(
            f"{name} belongs to a model of another shape ({circuit.graph.to_json()}) than this one "
            f"({graph.to_json()}): build it on Graph.of(model)"
        )
