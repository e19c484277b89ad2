"""Who is the strongest at what: when does a reader get a new main source, or the model a new head?

Two nearly equal sources swap ranks at random from one checkpoint to the next. So a place changes
hands only when the newcomer's bounds lie wholly above those of the one that holds it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analyses.formation.bounded_series import BoundedSeries

COLUMNS = ("reader", "step", "before", "after", "kind")


def hands(
    series: BoundedSeries, groups: Mapping[str, Sequence[str]], least: float = 0.0
) -> pd.DataFrame:
    """When does the strongest component of each group change, beyond noise?

    Args:
        series: values with bounds that hold together; the strongest is the one of largest size.
        groups: names of the components that compete, by what they compete for.
        least: size that a component has to exceed (its whole bounds) to hold a place for the first
            time.

    Returns:
        One row a change: `reader` (the group), `step` (the first checkpoint with the new holder),
        `before` and `after` (components), `kind`.
    """
    lower, upper = series.sizes()
    index = {name: i for i, name in enumerate(series.names)}
    rows = []
    for group, names in groups.items():
        members = [index[name] for name in names]
        for step, old, new in _changes(lower[members], upper[members], least):
            rows.append((group, series.steps[step], names[old], names[new], series.kind))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _changes(lower: np.ndarray, upper: np.ndarray, least: float) -> list[tuple[int, int, int]]:
    """Steps, old and new holders, by index; a missing bound neither wins nor defends a place."""
    changes: list[tuple[int, int, int]] = []
    holder: int | None = None
    low = np.where(np.isnan(lower), -np.inf, lower)
    high = np.where(np.isnan(upper), np.inf, upper)
    for step in range(low.shape[1]):
        best = int(low[:, step].argmax())
        if holder is None:
            holder = best if low[best, step] > least else None
        elif best != holder and low[best, step] > high[holder, step]:
            changes.append((step, holder, best))
            holder = best
    return changes
