"""The answer of the symmetric model in words: biases, descents, the time of the cliff, its law."""

import math

import numpy as np
import pandas as pd
from scipy.stats import t as student

from analyses.catalogue import SymmetricModel
from analyses.rows import Row, numbers, records

NORMAL = 1.959964

MIN_LENGTHS = 3
"""Different lengths that a law needs."""


def mean_taus(taus: pd.DataFrame) -> pd.DataFrame:
    """Mean tau at each length over samples: `length`, `tau`, `low`, `high` (95 %, Student's t; NaN
    for one sample), `reached` (samples with a cliff) and `samples`."""
    rows = []
    for length, group in taus.groupby("length"):
        values = numbers(group, "tau")
        values = values[np.isfinite(values)]
        n, half = len(values), math.nan
        if n > 1:
            half = float(student.ppf(0.975, n - 1)) * values.std(ddof=1) / math.sqrt(n)
        mean = float(values.mean()) if n else math.nan
        row = {"length": length, "tau": mean, "low": mean - half, "high": mean + half}
        rows.append({**row, "reached": n, "samples": len(group)})
    return pd.DataFrame(rows)


def report(request: SymmetricModel, tables: dict[str, pd.DataFrame]) -> list[str]:
    """Puts the tables of `analyses.symmetric_model` in lines, with units and intervals."""
    lines = [
        f"symmetric model: C = {request.n_states}, {request.chains} fresh chains a sample, "
        f"{request.samples} samples, mu = {request.mu:g}; intervals 95 %",
        "biases (nats)     N  mu    c_beta (interval)             c_delta (interval)            "
        "closed form",
    ]
    for row in records(tables["biases"]):
        known = row["mu"] == 0 and request.dirichlet == 1
        closed = f"{row['closed_form']:.5f}" if known else "-"
        lines.append(
            f"  {row['length']:>15.0f} {row['mu']:4.2g}  {_bias(row, 'c_beta')}  "
            f"{_bias(row, 'c_delta')}  {closed}"
        )
    growth = records(tables["growth"])[0]
    seen, limit = (_range(growth[n], growth[f"{n}_se"]) for n in ("growth", "limit"))
    lines.append(
        f"N c_beta grows with ln N by {seen} from N = {growth['short']} to {growth['long']}; the "
        f"limit in closed form is {limit}"
    )
    lines.append(f"descent at N = {request.length}, time in learning rate times steps")
    lines += [f"  {_removal_line(row)}" for row in records(tables["removals"])]
    lines.append("time of the cliff      N  tau (interval over samples of chains)")
    lines += [f"  {_tau_line(row)}" for row in records(mean_taus(tables["taus"]))]
    if "laws" in tables:
        lines += [_law_line(row) for row in records(tables["laws"])]
    else:
        lines.append(
            f"fewer than {MIN_LENGTHS} lengths have a cliff, so there is no law: give more --steps"
        )
    least = records(tables["landscape"].nsmallest(1, "excess"))[0]
    lines.append(
        f"landscape: least KL to the truth {least['excess']:.4f} nats on the grid, at beta "
        f"{least['beta']:.2g} and delta {least['delta']:.2g}"
    )
    return lines


def _bias(row: Row, name: str) -> str:
    return f"{row[name]:.5f} ({row[f'{name}_low']:.5f} to {row[f'{name}_high']:.5f})"


def _range(value: float, se: float) -> str:
    return f"{value:.3f} ({value - NORMAL * se:.3f} to {value + NORMAL * se:.3f})"


def _removal_line(row: Row) -> str:
    what = "nothing removed" if row["removed"] == "none" else f"{row['removed']} removed"
    if row["reached"]:
        return f"{what}: cliff at {row['tau']:.4g}, drop {row['drop']:.4f} nats"
    return f"{what}: no cliff by {row['waited']:.4g}"


def _tau_line(row: Row) -> str:
    text = f"{row['length']:>21.0f}  {row['tau']:.4g}"
    if not math.isnan(row["low"]):
        text += f" ({row['low']:.4g} to {row['high']:.4g})"
    missed = row["samples"] - row["reached"]
    return text + (f"; {missed} samples without a cliff" if missed else "")


def _law_line(row: Row) -> str:
    name = {"n_over_log": "N / ln N", "length": "N"}.get(row["x"], row["x"])
    text = f"tau against {name}: exponent {row['exponent']:.3f}"
    if math.isnan(row["low"]):
        text += ", no interval from one sample"
    else:
        text += f" ({row['low']:.3f} to {row['high']:.3f})"
    return f"{text}, largest deviation {row['worst']:.1%}"
