"""Are the members of a group right together, or as independent items of the same mean accuracy?

A bar such as "80 % of a group right" is crossed late and suddenly by independent items as well, so
an empty count at tau/2 says nothing by itself. What independence cannot give is groups that differ
more than chance: that is tested here, and its size is the intraclass correlation.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

Outcomes = Bool[np.ndarray, "group k"]
Draws = Int[np.ndarray, "draw group"]
PerDraw = Float[np.ndarray, " draw"]

LEVEL = 0.05
"""Chance of calling independent items collective, over all checkpoints together."""

_AT_ONCE = 2_000_000
"""Items shuffled together; bounds the memory."""


def mostly_right(right: Draws, k: int) -> PerDraw:
    """Share of groups with at least 80 % of their k right; compared in whole numbers."""
    return (5 * right >= 4 * k).mean(-1)


def all_right(right: Draws, k: int) -> PerDraw:
    """Share of groups with all k right."""
    return (right == k).mean(-1)


def spread(right: Draws, k: int) -> PerDraw:
    """Variance over groups of the share that is right."""
    return (right / k).var(-1)


def intraclass(right: Draws, k: int) -> PerDraw:
    """How alike are the members of a group: 0 independent, 1 all right or all wrong together?

    The one-way analysis-of-variance estimator; NaN where every item or none is right.

    Args:
        right: number right in each group.
        k: members of a group, at least 2.
    """
    share = right / k
    groups = share.shape[-1]
    between = k * share.var(-1) * groups / max(groups - 1, 1)
    within = (share * (1 - share)).mean(-1) * k / (k - 1)
    total = between + (k - 1) * within
    return np.where(total > 0, (between - within) / np.where(total > 0, total, 1.0), np.nan)


def null_counts(outcomes: Outcomes, n: int, seed: int, by_slot: bool = False) -> Draws:
    """Draws how many would be right in each group if items were independent.

    The outcomes themselves are dealt out anew, so that the mean accuracy is that of the model.

    Args:
        outcomes: which items are right.
        n: draws.
        seed: of the draws.
        by_slot: deal out within each slot only, which keeps selectors that are easier than others.

    Returns:
        Number right in each group.
    """
    groups, k = outcomes.shape
    generator = np.random.default_rng(seed)
    counts = []
    for size in _pieces(n, max(1, _AT_ONCE // (groups * k))):
        items = np.broadcast_to(outcomes, (size, groups, k))
        if by_slot:
            dealt = generator.permuted(items, axis=1)
        else:
            dealt = generator.permuted(items.reshape(size, -1), axis=1).reshape(items.shape)
        counts.append(dealt.sum(-1))
    return np.concatenate(counts)


def collective_row(outcomes: Outcomes, n: int = 2000, seed: int = 0) -> dict[str, float]:
    """Tests one checkpoint for groups that are right together.

    Args:
        outcomes: which items are right.
        n: draws from the null, and resamples of groups.
        seed: of both.

    Returns:
        `mean_accuracy`, `groups_80`, `groups_100` (shares) and `icc`, each with `_low` and `_high`
        (95 %, bootstrap over groups); for the shares of groups `null_80`, `null_100` with their
        `_low` and `_high` (mean and middle 95 % under independence) and `p_80`, `p_100`; `p_spread`
        and `p_spread_by_slot`: chance of groups at least this uneven under independence, without
        and with the difficulty of each slot kept. p-values are one-sided and never 0.
    """
    k = outcomes.shape[1]
    right = outcomes.sum(1)
    again = np.random.default_rng(seed).integers(len(right), size=(n, len(right)))
    shares: dict[str, Callable[..., PerDraw]] = {
        "mean_accuracy": lambda counts, k: counts.mean(-1) / k,
        "groups_80": mostly_right,
        "groups_100": all_right,
        "icc": intraclass,
    }
    row: dict[str, float] = {}
    for name, share in shares.items():
        row[name] = float(share(right[None], k)[0])
        row[f"{name}_low"], row[f"{name}_high"] = _middle(share(right[again], k))
    null = null_counts(outcomes, n, seed)
    for bar, share in (("80", mostly_right), ("100", all_right)):
        drawn = share(null, k)
        row[f"null_{bar}"] = float(drawn.mean())
        row[f"null_{bar}_low"], row[f"null_{bar}_high"] = _middle(drawn)
        row[f"p_{bar}"] = _p_value(drawn, float(share(right[None], k)[0]))
    observed = float(spread(right[None], k)[0])
    row["p_spread"] = _p_value(spread(null, k), observed)
    by_slot = null_counts(outcomes, n, seed, by_slot=True)
    row["p_spread_by_slot"] = _p_value(spread(by_slot, k), observed)
    return row


def holm(p_values: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Adjusts p-values for being several (Holm, 1979), so that `LEVEL` holds for all together."""
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def _middle(drawn: PerDraw) -> tuple[float, float]:
    known = drawn[~np.isnan(drawn)]
    if len(known) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)


def _p_value(drawn: PerDraw, observed: float) -> float:
    # A hair below, since equal counts may differ in the last bit of their variance.
    return float((1 + (drawn >= observed - 1e-12).sum()) / (1 + len(drawn)))


def _pieces(n: int, most: int) -> list[int]:
    return [min(most, n - start) for start in range(0, n, most)]
