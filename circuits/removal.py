"""Taking edges away one step at a time, every step checked by a real run."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from circuits.circuit_measure import CircuitMeasure
from circuits.circuit_model import CircuitRun
from circuits.errors import InputError
from circuits.graph import Circuit, Edge

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

    def in_rounds(self, most: int | None) -> bool:
        """Removes as many of the cheapest edges as fit, and measures all again, until none fits.

        Returns:
            Whether it came to that; False when it stopped after as many rounds as were allowed.
        """
        number = 0
        while most is None or number < most:
            number += 1
            ordered = self._fitting()
            if not ordered or not self._longest_prefix(ordered, f"round {number}"):
                return True
        return False

    def plain_greedy(self) -> bool:
        """Removes the edge whose removal costs least, and measures all again, until none fits."""
        while ordered := self._fitting():
            if not self._accept(self._without(ordered[:1]), self.budget, "greedy"):
                break
        return True

    def _fitting(self) -> list[Edge]:
        """Edges whose removal alone stays within the budget, the cheapest first."""
        costs = self._costs()
        return sorted(
            (e for e, cost in costs.items() if cost <= self.budget), key=costs.__getitem__
        )

    def _longest_prefix(self, ordered: list[Edge], stage: str) -> bool:
        """Removes as many of the first edges as stay within the budget, by bisection."""
        best, fits, too_many = self.kept, 0, len(ordered) + 1
        while too_many - fits > 1:
            n = (fits + too_many) // 2
            rest = self._without(ordered[:n])
            if rest.excess <= self.budget:
                best, fits = rest, n
            else:
                too_many = n
        return bool(fits) and self._accept(best, self.budget, stage)

    def _costs(self) -> dict[Edge, float]:
        """The excess after removing each remaining edge alone, and what then dangles.

        Cutting is enough where nobody is left without an input: what loses its last reader changes
        nothing more. A node that loses its last input falls silent, which has to be run.
        """
        circuit = self.kept.circuit
        alone = self.measure.each_removed(circuit) - self.measure.prepared.baseline
        costs = dict(zip(circuit, alone.double().mean(-1).tolist(), strict=True))
        inputs = Counter(edge.reader.node for edge in circuit)
        for edge in circuit:
            if inputs[edge.reader.node] == 1:
                costs[edge] = self._without([edge]).excess
        return costs

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
