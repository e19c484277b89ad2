"""Does a time diverge at a critical K*? Fits of A (K* - K)^-gamma, scanning K*."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import f as fisher

from analyses.laws.power import Vector, check_points, line
from analyses.laws.resamples import seed_resamples, widened

MIN_X = 4
"""Different K needed for three parameters."""

N_SCANNED = 300
"""Values of K* tried."""

NEAREST, FARTHEST = 1e-3, 1e3
"""Gap between K* and the largest K, in units of that K, from which and up to which K* is tried."""

_N_RESAMPLES_AT_ONCE = 200


def diverging_time(points: pd.DataFrame, n_resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Fits time = A (K* - K)^-gamma: least squares of ln time for every K* of a scan.

    K*, gamma and A trade off against each other, so a few K leave gamma nearly free: the interval
    of K* is that of the profile (all K* whose best fit is not significantly worse, by an F test),
    and it is open above where even the farthest K* tried fits.

    Args:
        points: one row a run with `x` (K), `time` and `seed`.
        n_resamples: bootstrap resamples over seeds, the scan repeated in each.
        seed: of the resamples.

    Returns:
        `critical` (K*), `gamma`, `log_amplitude` (ln A); `critical_low`, `critical_high` (profile;
        infinite when open) and `bounded`, whether it is closed; `gamma_low`, `gamma_high`: range of
        gamma over the K* inside; `gamma_seeds_low`, `gamma_seeds_high`: bootstrap over seeds (NaN
        with one run for each x), `design`; `rms` of ln time; and for the rival without divergence,
        time = A K^b, `power_rms` and `delta_aic`, Akaike's criterion of the power law minus that of
        the divergence: above 2, the data prefer the divergence despite its third parameter.

    Raises:
        InputError: fewer than 4 different K, or a time or K that is not positive and finite.
    """
    check_points(points, MIN_X, "a diverging time")
    x, y = points["x"].to_numpy(float), np.log(points["time"].to_numpy(float))
    scanned = x.max() * (1 + np.geomspace(NEAREST, FARTHEST, N_SCANNED))
    one = np.ones((1, len(x)))
    squares, gammas, intercepts = (part[:, 0] for part in scan(x, y, scanned, one))
    best = int(squares.argmin())
    inside = squares <= squares[best] * _limit(len(x))
    resampled = seed_resamples(points, n_resamples, seed)
    drawn = _best_gammas(x, y, scanned, resampled.weights)
    seeds_low, seeds_high = widened(float(gammas[best]), drawn, resampled.widen)
    slope, start = (float(part[0]) for part in line(np.log(x), y, one))
    power = float(((y - start - slope * np.log(x)) ** 2).sum())
    return {
        "critical": float(scanned[best]),
        "critical_low": float(scanned[inside].min()) if not inside[0] else float(x.max()),
        "critical_high": float(scanned[inside].max()) if not inside[-1] else float("inf"),
        "bounded": bool(not inside[0] and not inside[-1]),
        "gamma": float(gammas[best]),
        "gamma_low": float(gammas[inside].min()),
        "gamma_high": float(gammas[inside].max()) if not inside[-1] else float("inf"),
        "gamma_seeds_low": seeds_low,
        "gamma_seeds_high": seeds_high,
        "design": resampled.design,
        "log_amplitude": float(intercepts[best]),
        "rms": float(np.sqrt(squares[best] / len(x))),
        "power_rms": float(np.sqrt(power / len(x))),
        "delta_aic": len(x) * float(np.log(_floor(power) / _floor(squares[best]))) - 2,
        "n_runs": len(x),
        "n_x": len(np.unique(x)),
    }


def scan(
    x: Vector,
    y: Vector,
    scanned: Float[np.ndarray, " critical"],
    weights: Float[np.ndarray, "resample point"],
) -> tuple[
    Float[np.ndarray, "critical resample"],
    Float[np.ndarray, "critical resample"],
    Float[np.ndarray, "critical resample"],
]:
    """Fits ln time = ln A - gamma ln(K* - K) for every K* and every resample.

    Returns:
        Sum of squares, gamma and ln A.
    """
    shape = (len(scanned), len(weights))
    squares, gammas, intercepts = np.empty(shape), np.empty(shape), np.empty(shape)
    for at, critical in enumerate(scanned):
        gap = -np.log(critical - x)
        gammas[at], intercepts[at] = line(gap, y, weights)
        off = y - intercepts[at][:, None] - gammas[at][:, None] * gap
        squares[at] = (weights * off**2).sum(1)
    return squares, gammas, intercepts


def _best_gammas(
    x: Vector,
    y: Vector,
    scanned: Float[np.ndarray, " critical"],
    weights: Float[np.ndarray, "resample point"],
) -> Float[np.ndarray, " resample"]:
    """Gamma at the best K* of every resample; NaN for one that is left with too few different K."""
    found = []
    for start in range(0, len(weights), _N_RESAMPLES_AT_ONCE):
        squares, gammas, _ = scan(x, y, scanned, weights[start : start + _N_RESAMPLES_AT_ONCE])
        best = np.where(np.isnan(squares), np.inf, squares).argmin(0)
        found.append(gammas[best, np.arange(len(best))])
    return np.concatenate(found)


def _limit(n: int) -> float:
    """Largest ratio of sums of squares that leaves a K* possible: one parameter, 95 %."""
    spare = n - 3
    return 1 + float(fisher.ppf(0.95, 1, spare)) / spare


def _floor(squares: float) -> float:
    return max(squares, 1e-20)
