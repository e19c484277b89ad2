"""What cosines between weight updates are worth nothing: chance, and the optimizer's momentum."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import stdtrit
from torch.optim.adamw import adamw

from mechinterp.config import TrainingConfig


class ScatterBand(NamedTuple):
    """What the scatter of some cosines says of chance."""

    mean: float
    """95 % of means of as many cosines lie within it, for independent updates."""
    single: float
    """95 % of single cosines do."""
    dimension: float
    """Directions that updates effectively have: 1 over the variance of a cosine. The participation
    ratio of their covariance, when updates are independent."""


NORMAL = 1.959964
"""Half the width of a 95 % interval in standard deviations."""

SIMULATED = 1024
"""Weights of the simulated optimizer."""


def equal_norm_band(n_parameters: float) -> float:
    """How large is the cosine of two independent updates of equal norm, 95 % of the time?

    Args:
        n_parameters: weights in the update.

    Returns:
        1.96 / sqrt(n): directions uniform on a sphere. It is too narrow for real updates, which
        spend most of their norm on few weights (see `sign_band`) and keep to few directions
        (see `scatter_band`).
    """
    return NORMAL / math.sqrt(n_parameters)


def sign_band(
    dot_square: Float[np.ndarray, "..."],
    square: Float[np.ndarray, "..."],
    other_square: Float[np.ndarray, "..."],
) -> Float[np.ndarray, "..."]:
    """How large is the cosine if every weight keeps the size of its move but not its sign?

    The exact standard deviation over independent random signs, times 1.96. Weights that move
    together, as those of a low-rank gradient do, make it too narrow; see `scatter_band`.

    Args:
        dot_square: sum of the squared products of the two updates' entries.
        square: squared norm of the one update.
        other_square: squared norm of the other.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return NORMAL * np.sqrt(dot_square / (square * other_square))


def scatter_band(cosines: Float[np.ndarray, " pair"]) -> ScatterBand:
    """How large is a mean cosine by chance, judged by how the cosines themselves scatter?

    The sound band. Independent updates have cosines of mean 0 that are uncorrelated with each other
    even where they share an update, whatever the directions that updates prefer; so the scatter of
    the cosines says how many directions there are, and how far their mean strays. Bands that take
    every weight as moving by itself miss this: the gradients of a network lie in few directions.
    The scatter is taken from successive differences (von Neumann 1941), so that cosines that drift
    over training, which independent updates do not have, do not widen it.

    Args:
        cosines: of pairs at one lag, in the order of training; not finite ones are left out.

    Returns:
        The band of the mean, that of a single pair, and the dimension; NaN for fewer than 2 pairs.
    """
    known = cosines[np.isfinite(cosines)]
    n = len(known)
    if n < 2:
        return ScatterBand(math.nan, math.nan, math.nan)
    variance = float((np.diff(known) ** 2).mean() / 2)
    # Successive differences share their terms, so that they count for fewer than there are.
    quantile = float(stdtrit(2 * (n - 1) ** 2 / (3 * n - 4), 0.975))
    single = quantile * math.sqrt(variance)
    dimension = 1 / variance if variance > 0 else math.inf
    return ScatterBand(single / math.sqrt(n), single, dimension)


def momentum_cosine(beta1: float, span: int, lag: int) -> float:
    """Which cosine do two updates get from momentum alone, with gradients of pure noise?

    Adam moves along an exponential average of the gradients, so each gradient acts on about
    1 / (1 - beta1) steps, and two neighbouring updates share those around the border. With white
    noise, a constant rate and constant second moments, the moves are a process whose correlation
    at k steps is beta1^k; summed over two windows of `span` steps whose starts are `lag` spans
    apart.

    Args:
        beta1: decay of the average.
        span: steps of an update.
        lag: distance in updates.
    """
    if beta1 == 0 or lag < 1:
        return float(lag < 1)
    window = (1 - beta1**span) / (1 - beta1)
    shared = beta1 ** ((lag - 1) * span + 1) * window**2
    own = span * (1 + beta1) / (1 - beta1) - 2 * beta1 * window / (1 - beta1)
    return shared / own


def vanishing_lag(beta1: float, span: int, below: float) -> int:
    """Gives the first lag, in updates, at which momentum alone gives a cosine below `below`."""
    lag = 1
    while momentum_cosine(beta1, span, lag) >= below:
        lag += 1
    return lag


def momentum_table(training: TrainingConfig, span: int, lags: tuple[int, ...]) -> pd.DataFrame:
    """Gives the cosine from momentum against the lag, for short spans and for the run's own.

    Args:
        training: the optimizer's settings.
        span: the run's span.
        lags: lags in updates.

    Returns:
        `span`, `lag`, `lag_steps`, `analytic`, and for short spans `simulated` (NaN otherwise)
        with its standard error: torch's AdamW with these settings on gradients of noise.
    """
    short = (1, 5, 20)
    path = simulate_adamw(training, n_steps=max(short) * 30)
    rows = []
    for one in sorted({*short, span}):
        for lag in lags:
            mean, se = _mean_cosine(path, one, lag) if one in short else (math.nan, math.nan)
            rows.append(
                {
                    "span": one,
                    "lag": lag,
                    "lag_steps": one * lag,
                    "analytic": momentum_cosine(training.beta1, one, lag),
                    "simulated": mean,
                    "simulated_se": se,
                }
            )
    return pd.DataFrame(rows)


def simulate_adamw(
    training: TrainingConfig, n_steps: int, n_weights: int = SIMULATED, seed: int = 0
) -> Float[np.ndarray, "step weight"]:
    """Gives the path of weights that torch's AdamW drives along gradients of white noise.

    The weights start at 0, and the first tenth of the path is dropped, in which the second moments
    settle. Costs about 0.1 ms a step.

    Args:
        training: beta1, beta2, eps, lr and weight_decay are used.
        n_steps: steps kept.
        n_weights: independent weights.
        seed: of the gradients.
    """
    weight, first, second = (torch.zeros(n_weights) for _ in range(3))
    count = torch.zeros(())
    generator = torch.Generator().manual_seed(seed)
    burn = n_steps // 10
    path = np.empty((n_steps + 1, n_weights), dtype=np.float32)
    for step in range(burn + n_steps + 1):
        if step >= burn:
            path[step - burn] = weight.numpy()
        # The function behind the optimizer: the class loads torch's compiler, some 50 MB.
        adamw(
            [weight],
            [torch.randn(n_weights, generator=generator)],
            [first],
            [second],
            [],
            [count],
            foreach=False,
            amsgrad=False,
            beta1=training.beta1,
            beta2=training.beta2,
            lr=training.lr,
            weight_decay=training.weight_decay,
            eps=training.eps,
            maximize=False,
        )
    return path


def _mean_cosine(
    path: Float[np.ndarray, "step weight"], span: int, lag: int
) -> tuple[float, float]:
    """Mean cosine of the path's updates and its standard error; NaN where it is too short."""
    updates = np.diff(path[::span], axis=0)
    if len(updates) <= lag + 1:
        return math.nan, math.nan
    norms = np.sqrt(_row_dots(updates, updates))
    cosines = _row_dots(updates[:-lag], updates[lag:]) / (norms[:-lag] * norms[lag:])
    return float(cosines.mean()), float(cosines.std(ddof=1) / math.sqrt(len(cosines)))


def _row_dots(
    one: Float[np.ndarray, "row weight"], other: Float[np.ndarray, "row weight"]
) -> Float[np.ndarray, " row"]:
    """Products of rows, summed in double precision without a copy of the whole in it."""
    return np.einsum("ij,ij->i", one, other, dtype=np.float64)
