"""Numbers over seeds: means, ratios and shares with their intervals."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import beta
from scipy.stats import t as student

from analyses.ledger.claim import Estimate
from analyses.ledger.store import NoEvidence
from analyses.rows import numbers


def over_seeds(values: Iterable[float]) -> Estimate:
    """Mean of one number for each seed, with Student's 95 % interval; NaN ends for a single one."""
    known = np.array([value for value in values if math.isfinite(value)])
    if len(known) == 0:
        return Estimate(math.nan)
    mean = float(known.mean())
    if len(known) < 2:
        return Estimate(mean)
    half = float(student.ppf(0.975, len(known) - 1)) * known.std(ddof=1) / math.sqrt(len(known))
    return Estimate(mean, mean - float(half), mean + float(half))


def geometric_over_seeds(values: Iterable[float]) -> Estimate:
    """Geometric mean of one positive number for each seed, its interval by ln."""
    logs = over_seeds(math.log(value) if value > 0 else math.nan for value in values)
    return Estimate(*(math.exp(end) for end in logs))


def per_setting(
    table: pd.DataFrame, column: str, settings: Sequence[str], geometric: bool = False
) -> pd.DataFrame:
    """Gives the mean over seeds in every setting: `label`, `value`, `low`, `high`, `seeds`."""
    average = geometric_over_seeds if geometric else over_seeds
    rows = []
    for key, group in table.groupby(list(settings), dropna=False):
        found = average(numbers(group, column))
        row = {"label": labelled(settings, key), **found._asdict(), "seeds": seeds_in(group)}
        rows.append({**row, **dict(zip(settings, key, strict=True))})
    return pd.DataFrame(rows)


def overall(table: pd.DataFrame, column: str) -> Estimate:
    """Mean over settings of each seed, then over seeds; seeds are matched by their rank."""
    return over_seeds(table.groupby("rank")[column].mean())


def share(flags: Sequence[bool]) -> Estimate:
    """Share of runs that do something, with Clopper and Pearson's exact 95 % interval."""
    n, k = len(flags), sum(bool(flag) for flag in flags)
    if n == 0:
        return Estimate(math.nan)
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return Estimate(k / n, low, high)


def seeds_in(table: pd.DataFrame) -> int:
    """How many independent seeds have these rows: the fewer of initial weights and data."""
    counts = [
        int(table[name].nunique()) for name in ("init_seed", "data_seed") if name in table.columns
    ]
    return min(counts, default=0)


def least_seeds(table: pd.DataFrame, settings: Sequence[str]) -> int:
    """Fewest seeds of any setting."""
    groups = table.groupby(list(settings), dropna=False)
    return min((seeds_in(group) for _, group in groups), default=0)


def truth(values: pd.Series) -> list[bool]:
    """Reads a column of true and false, however it was written."""
    return [str(value).strip().lower() in ("true", "1", "1.0") for value in values]


def scale_of(runs: pd.DataFrame) -> str:
    """Says in a few words what runs were measured on."""
    parts = []
    for name, text in (("n_layers", "{} layers"), ("d_model", "d {}"), ("n_states", "C {}")):
        if name in runs:
            parts.append(text.format(_range(runs[name])))
    if "length" in runs:
        parts.append(f"N {_range(runs['length'])}")
    if "k" in runs:
        parts.append(f"K {_range(runs['k'])}")
    if "n_b" in runs and "k" in runs:
        parts.append(f"D {_range(runs['k'].astype(float) * runs['n_b'].astype(float))}")
    return ", ".join([*parts, f"{runs['run'].nunique()} runs"])


def only(table: pd.DataFrame, rows: "pd.Series | np.ndarray", what: str) -> pd.DataFrame:
    """Gives the rows that are marked.

    Raises:
        NoEvidence: there are none; says what they would be.
    """
    found = pd.DataFrame(table[rows])
    if found.empty:
        raise NoEvidence(f"no {what} among the runs")
    return found


def labelled(settings: Sequence[str], key: object) -> str:
    """Names a setting: K 10, n_b 200."""
    values = key if isinstance(key, tuple) else (key,)
    return ", ".join(
        f"{_NAMES.get(n, n)} {_plain(v)}" for n, v in zip(settings, values, strict=True)
    )


_NAMES = {"k": "K", "d": "D"}


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value)


def _range(values: pd.Series) -> str:
    low, high = values.astype(float).min(), values.astype(float).max()
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"
