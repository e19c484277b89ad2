"""How many chains encode-pool-decode memorises, and whether the same model answers for new ones."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pandas as pd
import torch

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.encode_pool_decode import EncodePoolDecode
from mechinterp.minimal_models.pool_training import PoolTraining, TrainedPool, train_pool
from mechinterp.tasks.base import fork
from mechinterp.tasks.markov_chains import MarkovChains

MEMORISED = 0.5
"""Memorised: nearer to 2-Mem than this times the distance to 2-Gen, on training chains."""

GENERALISES = 1.2
"""Generalises: on new chains no farther from the truth than this times 2-Gen's own distance."""

PREDICTORS = ("one_gen", "two_gen", "two_mem")


@dataclass(frozen=True)
class CapacityGrid:
    """Which models are trained on how many chains."""

    task: MarkovChainsConfig = field(
        default_factory=lambda: MarkovChainsConfig(n_states=5, length=64)
    )
    """States, length and chain seed; its k is replaced by each of `ks`."""
    ks: tuple[int | Literal["inf"], ...] = (4, 8, 16, 32, 64)
    d_tasks: tuple[int, ...] = (1, 2, 4, 8)
    d_hiddens: tuple[int, ...] = (32, 128)
    training: PoolTraining = field(default_factory=PoolTraining)
    seeds: tuple[int, ...] = (0,)
    """Seeds of weights and training sequences; the chains are the same for all."""
    n: int = 256
    """Evaluation sequences of each of the two sets."""


def capacity_grid(
    grid: CapacityGrid, tell: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Which predictor does each size of model end up with, for each number of chains?

    Args:
        grid: sizes, numbers of chains, training.
        tell: is handed one line of progress for every model.

    Returns:
        One row a model: what `pool_row` gives. Costs one training for each combination.

    Raises:
        InputError: a size out of range.
    """
    rows = []
    cells = [
        (seed, d_hidden, d_task, k)
        for seed in grid.seeds
        for d_hidden in grid.d_hiddens
        for d_task in grid.d_tasks
        for k in grid.ks
    ]
    for done, (seed, d_hidden, d_task, k) in enumerate(cells, 1):
        model = EncodePoolDecode(grid.task.n_states, d_task, d_hidden)
        row = pool_row(model, replace(grid.task, k=k), grid.training, seed, grid.n)
        rows.append(row)
        tell(f"{done}/{len(cells)} d_task {d_task} d_hidden {d_hidden} k {k} seed {seed}")
    return pd.DataFrame(rows)


def pool_row(
    model: EncodePoolDecode,
    task: MarkovChainsConfig,
    training: PoolTraining,
    seed: int = 0,
    n: int = 256,
) -> dict[str, float | int | bool | str]:
    """Trains one model and measures what it has become.

    Args:
        model: the sizes.
        task: the chains and the length.
        training: steps, batch and rate.
        seed: of weights and training sequences.
        n: evaluation sequences of each of the two sets.

    Returns:
        The sizes (`n_states`, `length`, `k`, `d_task`, `d_hidden`, `seed`, `steps`), `measured`
        (see there), `late_gain` (nats still gained in the last quarter: convergence) and `seconds`
        of training.
    """
    started = time.perf_counter()
    trained = train_pool(model, task, training, fork(torch.Generator().manual_seed(seed)))
    seconds = time.perf_counter() - started
    return {
        "n_states": task.n_states,
        "length": task.length,
        "k": math.inf if task.k == "inf" else task.k,
        "d_task": model.d_task,
        "d_hidden": model.d_hidden,
        "seed": seed,
        "steps": training.steps,
        **measured(trained, task, n),
        "late_gain": trained.late_gain,
        "seconds": seconds,
    }


def measured(
    trained: TrainedPool, task: MarkovChainsConfig, n: int = 256
) -> dict[str, float | bool]:
    """What has a trained model become?

    All distances are in nats, at positions that have seen a quarter of the sequence.

    Args:
        trained: the model.
        task: the chains it was trained on.
        n: evaluation sequences on training chains, and as many on held-out ones.

    Returns:
        `kl_one_gen`, `kl_two_gen`, `kl_two_mem`: KL(predictor || model) on training chains, and
        with `_new` at the end on held-out chains; `kl_truth`, `kl_truth_new`: KL(true row ||
        model), with `_se` beside them; `gap_two_gen_new`: KL(true row || 2-Gen) on the same
        held-out sequences; `ratio_new`: the model's over 2-Gen's; `memorised` (`kl_two_mem` below
        half of `kl_two_gen`; never for fresh chains) and `generalises` (`ratio_new` up to 1.2).
    """
    chains = MarkovChains(task)
    found = chains.diagnostics(trained, n, "quick")
    row: dict[str, float | bool] = {}
    for suffix in ("", "_new"):
        row[f"kl_truth{suffix}"], row[f"kl_truth{suffix}_se"] = found[f"kl_truth{suffix}"]
        for name in PREDICTORS:
            if f"kl_{name}{suffix}" in found:
                row[f"kl_{name}{suffix}"] = found[f"kl_{name}{suffix}"].value
    row["gap_two_gen_new"] = chains.predictor_gaps(n)["two_gen_new"]
    row["ratio_new"] = row["kl_truth_new"] / row["gap_two_gen_new"]
    row["memorised"] = row.get("kl_two_mem", math.inf) < MEMORISED * row["kl_two_gen"]
    row["generalises"] = row["ratio_new"] <= GENERALISES
    return row


def capacity(table: pd.DataFrame) -> pd.DataFrame:
    """How many chains can each size of model memorise?

    K_c is the largest K, going up the grid, that is memorised with every smaller K: the first
    failure ends it. With several seeds, a K counts when at least half of them memorise it.

    Args:
        table: what `capacity_grid` gave; rows with fresh chains are left out.

    Returns:
        One row for each `d_task` and `d_hidden`: `k_c` (0 when not even the smallest K is
        memorised), `next_k`, the smallest K of the grid that is not (infinite when all of them are:
        `k_c` is then a lower bound, and `bounded` is false), and `seeds`.

    Raises:
        InputError: a column is missing, or every row has fresh chains.
    """
    missing = [c for c in ("k", "d_task", "d_hidden", "memorised") if c not in table]
    if missing:
        raise InputError(
            f"the table has no column {', '.join(missing)}; give what capacity_grid gave"
        )
    cells: dict[tuple[int, int], dict[float, list[bool]]] = {}
    columns = (table[c].tolist() for c in ("d_task", "d_hidden", "k", "memorised"))
    for d_task, d_hidden, k, memorised in zip(*columns, strict=True):
        if k < math.inf:
            cells.setdefault((d_task, d_hidden), {}).setdefault(k, []).append(memorised)
    if not cells:
        raise InputError("no row has a finite k; capacity needs models trained on frozen chains")
    rows = []
    for (d_task, d_hidden), seen in sorted(cells.items()):
        ks = sorted(seen)
        k_c, next_k = _first_failure(ks, [2 * sum(seen[k]) >= len(seen[k]) for k in ks])
        rows.append(
            {
                "d_task": d_task,
                "d_hidden": d_hidden,
                "k_c": k_c,
                "next_k": next_k,
                "bounded": next_k < math.inf,
                "seeds": min(len(seen[k]) for k in ks),
            }
        )
    return pd.DataFrame(rows)


def _first_failure(ks: Sequence[float | int], kept: Sequence[bool]) -> tuple[float, float]:
    last = 0.0
    for k, good in zip(ks, kept, strict=True):
        if not good:
            return last, float(k)
        last = float(k)
    return last, math.inf
