"""K1*: at which number of chains do half of the runs pass through 2-Gen? With exact intervals."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.optimize import isotonic_regression
from scipy.stats import binom, hypergeom

from analyses.rows import Row, records


class Counts(NamedTuple):
    """How many runs entered 2-Gen at each K, in rising order of K."""

    ks: Float[np.ndarray, " k"]
    entered: Float[np.ndarray, " k"]
    runs: Float[np.ndarray, " k"]


def counts_of(outcomes: pd.DataFrame) -> Counts:
    """Counts the decided runs of one arm.

    Args:
        outcomes: `k` and `outcome`; undecided runs are left out.
    """
    decided = outcomes[outcomes["outcome"] != "undecided"]
    entered = (decided["outcome"] == "entered").groupby(decided["k"]).agg(["sum", "count"])
    ks = np.asarray(entered.index, dtype=float)
    return Counts(ks, entered["sum"].to_numpy(float), entered["count"].to_numpy(float))


def threshold(counts: Counts) -> float:
    """Where does the share of runs that enter 2-Gen reach one half?

    The share is first made to rise with K (isotonic regression, weighted by runs), then taken
    between two K on a straight line in ln K. The rule is ours; how the paper finds K1* was not
    found.

    Returns:
        K1*; 0 where more than half enter even at the smallest K, infinite where no K has half.
    """
    share = isotonic_regression(counts.entered / counts.runs, weights=counts.runs).x
    log_k = np.log(counts.ks)
    below, above = share < 0.5 - 1e-12, share > 0.5 + 1e-12
    if not below.any() and above.all():
        return 0.0
    if not above.any() and below.all():
        return math.inf
    if below.any() and above.any() and below.sum() + above.sum() == len(share):
        left, right = int(below.sum()) - 1, int(below.sum())
        part = (0.5 - share[left]) / (share[right] - share[left])
        return float(np.exp(log_k[left] + part * (log_k[right] - log_k[left])))
    half = log_k[~below & ~above]
    return float(np.exp((half[0] + half[-1]) / 2))


def exact_interval(counts: Counts, level: float = 0.95) -> tuple[float, float]:
    """Which K1* do the runs allow, whatever the shape of the share against K?

    A K1* = c means that from c on a run enters with probability at least 1/2, and below c at most
    1/2. So c is refused when, over some stretch of K that starts at c, too few runs enter for a
    coin (binomial, times the number of stretches tried); and the same downwards. Exact for any
    number of seeds: with one or two runs for each K it is wide, as it has to be.

    Args:
        counts: of one arm.
        level: coverage.

    Returns:
        The open interval's ends: values of K that were run, 0 or infinity.
    """
    tail, n = (1 - level) / 2, len(counts.ks)
    few = [_least_p(counts.entered[i:], counts.runs[i:]) > tail for i in range(n)]
    missed = counts.runs - counts.entered
    many = [_least_p(missed[i::-1], counts.runs[i::-1]) > tail for i in range(n)]
    first = few.index(True) if any(few) else n
    last = n - 1 - many[::-1].index(True) if any(many) else -1
    low = counts.ks[first - 1] if first > 0 else 0.0
    return float(low), float(counts.ks[last + 1]) if last + 1 < n else math.inf


def _least_p(successes: np.ndarray, runs: np.ndarray) -> float:
    """Least chance of so few heads over any stretch from the start, corrected for their number."""
    tails = binom.cdf(successes.cumsum(), runs.cumsum(), 0.5)
    return min(1.0, float(np.min(tails)) * len(runs))


def no_shift_p(one: Counts, other: Counts) -> float:
    """How likely is so large a difference between two arms if the arm makes none?

    At each K that both have, the runs that entered are dealt out to the arms at random
    (hypergeometric); the sum over K of one arm's share of them is the statistic. Exact and
    two-sided; arms that share their seeds only make it conservative.

    Returns:
        The chance; 1 where no K was run in both arms.
    """
    spread, total = np.ones(1), 0
    for k in np.intersect1d(one.ks, other.ks):
        a, b = int(np.flatnonzero(one.ks == k)[0]), int(np.flatnonzero(other.ks == k)[0])
        n, m = int(one.runs[a]), int(other.runs[b])
        hits = int(one.entered[a] + other.entered[b])
        law = hypergeom.pmf(np.arange(n + 1), n + m, hits, n)
        spread = np.convolve(spread, law)
        total += int(one.entered[a])
    return float(min(1.0, spread[spread <= spread[total] * (1 + 1e-9)].sum()))


def arm_table(outcomes: pd.DataFrame, plain: str) -> pd.DataFrame:
    """Where is K1* in each arm, and how far has it moved from the unscaled one?

    Args:
        outcomes: what `outcome_table` gave.
        plain: name of the unscaled arm; it need not be there.

    Returns:
        One row an arm: `arm`, `runs`, `undecided`, `k1` (0 below all K, infinite above all), `low`,
        `high` (95 %, exact); and against the unscaled arm `shift` (ratio of K1*), `shift_low`,
        `shift_high` (at least 95 %: both ends at 97.5 %), `p` of no shift; NaN without it.
    """
    counts = {arm: counts_of(group) for arm, group in _arms(outcomes).items()}
    rows: list[Row] = []
    for arm, group in _arms(outcomes).items():
        found = counts[arm]
        undecided = int((group["outcome"] == "undecided").sum())
        row: Row = {"arm": arm, "runs": len(group), "undecided": undecided}
        row |= dict.fromkeys(("k1", "low", "high", "shift", "shift_low", "shift_high", "p"), np.nan)
        if len(found.ks):
            row["k1"] = threshold(found)
            row["low"], row["high"] = exact_interval(found)
        if arm != plain and len(found.ks) and plain in counts and len(counts[plain].ks):
            row |= _shift(found, counts[plain])
        rows.append(row)
    return pd.DataFrame(sorted(rows, key=_not(plain)))


def _shift(one: Counts, plain: Counts) -> Row:
    k1 = threshold(one), threshold(plain)
    known = all(0 < k < math.inf for k in k1)
    (low, high), (plain_low, plain_high) = (exact_interval(c, 0.975) for c in (one, plain))
    return {
        "shift": k1[0] / k1[1] if known else np.nan,
        "shift_low": low / plain_high if math.isfinite(low) else 0.0,
        "shift_high": high / plain_low if plain_low > 0 else math.inf,
        "p": no_shift_p(one, plain),
    }


def share_table(outcomes: pd.DataFrame) -> pd.DataFrame:
    """How many runs of each arm entered 2-Gen at each K: `arm`, `k`, `entered`, `decided`, `share`,
    and `undecided`."""
    rows = []
    for arm, group in _arms(outcomes).items():
        for k, same in group.groupby("k"):
            entered = sum(row["outcome"] == "entered" for row in records(same))
            undecided = sum(row["outcome"] == "undecided" for row in records(same))
            decided = len(same) - undecided
            share = entered / decided if decided else np.nan
            row = {"arm": arm, "k": k, "entered": entered, "decided": decided, "share": share}
            rows.append({**row, "undecided": undecided})
    return pd.DataFrame(rows)


def _not(plain: str) -> Callable[[Row], bool]:
    """Sorts the unscaled arm first and keeps the order of the others."""
    return lambda row: row["arm"] != plain


def _arms(outcomes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(arm): group for arm, group in outcomes.groupby("arm", sort=False)}
