"""How long until the cliff, as the context grows: tau against N / ln N."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from scipy.stats import t as student

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention
from mechinterp.minimal_models.symmetric_biases import biases
from mechinterp.minimal_models.symmetric_descent import Cliff, Descent, Scalar, cliff, descend
from mechinterp.tasks.base import fork

LENGTHS = (50, 100, 200, 400, 800)
"""Context lengths N of the paper's law tau ~ N / log N."""

STATES_PER_RATE = 20.0
"""The learning rate is N over this: the cliff is then some 60 to 200 steps away at any length."""


@dataclass(frozen=True)
class CliffStudy:
    """What tau is measured on."""

    n_states: int = 10
    lengths: tuple[int, ...] = LENGTHS
    n_chains: int = 4000
    """Chains in each sample."""
    mu: float = 0.0
    dirichlet: float = 1.0
    states_per_rate: float = STATES_PER_RATE
    steps: int = 600
    """Largest number of steps."""


def tau_table(study: CliffStudy, generator: torch.Generator, n_samples: int = 3) -> pd.DataFrame:
    """When does the cliff come at each context length?

    Args:
        study: lengths, chains and learning rate.
        generator: seeds the samples; it is not advanced.
        n_samples: independent samples of chains; the lengths of one sample share its chains.

    Returns:
        One row for each `sample` and `length`: `n_over_log` (N / ln N), `tau`, `steepest` (both in
        learning rate times steps, see `cliff`), `reached`, `drop` (nats), `c_beta`, `c_beta_se`,
        `tau_c_beta` (the growth of beta up to the cliff if it stayed linear) and `steps`. Holds one
        sample: n_chains * max(lengths) states of 8 bytes. Costs about a minute of one core for each
        sample of 4000 chains with lengths 50 to 800.

    Raises:
        InputError: a length below 2, or too few chains.
    """
    rows = []
    for index in range(n_samples):
        longest = draw_sample(
            study.n_chains,
            study.n_states,
            max(study.lengths),
            fork(generator, index),
            study.dirichlet,
        )
        for length in study.lengths:
            row = {"sample": index, "n_states": study.n_states, "mu": study.mu, "length": length}
            rows.append(row | _cliff_row(longest.last(length), study))
    return pd.DataFrame(rows)


def removal_table(
    sample: ChainSample,
    descent: Descent,
    removals: Sequence[tuple[Scalar, ...]] = ((), ("beta",), ("delta",), ("beta", "delta")),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Does the cliff come later when a weak bias is taken away?

    Args:
        sample: the chains.
        descent: rate, start, and steps: how long to wait for a delayed cliff.
        removals: which constant gradients to subtract, case by case.

    Returns:
        A summary, one row for each `removed` (`none`, `c_beta`, `c_delta`, `c_beta + c_delta`):
        `reached`, `tau` (not a number unless reached), `waited` (how long the descent went on) and
        `drop`; and the trajectories of `descend`, one below the other, with a column `removed`.
    """
    rows, paths = [], []
    for removal in removals:
        name = " + ".join(f"c_{scalar}" for scalar in removal) or "none"
        path = descend(sample, replace(descent, remove=removal))
        found = cliff(path)
        rows.append(
            {
                "removed": name,
                "reached": found.reached,
                "tau": found.tau,
                "waited": path["time"].iloc[-1],
                "drop": found.drop,
            }
        )
        paths.append(path.assign(removed=name))
    return pd.DataFrame(rows), pd.concat(paths, ignore_index=True)


def law_table(table: pd.DataFrame) -> pd.DataFrame:
    """Which power of N / ln N, of N and of 1 / c_beta does tau follow?

    Least squares of ln tau on ln x within each sample of chains, and the spread over samples. With
    tau ~ N / ln N the exponent on N / ln N is 1; the exponent on N is then below 1 at any finite
    length, so both are given.

    Args:
        table: what `tau_table` gave.

    Returns:
        One row for each `x` (`n_over_log`, `length`, `1 / c_beta`): `exponent`, the mean over
        samples, `low` and `high`, its 95 % interval (Student's t over samples; not a number for a
        single sample), `worst`, the largest relative deviation of the mean tau from the fit, and
        `samples`.

    Raises:
        InputError: fewer than three lengths reached the cliff.
    """
    reached = table.loc[table["reached"].astype(bool)]
    lengths = reached["length"].nunique()
    if lengths < 3:
        raise InputError(
            f"{lengths} lengths reached the cliff; a law needs at least 3: "
            "give more lengths or more steps"
        )
    tau = reached["tau"].to_numpy(dtype=float)
    sample, length = reached["sample"].to_numpy(), reached["length"].to_numpy(dtype=float)
    candidates = {
        "n_over_log": length / np.log(length),
        "length": length,
        "1 / c_beta": 1.0 / reached["c_beta"].to_numpy(dtype=float),
    }
    return pd.DataFrame([{"x": n, **_fit(x, tau, sample, length)} for n, x in candidates.items()])


def _fit(
    x: np.ndarray, tau: np.ndarray, sample: np.ndarray, length: np.ndarray
) -> dict[str, float | int]:
    log_x, log_tau = np.log(x), np.log(tau)
    exponents = [
        np.polyfit(log_x[sample == s], log_tau[sample == s], 1)[0]
        for s in np.unique(sample)
        if (sample == s).sum() > 2
    ]
    mean, count = float(np.mean(exponents)), len(exponents)
    half = float("nan")
    if count > 1:
        half = float(student.ppf(0.975, count - 1) * np.std(exponents, ddof=1) / math.sqrt(count))
    middle = [(log_x[length == n].mean(), log_tau[length == n].mean()) for n in np.unique(length)]
    at, height = np.array(middle).T
    off = np.exp(height - np.polyval(np.polyfit(at, height, 1), at)) - 1
    return {
        "exponent": mean,
        "low": mean - half,
        "high": mean + half,
        "worst": float(np.abs(off).max()),
        "samples": count,
    }


def _cliff_row(sample: ChainSample, study: CliffStudy) -> dict[str, float | int | bool]:
    path = descend(
        sample,
        Descent(
            learning_rate=sample.length / study.states_per_rate,
            steps=study.steps,
            start=SymmetricAttention(mu=study.mu),
        ),
    )
    found: Cliff = cliff(path)
    pull = biases(sample, study.mu).c_beta
    return {
        "n_over_log": sample.length / math.log(sample.length),
        "tau": found.tau,
        "steepest": found.steepest,
        "reached": found.reached,
        "drop": found.drop,
        "c_beta": pull.value,
        "c_beta_se": pull.se,
        "tau_c_beta": found.tau * pull.value,
        "steps": len(path) - 1,
    }
