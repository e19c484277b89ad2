"""Does one checkpoint's circuit do the work in another?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation
from circuits.circuit_measure import CircuitMeasure, check_circuit
from circuits.graph import Circuit
from circuits.intervals import mean_interval
from circuits.metrics import Metric
from circuits.prepared import prepare
from circuits.random_circuits import random_circuits
from circuits.recovery import recovered
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class Transfer:
    """A circuit of one model, run in another.

    Attributes:
        table: rows "full", "transferred", "own" (when given), "random" and "empty", with columns
            `circuit, size, value` (the metric, mean over examples) with `low, high`, and
            `recovered`, NaN with a `note` where the gap between full and empty is not clear. For
            "random" the value is the mean over random circuits, and low and high hold 90 % of them.
        as_good: share of the random circuits (as many edges into each kind of reader of each layer)
            whose metric is as low as the transferred circuit's or lower.
        per_example: the metric on the transferred circuit.
        provenance: what it was computed with.
    """

    table: pd.DataFrame
    as_good: float
    per_example: Float[Tensor, " batch"] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __getitem__(self, circuit: str) -> pd.Series:
        """One row of the table."""
        return self.table.set_index("circuit").T[circuit]


def transfer(
    circuit: Circuit,
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric = "kl",
    *,
    own: Circuit | None = None,
    ablation: Ablation = "mean",
    corrupt: Int[Tensor, "batch pos"] | None = None,
    scored: Sequence[int] | None = None,
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    n_random: int = 20,
    seed: int = 0,
) -> Transfer:
    """Says whether a circuit found in one model does the work in another, of the same shape.

    Two circuits can differ in their edges and do the same, so Jaccard alone cannot say that a
    mechanism moved. Here the edges found elsewhere are kept in this model and all others cut; the
    model's own circuit, and random circuits of the same size and layers, are beside it. Edge scores
    transfer as circuits too (`top_circuit`), and by rank with `agreement`.

    Args:
        circuit: of the other model.
        model: the model it is tried in; it is left exactly as found.
        clean: token ids, as for `edge_effects`.
        metric: as for `edge_effects`; `as_good` takes smaller values as better.
        own: a circuit of this model, to compare with.
        ablation: what replaces outputs on cut edges.
        corrupt: for `ablation="patch"`.
        scored: positions whose logits the metric reads; None for all.
        attention_mask: 0 at padding.
        n_random: random circuits.
        seed: of the random circuits, the partners under "resample" and the intervals.

    Returns:
        Values and shares recovered.

    Raises:
        InputError: as `edge_effects`; a circuit of a model of another shape.
    """
    check_circuit("circuit", circuit, model)
    circuits = {"full": Circuit.of(circuit.graph), "transferred": circuit}
    if own is not None:
        check_circuit("own", own, model)
        circuits["own"] = own
    circuits["empty"] = Circuit.of(circuit.graph, [])
    with undisturbed(model):
        prepared = prepare(
            model,
            clean,
            metric,
            graph=circuit.graph,
            ablation=ablation,
            corrupt=corrupt,
            scored=scored,
            attention_mask=attention_mask,
            seed=seed,
        )
        measure = CircuitMeasure.of(prepared)
        values = {name: measure.values(measure.run(one)) for name, one in circuits.items()}
        drawn = random_circuits(circuit, n_random, seed, same_layers=True)
        means = [measure.values(measure.run(one)).double().mean().item() for one in drawn]
    rows = [
        _row(name, len(one), values[name], values["full"], values["empty"], seed)
        for name, one in circuits.items()
    ]
    if means:
        rows.insert(-1, _random_row(len(circuit), means, rows[0]["value"], rows[-1]))
    mine = values["transferred"].double().mean().item()
    return Transfer(
        table=pd.DataFrame(rows),
        as_good=sum(m <= mine for m in means) / len(means) if means else float("nan"),
        per_example=values["transferred"],
        provenance=prepared.provenance | {"circuit": circuit.names, "n_random": n_random},
    )


def _row(
    name: str, size: int, values: Tensor, full: Tensor, empty: Tensor, seed: int
) -> dict[str, Any]:
    mean, low, high = mean_interval(values, seed=seed)
    share = recovered(values, full, empty, seed)
    return {
        "circuit": name,
        "size": size,
        "value": mean.item(),
        "low": low.item(),
        "high": high.item(),
        "recovered": share.value,
        "note": share.note,
    }


def _random_row(
    size: int, means: list[float], full: float, empty: dict[str, Any]
) -> dict[str, Any]:
    all_means = torch.tensor(means, dtype=torch.float64)
    mean = all_means.mean().item()
    share = float("nan") if empty["note"] else (mean - empty["value"]) / (full - empty["value"])
    return {
        "circuit": "random",
        "size": size,
        "value": mean,
        "low": all_means.quantile(0.05).item(),
        "high": all_means.quantile(0.95).item(),
        "recovered": share,
        "note": empty["note"],
    }
