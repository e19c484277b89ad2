"""Intervals that hold for many means at once: the bootstrap of the largest deviation."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm, t
from torch import Tensor

from circuits.errors import InputError

RESAMPLES = 1000
LEVEL = 0.95

ROWS_AT_ONCE = 256


def largest_deviations(
    per_example: Float[Tensor, "row batch"], seed: int = 0, n_resamples: int = RESAMPLES
) -> Float[np.ndarray, " resample"]:
    """How far does any of these means stray from its own value when examples are drawn anew?

    All rows are resampled with the same draws, which depend on the number of examples and the seed
    alone: the largest deviation over several tables of the same examples (several checkpoints) is
    the largest of theirs, draw by draw. Means that vary together are thus not counted twice, which
    Bonferroni's correction does.

    Args:
        per_example: a value a row and example, in any unit.
        seed: of the draws; global random state is not touched.
        n_resamples: resampled batches.

    Returns:
        For each resampled batch the largest |resampled mean - mean| in standard errors of the mean
        (of the batch as it is); rows that do not vary stray by 0. Costs a product of the rows with
        a `batch` x `n_resamples` matrix.

    Raises:
        InputError: fewer than two examples.
    """
    n = per_example.shape[1]
    if n < 2:
        raise InputError(f"{n} example has no spread to draw from; give at least 2")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n, (n, n_resamples), generator=generator)
    weights = torch.zeros(n, n_resamples, dtype=torch.float64)
    weights.scatter_add_(0, drawn, torch.ones_like(drawn, dtype=torch.float64)).div_(n)
    largest = torch.zeros(n_resamples, dtype=torch.float64)
    for rows in per_example.detach().cpu().double().split(ROWS_AT_ONCE):
        centred = rows - rows.mean(1, keepdim=True)
        se = standard_errors(rows)[:, None]
        strayed = (centred @ weights).abs() / torch.where(se > 0, se, torch.inf)
        largest = torch.maximum(largest, strayed.amax(0))
    return largest.numpy()


def standard_errors(per_example: Float[Tensor, "row batch"]) -> Float[Tensor, " row"]:
    """Gives the standard error of each row's mean, 0 where it does not vary."""
    return per_example.double().std(1) / per_example.shape[1] ** 0.5


def critical_value(
    deviations: Float[np.ndarray, "table resample"], n_examples: int, level: float = LEVEL
) -> float:
    """How many standard errors wide is an interval that covers all means of all tables at once?

    The bootstrap of the largest deviation is that of Chernozhukov, Chetverikov and Kato (2013).
    It resamples the examples there are, whose spread is itself uncertain; so the quantile is
    carried over from the normal to Student's distribution with `n_examples - 1` degrees of freedom.
    The level is reached as examples become many. At 128, two checkpoints of a reference run have
    it; with 8 or 16, or with values that are 0 but for a few examples, some mean is missed several
    times as often, mostly because it is underestimated.

    Args:
        deviations: what `largest_deviations` gave for each table.
        n_examples: examples behind every mean.
        level: chance that all means are covered.

    Returns:
        The half-width in standard errors: mean +- that covers, for all means together.
    """
    largest = deviations.max(0)
    quantile = float(np.quantile(largest, level, method="higher"))
    return float(t.isf(norm.sf(quantile), n_examples - 1))


def bonferroni_value(n_intervals: int, level: float = LEVEL) -> float:
    """The same for normal means of which only standard errors are known, by Bonferroni."""
    return float(norm.isf((1 - level) / (2 * max(n_intervals, 1))))
