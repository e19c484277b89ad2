"""Does a circuit do what the model does? KL, loss and accuracy recovered, and random controls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation
from circuits.circuit_measure import CircuitMeasure, check_circuit
from circuits.graph import Circuit
from circuits.intervals import mean_interval
from circuits.measures import measures_of
from circuits.metrics import Metric, MetricCallable
from circuits.prepared import prepare
from circuits.random_circuits import random_circuits
from circuits.recovery import Recovered, recovered
from circuits.side_by_side import side_by_side, workers_on
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class Faithfulness:
    """How faithful a circuit is.

    Attributes:
        table: one row a measure ("kl", "loss", "accuracy", and the metric asked for when it is
            none of them), with the columns
            `measure`;
            `full, circuit, complement, empty`: the mean over examples with all edges, with the
            circuit's only, with all others only, and with none;
            `low, high`: 95 % bootstrap interval of `circuit`;
            `recovered`: (circuit - empty) / (full - empty), 1 for a perfect circuit, with
            `recovered_low, recovered_high`; `complement_recovered`: the same of the complement.
            They are NaN, and `note` says "undefined: ...", where full - empty is not clearly above
            its noise.
        controls: random circuits with as many edges: `kind` ("uniform", or "same layers": as many
            edges as the circuit has into each kind of reader of each layer), `measure`, `mean`,
            `low, high` (5 and 95 % of them) and `as_good`, the share of them that are as good as
            the circuit or better; an empty frame when none were asked for.
        per_example: for each measure, the values of the circuit's run.
        provenance: what it was computed with.
    """

    table: pd.DataFrame
    controls: pd.DataFrame
    per_example: dict[str, Float[Tensor, " batch"]] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __getitem__(self, measure: str) -> pd.Series:
        """One measure's row of the table."""
        return self.table.set_index("measure").T[measure]


def faithfulness(
    model: Any,
    circuit: Circuit,
    clean: Int[Tensor, "batch pos"],
    metric: Metric = "kl",
    *,
    ablation: Ablation = "mean",
    corrupt: Int[Tensor, "batch pos"] | None = None,
    scored: Sequence[int] | None = None,
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    n_random: int = 20,
    seed: int = 0,
) -> Faithfulness:
    """Says how well a circuit alone, all other edges cut, does what the whole model does.

    Raw values come first: KL(p_full || p_circuit) in nats, the loss (cross-entropy of the next
    token, nats), accuracy (share of scored positions whose most likely token is the next one), and
    the metric. A share recovered is given only where the gap between the full and the empty circuit
    is at least three standard errors wide; see `recovery.py`.

    It costs about 4 + 2 `n_random` runs of one or two plain forward passes each.

    Args:
        model: a HookedTransformer; it is left exactly as found.
        circuit: edges that are kept.
        clean: token ids. Loss and accuracy use the scored positions whose next token is there.
        metric: as for `edge_effects`.
        ablation: what replaces outputs on cut edges.
        corrupt: for `ablation="patch"`.
        scored: positions whose logits are read; None for all.
        attention_mask: 0 at padding.
        n_random: random circuits of each kind; 0 for none.
        seed: of the random circuits, the partners under "resample" and the intervals.

    Returns:
        Tables of values, shares recovered and controls.

    Raises:
        InputError: as `edge_effects`; a circuit of a model of another shape.
    """
    check_circuit("circuit", circuit, model)
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
        measures = measures_of(prepared, metric, clean, attention_mask)
        circuits = {
            "full": Circuit.of(circuit.graph),
            "circuit": circuit,
            "complement": ~circuit,
            "empty": Circuit.of(circuit.graph, []),
        }
        found = _values(measure, measures, list(circuits.values()))
        runs = dict(zip(circuits, found, strict=True))
        return Faithfulness(
            table=pd.DataFrame([_row(name, runs, seed) for name in measures]),
            controls=_controls(measure, measures, circuit, runs["circuit"], n_random, seed),
            per_example=runs["circuit"],
            provenance=prepared.provenance | {"circuit": circuit.names, "n_random": n_random},
        )


def _values(
    measure: CircuitMeasure,
    measures: dict[str, Callable[[Tensor], Tensor]],
    circuits: Sequence[Circuit],
) -> list[dict[str, Tensor]]:
    """Every measure of every circuit."""
    found: dict[int, dict[str, Tensor]] = {}
    one_at_a_time = Lock()  # The metric may be the caller's own, who need not think of threads.

    def run(number: int) -> None:
        logits = measure.logits(measure.run(circuits[number].edges))
        with one_at_a_time:
            found[number] = {name: function(logits) for name, function in measures.items()}

    workers = workers_on(measure.prepared.baseline.device)
    side_by_side(run, range(len(circuits)), workers)
    return [found[number] for number in range(len(circuits))]


def _row(name: str, runs: dict[str, dict[str, Tensor]], seed: int) -> dict[str, Any]:
    values = {which: of[name] for which, of in runs.items()}
    _, low, high = mean_interval(values["circuit"], seed=seed)
    share = recovered(values["circuit"], values["full"], values["empty"], seed)
    other: Recovered = recovered(values["complement"], values["full"], values["empty"], seed)
    return {
        "measure": name,
        **{which: value.double().mean().item() for which, value in values.items()},
        "low": low.item(),
        "high": high.item(),
        "recovered": share.value,
        "recovered_low": share.low,
        "recovered_high": share.high,
        "complement_recovered": other.value,
        "note": share.note,
    }


def _controls(
    measure: CircuitMeasure,
    measures: dict[str, MetricCallable],
    circuit: Circuit,
    own: dict[str, Tensor],
    n_random: int,
    seed: int,
) -> pd.DataFrame:
    rows = []
    for kind, same_layers in (("uniform", False), ("same layers", True)):
        drawn = random_circuits(circuit, n_random, seed, same_layers)
        values = _values(measure, measures, drawn)
        for name in measures if values else ():
            means = torch.stack([value[name].double().mean() for value in values])
            mine = own[name].double().mean()
            better = means >= mine if name == "accuracy" else means <= mine
            if name not in ("kl", "loss", "accuracy"):  # Which way is better is not known.
                better = torch.full_like(means, float("nan"))
            rows.append(
                {
                    "kind": kind,
                    "measure": name,
                    "mean": means.mean().item(),
                    "low": means.quantile(0.05).item(),
                    "high": means.quantile(0.95).item(),
                    "as_good": better.double().mean().item(),
                }
            )
    columns = ["kind", "measure", "mean", "low", "high", "as_good"]
    return pd.DataFrame(rows, columns=columns)
