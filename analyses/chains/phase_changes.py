"""From distances at successive steps to phases: when one gives way to another, and if it lasts.

A table here has one row a step, with `step`, `phase`, `nearest_phase`, and the distances
`<predictor>_train` and `<predictor>_new` in nats.
"""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from analyses.rows import numbers, records
from mechinterp.nearest_predictor import PHASES

RISE = 2.0
"""Growth of the KL to the truth on new chains, over its least value, that we call transience."""


def phase_distance(table: pd.DataFrame, phase: str) -> np.ndarray:
    """Distance to the nearest predictor of a phase: geometric mean of both sets of chains (nats).

    The mean that `mechinterp.nearest_predictor.nearest_phase` compares.
    """
    names = [n for n, p in PHASES.items() if p == phase and f"{n}_train" in table.columns]
    products = [numbers(table, f"{n}_train") * numbers(table, f"{n}_new") for n in names]
    return np.sqrt(np.clip(products, 0.0, None)).min(0)


def spells(table: pd.DataFrame) -> pd.DataFrame:
    """In which order does the model go through the phases, and when is it in none?

    Returns:
        One row for each stretch of steps with the same `phase`: `phase`, `first`, `last` (steps)
        and `rows`.
    """
    number = (table["phase"] != table["phase"].shift()).cumsum()
    grouped = table.groupby(number, sort=True)
    return pd.DataFrame(
        {
            "phase": grouped["phase"].first(),
            "first": grouped["step"].min(),
            "last": grouped["step"].max(),
            "rows": grouped["step"].count(),
        }
    ).reset_index(drop=True)


def transitions(table: pd.DataFrame) -> pd.DataFrame:
    """When does one phase give way to the next?

    Only stretches with a phase count; a mixed one between two of the same phase is no transition.

    Returns:
        One row a transition: `before`, `after` (phases), `last_before` and `first_after` (the steps
        that bracket it), `crossing`, the step between them at which both are equally far, by
        interpolating ln(distance / distance) (the last such step if there are several; NaN if the
        two never cross there), and `share_of_steps`, the bracket's width over `first_after`.
    """
    named = [row for row in records(spells(table)) if row["phase"] != "mixed"]
    steps = numbers(table, "step")
    rows = []
    for old, young in itertools.pairwise(named):
        if old["phase"] == young["phase"]:
            continue
        inside = (steps >= old["last"]) & (steps <= young["first"])
        ratio = np.log(phase_distance(table, old["phase"]) / phase_distance(table, young["phase"]))
        rows.append(
            {
                "before": old["phase"],
                "after": young["phase"],
                "last_before": old["last"],
                "first_after": young["first"],
                "crossing": last_rise(steps[inside], ratio[inside]),
                "share_of_steps": (young["first"] - old["last"]) / max(young["first"], 1),
            }
        )
    columns = ["before", "after", "last_before", "first_after", "crossing", "share_of_steps"]
    return pd.DataFrame(rows, columns=columns)


def last_rise(steps: np.ndarray, values: np.ndarray) -> float:
    """Step at which a straight line between rows last rises through 0; NaN if it never does."""
    below = values[:-1] < 0
    at = (below & (values[1:] >= 0)).nonzero()[0]
    return float("nan") if len(at) == 0 else _zero(steps, values, int(at[-1]))


def first_rise(steps: np.ndarray, values: np.ndarray) -> float:
    """Step at which a straight line between rows first rises to 0; infinite if it never does."""
    above = (values >= 0).nonzero()[0]
    if len(above) == 0:
        return math.inf
    return float(steps[0]) if above[0] == 0 else _zero(steps, values, int(above[0]) - 1)


def _zero(steps: np.ndarray, values: np.ndarray, left: int) -> float:
    share = -values[left] / (values[left + 1] - values[left])
    return float(steps[left] + share * (steps[left + 1] - steps[left]))


def two_gen_time(table: pd.DataFrame) -> float:
    """When does the model become nearer to 2-Gen than to every other phase, for the first time?

    The least distance to another phase over that to 2-Gen crosses 1, interpolated in its logarithm.

    Returns:
        The step; infinite if it never happens.
    """
    present = [p for p in dict.fromkeys(PHASES.values()) if p != "2-Gen"]
    others = [p for p in present if _exists(table, p)]
    rival = np.min([phase_distance(table, phase) for phase in others], axis=0)
    return first_rise(numbers(table, "step"), np.log(rival / phase_distance(table, "2-Gen")))


def two_mem_time(table: pd.DataFrame) -> float:
    """When, after entering 2-Gen, is the model nearer to 2-Mem than to 2-Gen on training chains?

    This is t_M2, interpolated between rows; the definition is ours.

    Returns:
        The step; infinite if there is no 2-Mem, or 2-Gen is never entered or never left.
    """
    entered = two_gen_time(table)
    if not _exists(table, "2-Mem") or math.isinf(entered):
        return math.inf
    steps = numbers(table, "step")
    later = steps >= entered
    ratio = np.log(numbers(table, "two_gen_train") / numbers(table, "two_mem_train"))
    return first_rise(steps[later], ratio[later])


def transience(table: pd.DataFrame) -> dict[str, Any]:
    """Is generalisation lost again while the training chains are still being learned better?

    Returns:
        `entered` and `left` (2-Gen, see `two_gen_time`, `two_mem_time`); on new chains the least KL
        to the truth `least_new` at `least_step`, and the `last_new`; on training chains the KL at
        that step `train_then` and at the end `train_last`; `rise`, last over least on new chains;
        `transient`: 2-Gen was entered and left, the KL on new chains has at least doubled since its
        least value, and that on training chains has fallen.
    """
    rows = records(table)
    then, last = min(rows, key=lambda row: row["truth_new"]), rows[-1]
    entered, left = two_gen_time(table), two_mem_time(table)
    rise = last["truth_new"] / then["truth_new"] if then["truth_new"] > 0 else math.inf
    return {
        "entered": entered,
        "left": left,
        "least_step": then["step"],
        "least_new": then["truth_new"],
        "last_new": last["truth_new"],
        "train_then": then["truth_train"],
        "train_last": last["truth_train"],
        "rise": rise,
        "transient": math.isfinite(left)
        and rise >= RISE
        and bool(last["truth_train"] < then["truth_train"]),
    }


def _exists(table: pd.DataFrame, phase: str) -> bool:
    return any(p == phase and f"{n}_train" in table.columns for n, p in PHASES.items())
