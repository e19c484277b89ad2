"""How many times as long does the forward task take? Ratios of times, with intervals over seeds."""

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from analyses.rows import Row, records

Seeds = tuple[int, int, int]


def ratio_table(times: pd.DataFrame) -> pd.DataFrame:
    """Compares the forward and the reverse times of every setting under every bar.

    Runs with the same three seeds are pairs. Where the seeds of the two tasks do not match one to
    one, the runs of a mapping are averaged first (ln time), and the mappings are the pairs.

    Args:
        times: one row a run and bar: `setting`, `role`, `seeds`, `bar`, `share`, `time` and
            `last`.

    Returns:
        One row a `setting`, `bar` and `share`: `forward`, `reverse`, geometric means of the times
        (steps); `ratio`, forward over reverse, the geometric mean over `pairs`; `low`, `high`, its
        95 % interval by Student's t over pairs of ln ratio (NaN with one pair, or where a run ends
        before its bar); `bound`: `exact`, `at least` where a forward run has not passed its bar and
        counts with its last step, `at most` where a reverse run has not, or `undefined`;
        `unreached`, runs that end first; and `by`, `seeds` or `mappings`.
    """
    rows: list[Row] = []
    for key, group in times.groupby(["setting", "bar", "share"], sort=False, dropna=False):
        setting, bar, share = key  # pyright: ignore
        rows.append({"setting": setting, "bar": bar, "share": share, **_compare(records(group))})
    return pd.DataFrame(rows)


def _compare(rows: list[Row]) -> Row:
    missed = dict.fromkeys(("forward", "reverse"), 0)
    logs: dict[str, dict[Seeds, list[float]]] = {"forward": {}, "reverse": {}}
    for row in rows:
        reached = math.isfinite(row["time"])
        missed[row["role"]] += not reached
        # A time of 0 would have no logarithm: a loss below its bar before the first update.
        time = max(row["time"] if reached else float(row["last"]), 1.0)
        logs[row["role"]].setdefault(row["seeds"], []).append(math.log(time))
    pairs, by = _pairs(logs)
    ratios = np.array([forward - reverse for forward, reverse in pairs])
    bound = _bound(missed["forward"], missed["reverse"])
    found: dict[str, Any] = {
        role: math.exp(np.mean([value for group in logs[role].values() for value in group]))
        for role in ("forward", "reverse")
    }
    ratio = math.exp(ratios.mean()) if bound != "undefined" else math.nan
    low, high = _interval(ratios) if bound == "exact" else (math.nan, math.nan)
    found |= {"ratio": ratio, "low": low, "high": high, "bound": bound, "pairs": len(ratios)}
    return found | {"unreached": sum(missed.values()), "by": by}


def _pairs(logs: dict[str, dict[Seeds, list[float]]]) -> tuple[list[tuple[float, float]], str]:
    """Mean ln times of each pair; the first of the seeds is that of the mapping."""
    by = "seeds"
    if set(logs["forward"]) != set(logs["reverse"]):
        by = "mappings"
        logs = {role: _by_mapping(groups) for role, groups in logs.items()}
    forward, reverse = logs["forward"], logs["reverse"]
    return [(_mean(forward[key]), _mean(reverse[key])) for key in sorted(forward)], by


def _by_mapping(groups: dict[Seeds, list[float]]) -> dict[Seeds, list[float]]:
    merged: dict[Seeds, list[float]] = {}
    for seeds, values in groups.items():
        merged.setdefault((seeds[0], 0, 0), []).extend(values)
    return merged


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _bound(forward_missed: int, reverse_missed: int) -> str:
    if forward_missed and reverse_missed:
        return "undefined"
    if forward_missed:
        return "at least"
    return "at most" if reverse_missed else "exact"


def _interval(ratios: np.ndarray) -> tuple[float, float]:
    n = len(ratios)
    if n < 2:
        return math.nan, math.nan
    half = float(student.ppf(0.975, n - 1) * ratios.std(ddof=1) / math.sqrt(n))
    return math.exp(ratios.mean() - half), math.exp(ratios.mean() + half)
