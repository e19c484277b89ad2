"""When does a noisy series cross a threshold? The first time it is seen, and the time it holds."""

import numpy as np
from jaxtyping import Float

Steps = Float[np.ndarray, " row"]
Values = Float[np.ndarray, "draw row"]
Times = Float[np.ndarray, " draw"]

HOLD_ROWS = 5
"""Rows for which a crossing has to hold so that one noisy evaluation cannot be taken for it."""

Z = 1.959964
"""Half-width of a 95 % interval in standard errors."""


def first_below(steps: Steps, values: Values, threshold: float) -> Times:
    """At which step is a series first seen below a threshold?

    One noisy row is enough, so the answer is early where the series is noisy.

    Args:
        steps: steps of the rows, rising.
        values: one series a draw.
        threshold: in the unit of the values.

    Returns:
        The step of the first such row of each draw; infinite where there is none.
    """
    below = values < threshold
    return np.where(below.any(1), steps[below.argmax(1)], np.inf)


def held_below(
    steps: Steps,
    values: Values,
    threshold: float,
    hold: float | None = None,
    interpolate: bool = True,
) -> Times:
    """When does a series fall below a threshold and stay there?

    Args:
        steps: steps of the rows, rising.
        values: one series a draw.
        threshold: in the unit of the values.
        hold: steps for which it has to stay below, all of which the series has to cover. When not
            given, `HOLD_ROWS` times the usual distance of two rows; then a series that ends sooner
            has to stay below up to its end, and for at least two rows.
        interpolate: give the time between two rows at which a straight line crosses; else the
            step of the first row below.

    Returns:
        The time for each draw; infinite where it never happens.
    """
    rows = len(steps)
    whole = hold is not None
    span = hold if hold is not None else HOLD_ROWS * float(np.median(np.diff(steps)))
    ends = np.searchsorted(steps, steps + span, side="right")
    allowed = steps + span <= steps[-1] if whole else ends - np.arange(rows) >= 2
    above = np.concatenate(
        [np.zeros((len(values), 1)), np.cumsum(~(values < threshold), axis=1)], axis=1
    )
    held = (above[:, ends] == above[:, :rows]) & allowed
    row = held.argmax(1)
    times = steps[row].astype(float)
    if interpolate:
        draws = np.arange(len(values))
        before = np.maximum(row - 1, 0)
        left, right = values[draws, before], values[draws, row]
        # The row before a held one is above, unless it is held itself or lies before the first.
        share = np.where(
            left > right, (left - threshold) / np.where(left > right, left - right, 1), 1
        )
        times = np.where(row > 0, steps[before] + (steps[row] - steps[before]) * share, times)
    return np.where(held.any(1), times, np.inf)


def shifted(
    values: Float[np.ndarray, " row"], se: Float[np.ndarray, " row"], half: int = 20
) -> Values:
    """Gives a series moved by -1.96 to 1.96 standard errors as a whole, the middle one unmoved.

    A fixed evaluation set makes the same mistake at every step: a series measured on other
    examples would lie higher or lower throughout, which is what these draws stand for.

    Args:
        values: the series.
        se: standard error of each row.
        half: draws on either side of the middle one.
    """
    return values + Z * np.arange(-half, half + 1)[:, None] / half * se


def redrawn(
    values: Float[np.ndarray, " row"], se: Float[np.ndarray, " row"], n: int, seed: int
) -> Values:
    """Gives `n` series as they would look if every row were measured on fresh examples."""
    noise = np.random.default_rng(seed).standard_normal((n, len(values)))
    return values + noise * se
