"""How would a fit have come out with other seeds? Weights for refitting, and honest intervals."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student

Weights = Float[np.ndarray, "resample point"]
Draws = Float[np.ndarray, " resample"]


class SeedResamples(NamedTuple):
    """Resampled points, and how much wider than the resamples an interval has to be."""

    weights: Weights
    """How often each point is drawn."""
    widen: float
    """Factor on deviations from the estimate; infinite where seeds say nothing."""
    design: str
    """`crossed`: every seed has every x, and seeds are drawn whole. `nested`: runs are drawn within
    each x. `single`: one run for each x, so that nothing is known of the spread over seeds."""


def seed_resamples(points: pd.DataFrame, n: int, seed: int = 0) -> SeedResamples:
    """Draws seeds anew, rather than points, so that the x that were chosen stay as they are.

    A plain bootstrap of m seeds is too narrow by sqrt((m - 1) / m), and its normal quantile is too
    small for few seeds: with three, it covers far less than 95 %. Both are made up for.

    Args:
        points: one row a run with `x` and `seed`.
        n: resamples.
        seed: of the draws.

    Returns:
        The weights of every point in every resample. With one run for each x, all are 1.
    """
    generator = np.random.default_rng(seed)
    x, owner = points["x"].to_numpy(), points["seed"].to_numpy()
    seeds, at = np.unique(owner, return_inverse=True)
    pairs = points.drop_duplicates(["x", "seed"])
    groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    crossed = len(seeds) > 1 and len(pairs) == len(seeds) * len(groups) == len(points)
    if crossed:
        drawn = generator.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=n)
        widen = _widen(len(seeds) / (len(seeds) - 1), float(len(seeds) - 1))
        return SeedResamples(drawn[:, at].astype(float), widen, "crossed")
    weights = np.ones((n, len(points)))
    for group in groups:
        m = len(group)
        weights[:, group] = generator.multinomial(m, np.full(m, 1 / m), size=n)
    widen = _nested_widen(np.log(x.astype(float)), groups)
    design = "single" if max(map(len, groups)) == 1 else "nested"
    return SeedResamples(weights, widen, design)


def _nested_widen(log_x: Float[np.ndarray, " point"], groups: list[np.ndarray]) -> float:
    """Factor for runs drawn within each x.

    An x counts as much as it pulls on a slope. Those with one run lend no spread of their own, so
    that of the others has to stand in for it; degrees of freedom are Satterthwaite's (1946).
    """
    sizes = np.array([len(group) for group in groups])
    pull = sizes * (np.array([log_x[group[0]] for group in groups]) - log_x.mean()) ** 2
    seen = (pull * (sizes - 1) / sizes).sum()
    if seen <= 0:
        return float("inf")
    several = sizes > 1
    freedom = pull[several].sum() ** 2 / (pull[several] ** 2 / (sizes[several] - 1)).sum()
    return _widen(float(pull.sum() / seen), float(freedom))


def point_resamples(n_points: int, n: int, seed: int = 0) -> Weights:
    """Draws points anew whatever their seed, as the paper does; it varies which x were chosen."""
    share = np.full(n_points, 1 / n_points)
    return np.random.default_rng(seed).multinomial(n_points, share, size=n).astype(float)


def widened(estimate: float, drawn: Draws, widen: float) -> tuple[float, float]:
    """Gives the 95 % interval: the resamples' middle 95 %, its deviations multiplied by `widen`."""
    known = drawn[np.isfinite(drawn)]
    if not np.isfinite(widen) or len(known) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(known, (0.025, 0.975))
    return estimate + widen * (low - estimate), estimate + widen * (high - estimate)


def _widen(variance: float, freedom: float) -> float:
    """Factor for a variance that is too small, known from so many degrees of freedom."""
    return float(np.sqrt(variance) * student.ppf(0.975, freedom) / student.ppf(0.975, 1e9))
