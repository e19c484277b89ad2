"""How sure is a mean over examples? Percentile bootstrap by one matrix product."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError

ROWS_AT_ONCE = 64


def mean_interval(
    per_example: Float[Tensor, "*rows batch"],
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    """Gives the mean over examples and the interval that its bootstrap distribution spans.

    Every row is resampled with the same draws, so rows can be compared. The percentile bootstrap
    (Efron, 1979) is used: low and high are quantiles of the resampled means. The cost is a product
    of all rows with a `batch` x `n_resamples` matrix of weights.

    Args:
        per_example: one value an example, in any unit; examples along the last axis.
        level: share of the bootstrap distribution between low and high.
        n_resamples: resampled batches.
        seed: of the draws, which touch no global random state.

    Returns:
        mean, low, high in float64, shaped like the rows. With one example low and high are NaN:
        nothing is known about the spread.

    Raises:
        InputError: no examples, or a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(f"level={level} must lie between 0 and 1, for example 0.95")
    n = per_example.shape[-1]
    if n == 0:
        raise InputError("per_example holds no examples: give at least one")
    rows = per_example.detach().double().reshape(-1, n)
    mean = rows.mean(-1)
    if n == 1:
        low = high = torch.full_like(mean, float("nan"))
    else:
        weights, tails = _weights(n, n_resamples, seed), ((1 - level) / 2, (1 + level) / 2)
        bounds = [
            # NumPy selects the two order statistics where torch would sort all resamples.
            torch.from_numpy(np.quantile((part @ weights).numpy(), tails, axis=-1))
            for part in rows.cpu().split(ROWS_AT_ONCE)
        ]
        low, high = torch.cat(bounds, dim=-1).to(rows.device) if bounds else (mean, mean)
    shape = per_example.shape[:-1]
    return mean.reshape(shape), low.reshape(shape), high.reshape(shape)


def _weights(n: int, n_resamples: int, seed: int) -> Float[Tensor, "batch resample"]:
    """How often each example is drawn in each resampled batch, over n."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n, (n, n_resamples), generator=generator)
    counts = torch.zeros(n, n_resamples, dtype=torch.float64)
    return counts.scatter_add_(0, drawn, torch.ones_like(drawn, dtype=torch.float64)) / n
