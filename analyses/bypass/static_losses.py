"""K_x: up to how many chains does 1-Mem predict better than 2-Gen? No training is involved.

The rival explanation of K1*: a model may bypass 2-Gen simply because 1-Mem is the better predictor
there. It depends on the number of states and the length alone, so no learning rate can move it.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.nearest_predictor import kl_divergence, late_positions
from mechinterp.predictors import one_mem_transition, two_gen
from mechinterp.tasks.chain_sequences import evaluation_sequences, training_chains

LADDER = tuple(dict.fromkeys(round(2 ** (rung / 2)) for rung in range(2, 25)))
"""Values of K tried in turn: 2, 3, 4, 6, 8, 11, 16 and so on to 4096."""

_ENOUGH = 2
"""Rungs past the crossing that are still measured."""

_RESAMPLES = 2000


def gap_table(config: MarkovChainsConfig, draws: int, sequences: int) -> pd.DataFrame:
    """How much worse than 2-Gen is 1-Mem on training chains, at each K?

    Args:
        config: states, length and concentration; its K and chain seed are replaced.
        draws: independent draws of the training chains.
        sequences: sequences for each draw and K.

    Returns:
        One row a `k` and `draw`: `one_mem` and `two_gen`, KL(true row || predictor) in nats at
        positions that have seen a quarter of the sequence. 1-Mem reads out the recognised chain's
        row, as the paper's does. Stops two K past the crossing. Costs seconds.

    Raises:
        InputError: fewer than 2 draws or 1 sequence.
    """
    if draws < 2 or sequences < 1:
        raise InputError(
            f"draws is {draws} and sequences {sequences}; K_x needs at least 2 draws of the chains "
            "and 1 sequence"
        )
    rows: list[dict[str, Any]] = []
    past = 0
    for k in LADDER:
        here = [_gaps(replace(config, k=k, chain_seed=seed), sequences) for seed in range(draws)]
        rows += [{"k": k, "draw": draw, **gaps} for draw, gaps in enumerate(here)]
        past += sum(gaps["one_mem"] - gaps["two_gen"] for gaps in here) > 0
        if past > _ENOUGH:
            break
    return pd.DataFrame(rows)


def static_crossing(gaps: pd.DataFrame, seed: int = 0) -> tuple[float, float, float]:
    """Where does the mean loss of 1-Mem rise past that of 2-Gen?

    Args:
        gaps: what `gap_table` gave.
        seed: of the resamples.

    Returns:
        K_x, interpolated in ln K, with its 95 % interval: bootstrap over draws of the chains,
        widened for their number. 0 or infinite where they do not cross on the ladder.
    """
    difference = gaps.assign(excess=gaps["one_mem"] - gaps["two_gen"])
    table = difference.pivot(index="draw", columns="k", values="excess")
    ks, excess = np.asarray(table.columns, dtype=float), table.to_numpy()
    found = crossing(ks, excess.mean(0))
    n = len(excess)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n
    drawn = np.sort([crossing(ks, row) for row in weights @ excess])
    low, high = drawn[round(0.025 * (_RESAMPLES - 1))], drawn[round(0.975 * (_RESAMPLES - 1))]
    if not (0 < found < math.inf and low > 0 and high < math.inf):
        return found, float(low), float(high)
    widen = math.sqrt(n / (n - 1)) * student.ppf(0.975, n - 1) / student.ppf(0.975, 1e9)
    ends = [found * (end / found) ** widen for end in (low, high)]
    return found, float(ends[0]), float(ends[1])


def crossing(ks: Float[np.ndarray, " k"], excess: Float[np.ndarray, " k"]) -> float:
    """K at which a straight line in ln K rises through 0 for the first time, 0 or infinity."""
    above = np.flatnonzero(excess > 0)
    if len(above) == 0:
        return math.inf
    right = int(above[0])
    if right == 0:
        return 0.0
    left = right - 1
    share = -excess[left] / (excess[right] - excess[left])
    return float(ks[left] * (ks[right] / ks[left]) ** share)


def mean_gaps(gaps: pd.DataFrame) -> pd.DataFrame:
    """Means over draws at each K: `k`, `one_mem`, `two_gen` (nats)."""
    return gaps.groupby("k", as_index=False)[["one_mem", "two_gen"]].mean()


def _gaps(config: MarkovChainsConfig, n: int) -> dict[str, float]:
    sequences, chains = evaluation_sequences(config, n), training_chains(config)
    assert chains is not None
    late = list(late_positions(config.length))
    answers = {
        "one_mem": one_mem_transition(sequences.tokens, chains),
        "two_gen": two_gen(sequences.tokens, config.n_states, config.dirichlet),
    }
    truth = sequences.truth()[:, late]
    return {
        name: kl_divergence(truth, answer[:, late]).mean().item()
        for name, answer in answers.items()
    }
