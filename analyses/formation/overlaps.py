"""Is the circuit at one checkpoint the circuit at another, more than chance would have it?

Two sets of edges overlap by chance too, all the more as some layers have more and stronger edges.
The first null draws sets of the same sizes among all edges (hypergeometric, exact); the second
keeps how many edges go into each kind of reader of each layer, as
`circuits.random_circuits(same_layers=True)` does (a sum of hypergeometrics, exact by convolution).
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import hypergeom, rankdata

TAILS = (0.025, 0.975)

COLUMNS = (
    "step_a", "step_b", "jaccard", "null_low", "null_high", "spearman", "matched_low",
    "matched_high", "signed_spearman", "size", "significant_jaccard", "significant_null_low",
    "significant_null_high", "size_a", "size_b",
)  # fmt: skip


def overlap(
    steps: Sequence[int],
    effects: Float[np.ndarray, "edge step"],
    significant: Bool[np.ndarray, "edge step"],
    strata: Sequence[object],
    top: int,
) -> pd.DataFrame:
    """How much do the circuits of every two checkpoints share, and how much would random ones?

    Args:
        steps: of the columns.
        effects: of every edge.
        significant: which effects are beyond their noise.
        strata: what an edge has in common with those it may be exchanged for in the second null.
        top: edges in a top set, those with the largest effects by size.

    Returns:
        One row a pair of steps. Of the top sets: `jaccard` (shared over united), where 95 % of
        random sets lie (`null_low` to `null_high`), and of random sets matched by layer
        (`matched_low` to `matched_high`), `size`. Of all effects: `spearman`, the rank correlation
        of their sizes, and `signed_spearman`. Of the sets of significant edges, which have
        `size_a` and `size_b` edges: `significant_jaccard` (NaN for two empty sets) with
        `significant_null_low` and `significant_null_high`.
    """
    order = np.argsort(-np.abs(effects), axis=0, kind="stable")
    chosen = np.zeros_like(significant)
    np.put_along_axis(chosen, order[:top], True, axis=0)
    groups = np.unique(np.array([str(each) for each in strata]), return_inverse=True)[1]
    alike = np.zeros_like(groups)
    by_size, signed = _spearman(np.abs(effects)), _spearman(effects)
    rows = []
    for a, b in combinations(range(len(steps)), 2):
        tops, found = (chosen[:, a], chosen[:, b]), (significant[:, a], significant[:, b])
        rows.append(
            (steps[a], steps[b], _shared(*tops), *_null(*tops, alike), by_size[a, b],
             *_null(*tops, groups), signed[a, b], top, _shared(*found), *_null(*found, alike),
             *(int(each.sum()) for each in found))
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _spearman(values: Float[np.ndarray, "edge step"]) -> Float[np.ndarray, "step step"]:
    """Rank correlations of all columns; NaN with a column that does not vary."""
    ranks = rankdata(values, axis=0)
    centred = ranks - ranks.mean(0)
    norms = np.sqrt((centred**2).sum(0))
    scaled = centred / np.where(norms > 0, norms, np.nan)
    return scaled.T @ scaled


def _shared(first: Bool[np.ndarray, " edge"], second: Bool[np.ndarray, " edge"]) -> float:
    """Jaccard index; NaN for two empty sets."""
    united = int((first | second).sum())
    return int((first & second).sum()) / united if united else float("nan")


def _null(
    first: Bool[np.ndarray, " edge"],
    second: Bool[np.ndarray, " edge"],
    groups: Int[np.ndarray, " edge"],
) -> tuple[float, float]:
    """The middle 95 % of the Jaccard index for random sets with as many edges of each group."""
    sizes, ours, theirs = (
        np.bincount(groups[kept], minlength=groups.max() + 1)
        for kept in (slice(None), first, second)
    )
    total = int(ours.sum() + theirs.sum())
    if total == 0:
        return float("nan"), float("nan")
    possible = np.arange(min(ours.max(), theirs.max()) + 1)
    chances = hypergeom.pmf(possible, sizes[:, None], ours[:, None], theirs[:, None])
    cumulative = np.cumsum(reduce(np.convolve, chances))
    low, high = (int(np.searchsorted(cumulative, tail)) for tail in TAILS)
    return low / (total - low), high / (total - high)
