"""How faithful are the circuits of the n largest effects, over n? With MIB's two areas."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation
from circuits.circuit_measure import CircuitMeasure, check_circuit
from circuits.edge_scores import EdgeScores, graph_of, top_circuit
from circuits.errors import InputError
from circuits.graph import Circuit, Graph
from circuits.intervals import mean_interval
from circuits.metrics import Metric
from circuits.prepared import prepare
from circuits.recovery import gap_note, recovered
from circuits.undisturbed import undisturbed

MIB_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Circuit sizes, as shares of all edges, at which the MIB benchmark evaluates."""


@dataclass(frozen=True)
class FaithfulnessCurve:
    """Faithfulness over circuit size.

    Attributes:
        table: one row a size, with the columns `share` (of all edges, as asked for), `size` (edges
            taken), `connected` (edges left of them on paths from `embed` to `logits`), `value` (the
            metric, mean over examples) with `low, high`, and `recovered` (0 for the empty circuit,
            1 for the full one) with `recovered_low, recovered_high`.
        cpr: area under `recovered` over `share` (MIB's circuit performance ratio); more is better.
        cmd: area between `recovered` and 1 (MIB's circuit-model distance); smaller is better.
        note: why shares and areas are undefined (NaN), where the gap between the full and the empty
            circuit is not clearly above its noise; else empty.
        per_example: the metric of every row.
        provenance: what it was computed with.
    """

    table: pd.DataFrame
    cpr: float
    cmd: float
    note: str
    per_example: Float[Tensor, "row batch"] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)


def faithfulness_curve(
    model: Any,
    effects: EdgeScores,
    clean: Int[Tensor, "batch pos"],
    metric: Metric = "kl",
    *,
    ablation: Ablation = "mean",
    corrupt: Int[Tensor, "batch pos"] | None = None,
    scored: Sequence[int] | None = None,
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    graph: Graph | None = None,
    shares: Sequence[float] = MIB_SHARES,
    absolute: bool = True,
    connected: bool = True,
    seed: int = 0,
) -> FaithfulnessCurve:
    """Measures the circuits of the largest effects, from few edges to all.

    A circuit of share s has the int(s * n_edges) edges of the largest effects. As in MIB (Mueller
    et al. 2025), effects are ranked by size, edges off every path from `embed` to `logits` are then
    dropped, shares are on a linear axis, and areas are by the trapezoid rule between the smallest
    and the largest share; with the default shares the largest possible CPR of a curve that stays
    within 1 is 0.999.

    Args:
        model: a HookedTransformer; it is left exactly as found.
        effects: one score for every edge, exact, approximate or imported.
        clean: token ids, as for `edge_effects`.
        metric: as for `edge_effects`.
        ablation: what replaces outputs on cut edges.
        corrupt: for `ablation="patch"`.
        scored: positions whose logits the metric reads; None for all.
        attention_mask: 0 at padding.
        graph: that the effects belong to; by default the one that they carry.
        shares: of all edges, between 0 and 1, ascending.
        absolute: rank by size, else by the signed effect.
        connected: drop edges off every path.
        seed: of the partners under "resample" and of the intervals.

    Returns:
        The curve and its areas.

    Raises:
        InputError: as `edge_effects`; effects that do not fit the graph, or bad shares.
    """
    graph = graph_of(effects) if graph is None else graph
    _check_shares(shares)
    check_circuit("effects", Circuit.of(graph, []), model)
    sizes = [int(share * len(graph.edges)) for share in shares]
    circuits = [top_circuit(effects, n, graph, absolute) for n in sizes]
    left = [circuit.connected() if connected else circuit for circuit in circuits]
    with undisturbed(model):
        prepared = prepare(
            model,
            clean,
            metric,
            graph=graph,
            ablation=ablation,
            corrupt=corrupt,
            scored=scored,
            attention_mask=attention_mask,
            seed=seed,
        )
        measure = CircuitMeasure.of(prepared)
        full, empty = (measure.values(measure.run(c)) for c in (graph.edges, ()))
        values = [measure.values(measure.run(circuit)) for circuit in left]
    rows = [
        {"share": float(s), "size": n, "connected": len(c)} | _row(v, full, empty, seed)
        for s, n, c, v in zip(shares, sizes, left, values, strict=True)
    ]
    table = pd.DataFrame(rows)
    cpr, cmd = areas(list(table["share"]), list(table["recovered"]))
    gap = (full - empty).double()
    return FaithfulnessCurve(
        table=table,
        cpr=cpr,
        cmd=cmd,
        note=gap_note(gap, max(full.abs().max().item(), empty.abs().max().item())),
        per_example=_stack(values),
        provenance=prepared.provenance | {"shares": list(shares), "connected": connected},
    )


def areas(shares: Sequence[float], recovered: Sequence[float]) -> tuple[float, float]:
    """CPR and CMD: the areas under f and under |1 - f| by the trapezoid rule.

    Args:
        shares: of all edges, ascending.
        recovered: f at each share.

    Returns:
        Both areas; NaN where an f is.
    """
    under = distance = 0.0
    for i in range(len(shares) - 1):
        width = shares[i + 1] - shares[i]
        under += width * (recovered[i] + recovered[i + 1]) / 2
        distance += width * (abs(1 - recovered[i]) + abs(1 - recovered[i + 1])) / 2
    return under, distance


def _check_shares(shares: Sequence[float]) -> None:
    ascending = all(a < b for a, b in pairwise(shares))
    if len(shares) < 2 or not ascending or shares[0] < 0 or shares[-1] > 1:
        raise InputError(
            f"shares={list(shares)} must be two or more ascending numbers between 0 and 1"
        )


def _row(values: Tensor, full: Tensor, empty: Tensor, seed: int) -> dict[str, float]:
    mean, low, high = mean_interval(values, seed=seed)
    share = recovered(values, full, empty, seed)
    return {
        "value": mean.item(),
        "low": low.item(),
        "high": high.item(),
        "recovered": share.value,
        "recovered_low": share.low,
        "recovered_high": share.high,
    }


def _stack(values: list[Tensor]) -> Tensor:
    return values[0].new_tensor([value.tolist() for value in values])
