"""Taking edges away one step at a time, every step checked by a real run."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from circuits.circuit_measure import CircuitMeasure
from circuits.circuit_model import CircuitRun
from circuits.curvature import curvature_costs
from circuits.errors import InputError
from circuits.graph import Circuit, Edge

N_DRAWS = 4
Progress = Callable[[int, float], None]
"""Called with the number of edges left and the excess after every removal."""


@dataclass(frozen=True)
class Kept:
    """A circuit within the budget; one object, so that Ctrl-C finds either the old or the new."""

    circuit: Circuit
    run: CircuitRun
    values: Float[Tensor, " batch"]
    log: tuple[tuple[str, str, float], ...] = ()

    @property
    def excess(self) -> float:
        """Mean over examples."""
        return self.values.double().mean().item()


class Removal:
    """Removes edges; every change of what is kept has been checked against the budget."""

    def __init__(
        self,
        measure: CircuitMeasure,
        budget: float,
        start: Circuit | None,
        progress: Progress | None,
    ) -> None:
        self.measure, self.budget, self.progress = measure, budget, progress
        graph = measure.prepared.graph
        circuit = Circuit.of(graph) if start is None else Circuit(graph, start.edges)
        run = measure.run(circuit.edges)
        self.kept = Kept(circuit, run, self._excess_of(run))
        self.costs: dict[Edge, float] = {}
        if start is None:  # Rounding apart, the full graph is the model itself.
            return
        if self.kept.excess > budget:
            raise InputError(
                f"start has an excess of {self.kept.excess:.4g}, beyond the budget of {budget}: "
                "raise the budget or start from a larger circuit"
            )
        connected = self._without([])
        if connected.circuit != circuit and not self._accept(connected, budget, "start"):
            raise InputError(
                f"start without its dangling edges has an excess of {connected.excess:.4g}, beyond "
                f"the budget of {budget}: raise the budget or start from a larger circuit"
            )

    def in_rounds(self, rounds: int, estimated: bool, seed: int) -> None:
        """Removes prefixes of the edges ordered by cost, found anew every round."""
        for number in range(1, rounds + 1):
            costs = self._estimated_costs(seed + number) if estimated else self._measured_costs()
            self.costs = costs
            ordered = sorted(self.kept.circuit, key=lambda edge: costs[edge])
            self._longest_prefix(ordered, self.budget * number / rounds, f"round {number}")

    def one_by_one(self) -> None:
        """Removes single edges, cheapest first, until each was tried in vain since the last."""
        waiting = deque(sorted(self.kept.circuit, key=lambda edge: self.costs[edge]))
        in_vain = 0
        while in_vain < len(waiting):
            edge = waiting.popleft()
            if self._accept(self._without([edge]), self.budget, "one by one"):
                waiting = deque(e for e in waiting if e in self.kept.circuit.edges)
                in_vain = 0
            else:
                waiting.append(edge)
                in_vain += 1

    def plain_greedy(self) -> None:
        """Removes the edge whose removal costs least, and measures all again."""
        while len(self.kept.circuit):
            costs = self._measured_costs()
            edge = min(self.kept.circuit, key=lambda e: costs[e])
            if not self._accept(self._without([edge]), self.budget, "greedy"):
                return

    def _longest_prefix(self, ordered: list[Edge], limit: float, stage: str) -> None:
        """Removes as many of the first edges as stay within the limit, by bisection."""
        best, fits, too_many = self.kept, 0, len(ordered) + 1
        while too_many - fits > 1:
            n = (fits + too_many) // 2
            rest = self._without(ordered[:n])
            if rest.excess <= limit:
                best, fits = rest, n
            else:
                too_many = n
        if fits:
            self._accept(best, limit, stage)

    def _estimated_costs(self, seed: int) -> dict[Edge, float]:
        """About the excess after removing each remaining edge alone, less the present one."""
        found = curvature_costs(self.measure, self.kept.run, N_DRAWS, seed).double().mean(-1)
        return dict(zip(self.kept.circuit.graph.edges, found.tolist(), strict=True))

    def _measured_costs(self) -> dict[Edge, float]:
        """The excess after removing each remaining edge alone."""
        return {edge: self._without([edge]).excess for edge in self.kept.circuit}

    def _without(self, edges: Iterable[Edge]) -> Kept:
        """What would be kept after removing some edges and all that then dangles."""
        circuit = self.kept.circuit
        rest = (circuit - Circuit(circuit.graph, frozenset(edges))).connected()
        run = self.measure.run(rest.edges, self.kept.run)
        return Kept(rest, run, self._excess_of(run))

    def _excess_of(self, run: CircuitRun) -> Tensor:
        return self.measure.values(run) - self.measure.prepared.baseline

    def _accept(self, rest: Kept, limit: float, stage: str) -> bool:
        """Keeps only the rest, if that is within the limit."""
        if rest.excess > limit:
            return False
        gone = (self.kept.circuit - rest.circuit).names
        log = (*self.kept.log, *((name, stage, rest.excess) for name in gone))
        self.kept = replace(rest, log=log)
        if self.progress is not None:
            self.progress(len(rest.circuit), rest.excess)
        return True
