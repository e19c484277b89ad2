"""Does a time follow a power of x, which one, and is it the one that a theory fixes?"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import f as fisher

from analyses.laws.resamples import Weights, point_resamples, seed_resamples, widened
from circuits.errors import InputError

Vector = Float[np.ndarray, " point"]
Draws = Float[np.ndarray, " resample"]

MIN_X = 3
"""Different x needed: any power goes through two points."""


def power_law(
    points: pd.DataFrame, exponent: float | None = None, n_resamples: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """Fits time = A x^b by least squares of ln time on ln x.

    Args:
        points: one row a run with `x`, `time` (both positive and finite) and `seed`.
        exponent: b according to a theory, to compare with.
        n_resamples: bootstrap resamples.
        seed: of the resamples.

    Returns:
        `exponent`, `amplitude` (A); `low`, `high`, the 95 % interval of the exponent by bootstrap
        over seeds (NaN with one run for each x), `design` (see `SeedResamples`); `points_low`,
        `points_high`, by bootstrap over points, the paper's way; `rms`, root mean square of
        ln time about the fit; `r2`; `lack_of_fit_p`, chance of means so far off a power law given
        the spread within an x (NaN without one); `n_runs`, `n_x`. With a theory also
        `theory`, `theory_rms` (with its exponent fixed), and `agrees`, whether the interval holds
        it (None when there is no interval).

    Raises:
        InputError: fewer than 3 different x, or a time or x that is not positive and finite.
    """
    check_points(points, MIN_X, "a power law")
    x, y = np.log(points["x"].to_numpy(float)), np.log(points["time"].to_numpy(float))
    slope, intercept = (float(part[0]) for part in line(x, y, np.ones((1, len(x)))))
    resampled = seed_resamples(points, n_resamples, seed)
    low, high = widened(slope, line(x, y, resampled.weights)[0], resampled.widen)
    paper = line(x, y, point_resamples(len(x), n_resamples, seed))[0]
    residual = y - intercept - slope * x
    found: dict[str, Any] = {
        "exponent": slope,
        "low": low,
        "high": high,
        "design": resampled.design,
        "points_low": float(np.nanquantile(paper, 0.025)),
        "points_high": float(np.nanquantile(paper, 0.975)),
        "amplitude": float(np.exp(intercept)),
        "rms": float(np.sqrt((residual**2).mean())),
        "r2": float(1 - (residual**2).sum() / ((y - y.mean()) ** 2).sum()) if y.std() else np.nan,
        "lack_of_fit_p": lack_of_fit(x, y, residual),
        "n_runs": len(x),
        "n_x": len(np.unique(x)),
    }
    if exponent is not None:
        off = y - exponent * x
        found["theory"] = exponent
        found["theory_rms"] = float(off.std())
        found["agrees"] = None if np.isnan(low) else bool(low - 1e-9 <= exponent <= high + 1e-9)
    return found


def line(x: Vector, y: Vector, weights: Weights) -> tuple[Draws, Draws]:
    """Slope and intercept of the weighted least squares of y on x; NaN where all x are equal."""
    total = weights.sum(1)
    mean_x, mean_y = weights @ x / total, weights @ y / total
    off_x, off_y = x - mean_x[:, None], y - mean_y[:, None]
    variance = (weights * off_x**2).sum(1)
    safe = np.where(variance > 1e-12, variance, np.nan)
    slope = (weights * off_x * off_y).sum(1) / safe
    return slope, mean_y - slope * mean_x


def lack_of_fit(x: Vector, y: Vector, residual: Vector) -> float:
    """Chance that means at each x lie so far off the line, given the spread of runs within an x.

    The F test of lack of fit; NaN where no x has two runs, or where they agree exactly.
    """
    values, at = np.unique(x, return_inverse=True)
    means = np.bincount(at, y) / np.bincount(at)
    within = float(((y - means[at]) ** 2).sum())
    between = float((residual**2).sum()) - within
    freedom, spare = len(values) - 2, len(y) - len(values)
    if spare == 0 or within <= 0:
        return float("nan")
    return float(fisher.sf(max(between, 0.0) / freedom / (within / spare), freedom, spare))


def check_points(points: pd.DataFrame, least: int, what: str) -> None:
    """Refuses points that cannot be fitted.

    Raises:
        InputError: too few different x, or a time or x that is not positive and finite.
    """
    for column in ("x", "time"):
        values = points[column].to_numpy(float)
        if not (np.isfinite(values) & (values > 0)).all():
            raise InputError(
                f"{column} holds {values[~(np.isfinite(values) & (values > 0))][0]:g}; {what} "
                "needs positive finite numbers: leave such runs out"
            )
    different = len(set(points["x"]))
    if different < least:
        raise InputError(
            f"{what} needs runs at {least} or more different x, but {different} are left: give "
            "more runs"
        )
