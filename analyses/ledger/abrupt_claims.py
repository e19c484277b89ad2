"""The claim about the change from 1-Gen to 2-Gen: is it abrupt?"""

import math

import numpy as np
import pandas as pd

from analyses.ledger.chain_runs import CHAINS, log_of
from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import below, shown
from analyses.ledger.seeds import (
    over_seeds,
    scale_of,
    seeds_in,
)
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import numbers

SHARE = 0.8
"""Share of the fall that counts as the change."""


GRID = 1000
"""Points that a log is interpolated to."""


def abrupt_share(series: pd.DataFrame, until_entered: bool = False) -> float:
    """Which share of the elapsed steps does 80 % of the fall of the KL to 2-Gen take at least?

    The fall begins at the median level of the later half of the rows nearest to 1-Gen, and ends at
    the least KL of the run. The definition is ours.

    Args:
        series: rows of one run in rising order: `step`, `phase`, `nearest_phase`, `two_gen_train`.
        until_entered: let the fall end where 2-Gen is entered instead, at the first row in that
            phase or, if there is none, the least one nearest to it: refinement within 2-Gen is then
            no part of the change.

    Returns:
        Steps of the shortest stretch with 80 % of the fall, on straight lines between rows, over
        the step at its end; NaN where the run does not go from 1-Gen to 2-Gen.
    """
    kind, values = series["nearest_phase"].to_numpy(), numbers(series, "two_gen_train")
    later = np.flatnonzero(kind == "2-Gen")
    before = np.flatnonzero(kind[: later[0]] == "1-Gen") if len(later) else np.empty(0, int)
    if len(before) == 0:
        return math.nan
    end = int(values.argmin())
    if until_entered:
        inside = np.flatnonzero(series["phase"].to_numpy() == "2-Gen")
        end = int(inside[0]) if len(inside) else int(later[values[later].argmin()])
    plateau = before[len(before) // 2 :]
    need = SHARE * (float(np.median(values[plateau])) - values[end])
    if end <= plateau[0] or need <= 0:
        return math.nan
    return _shortest(
        numbers(series, "step")[plateau[0] : end + 1], values[plateau[0] : end + 1], need
    )


def _shortest(steps: np.ndarray, values: np.ndarray, need: float) -> float:
    """The shortest stretch in which a falling series loses so much, over the step at its end."""
    grid = np.linspace(steps[0], steps[-1], GRID)
    path = np.minimum.accumulate(np.interp(grid, steps, values))
    # The last point that is still high enough above each one; the path only falls.
    start = np.searchsorted(-path, -(path + need), side="right") - 1
    possible = start >= 0
    if not possible.any():
        return math.nan
    lengths = np.where(possible, grid - grid[np.maximum(start, 0)], np.inf)
    first = int(np.flatnonzero(lengths <= lengths.min() * 1.01)[0])
    return float(lengths[first] / grid[first])


def abrupt(store: EvidenceStore) -> Measured:
    """Is the change from 1-Gen to 2-Gen abrupt?"""
    log = log_of(store)
    rows = []
    for run, series in log.groupby("run"):
        if not (series["phase"] == "2-Gen").any():  # It never gets there, abruptly or not.
            continue
        first, value = series.iloc[0], abrupt_share(series)
        if math.isfinite(value):
            kept = {n: first[n] for n in ("k", "rank", "init_seed", "data_seed")}
            entered = abrupt_share(series, until_entered=True)
            label = f"K {first['k']:g}, {run}"
            rows.append({"run": run, "value": value, "entered": entered, **kept, "label": label})
    if not rows:
        raise NoEvidence("no run goes from 1-Gen into 2-Gen")
    table = pd.DataFrame(rows)
    found, entered = (over_seeds(table.groupby("rank")[n].mean()) for n in ("value", "entered"))
    part = Part(
        "80 % of the fall within 25 % of the elapsed steps", below(found, 0.25), shown(found)
    )
    return Measured(
        (part,),
        found,
        "of the steps",
        seeds_in(table),
        scale_of(log[log["run"].isin(set(table["run"]))]),
        table[["label", "value"]],
        {"criterion": 0.25},
        f"{len(table)} runs that go from 1-Gen into 2-Gen; counted until 2-Gen is entered, without "
        f"the refinement that follows, {shown(entered)}",
    )


CLAIMS = (
    Claim(
        "abrupt-two-gen",
        "markov",
        "The change from 1-Gen to 2-Gen is abrupt.",
        "no number",
        "abstract and a summary; no definition was found, this one is ours",
        "80 % of the fall of the KL to 2-Gen, from 1-Gen to its least of the run, within 25 % of "
        "the steps elapsed by then",
        (CHAINS,),
        abrupt,
    ),
)
