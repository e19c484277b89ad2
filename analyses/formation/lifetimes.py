"""When is each edge, head or score born, and does it die? By leaving a band and staying out of it.

The band of a component spans its bounds at the first `early` checkpoints, widened by `margin` on
either side. The component is *out* where its bounds have no point in common with the band. The
bounds cover all components at all checkpoints together with 95 % chance; so with that chance no
component is out anywhere whose true value lies within what it was at the early checkpoints. That is
stronger than an interval for each, with which 24 of 479 idle edges would be out at any checkpoint.

Once out, a component lives for as long as its value itself is beyond the band: bounds that have
grown wide enough to touch it again say that the measurement is poor, not that the effect is gone.
"""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from analyses.formation.bounded_series import BoundedSeries
from circuits.errors import InputError

COLUMNS = (
    "component", "kind", "born", "died", "band_low", "band_high", "peak_step", "peak_effect",
    "born_after", "first_out", "last_effect",
)  # fmt: skip


def births(series: BoundedSeries, early: int = 1, margin: float = 0.0) -> pd.DataFrame:
    """When does each component leave its noise band for good, and when does it come back for good?

    Args:
        series: values with bounds that hold together.
        early: checkpoints that make the band; none of them can be a birth.
        margin: by how much more the band has to be left, in the unit of the values.

    Returns:
        One row a component, in order of birth, those that were never born last:
        `component`, `kind`, `born`: the first step at which it is out, of the last life it has;
        `died`: the first step after that at which its value is back in the band, never to leave it
        beyond noise; both missing where that does not happen; `band_low`, `band_high`: missing
        where nothing is known of the noise, and then there is no birth; `peak_step`,
        `peak_effect`: where it is farthest from the middle of the band; `born_after`: the
        checkpoint before `born`, so that the birth itself lies between the two; `first_out`: the
        first step at which it is out, whether it stays so or not; `last_effect`.

    Raises:
        InputError: no early checkpoint, none after them, or a negative margin.
    """
    if early < 1 or margin < 0:
        raise InputError(f"early={early} has to be at least 1, and margin={margin} at least 0")
    if len(series.steps) <= early:
        raise InputError(
            f"{len(series.steps)} checkpoints, of which the first {early} make the noise band: "
            "give more checkpoints, or a smaller early"
        )
    low = series.low[:, :early].min(1) - margin
    high = series.high[:, :early].max(1) + margin
    out = outside(series, low, high)
    out[:, :early] = False
    beyond = (series.value > high[:, None]) | (series.value < low[:, None])
    alive = _alive(out, beyond)
    rows = [
        (name, series.kind, *_life(alive[i], series.steps), low[i], high[i],
         *_peak(series.value[i], (low[i] + high[i]) / 2, series.steps),
         *_before(alive[i], out[i], series.steps), series.value[i, -1])
        for i, name in enumerate(series.names)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    whole = ("born", "died", "peak_step", "born_after", "first_out")
    table = table.astype(dict.fromkeys(whole, "Int64"))
    return table.sort_values("born", kind="stable", ignore_index=True)


def outside(
    series: BoundedSeries, low: Float[np.ndarray, " name"], high: Float[np.ndarray, " name"]
) -> Bool[np.ndarray, "name step"]:
    """Says where the bounds of a value have no point in common with its band."""
    return (series.low > high[:, None]) | (series.high < low[:, None])


def _alive(
    out: Bool[np.ndarray, "name step"], beyond: Bool[np.ndarray, "name step"]
) -> Bool[np.ndarray, "name step"]:
    """Where a component lives: from where it is out for as long as its value stays beyond."""
    alive = out.copy()
    for step in range(1, alive.shape[1]):
        alive[:, step] |= alive[:, step - 1] & beyond[:, step]
    return alive


def _span(alive: np.ndarray) -> tuple[int, int] | None:
    """First and last index of the last stretch of checkpoints at which it lives."""
    (where,) = alive.nonzero()
    if len(where) == 0:
        return None
    last = int(where[-1])
    (inside,) = (~alive[:last]).nonzero()
    return (int(inside[-1]) + 1 if len(inside) else 0), last


def _life(alive: np.ndarray, steps: tuple[int, ...]) -> tuple[int | None, int | None]:
    span = _span(alive)
    if span is None:
        return None, None
    first, last = span
    return steps[first], steps[last + 1] if last + 1 < len(steps) else None


def _before(
    alive: np.ndarray, out: np.ndarray, steps: tuple[int, ...]
) -> tuple[int | None, int | None]:
    span = _span(alive)
    return (None, None) if span is None else (steps[span[0] - 1], steps[int(out.argmax())])


def _peak(value: np.ndarray, middle: float, steps: tuple[int, ...]) -> tuple[int | None, float]:
    strayed = np.abs(value - (0.0 if np.isnan(middle) else middle))
    if np.isnan(strayed).all():
        return None, float("nan")
    at = int(np.nanargmax(strayed))
    return steps[at], float(value[at])
