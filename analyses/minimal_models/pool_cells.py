"""One model of the encode-pool-decode grid: trained, measured, and kept in the cache.

Apart from `pool_model`, so that a process that only trains imports no more than it needs.
"""

from dataclasses import asdict, dataclass
from typing import Literal

import pandas as pd

from analyses.cache import cached
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.encode_pool_decode import EncodePoolDecode
from mechinterp.minimal_models.pool_capacity import pool_row
from mechinterp.minimal_models.pool_training import PoolTraining

Cell = tuple[int, int, int | Literal["inf"], int]
"""Task width, hidden width, K and seed of one model."""


@dataclass(frozen=True)
class PoolGrid:
    """What all models of a grid share."""

    n_states: int
    length: int
    steps: int
    examples: int
    versions: dict[str, str]
    """Of what computes the numbers; part of what a kept row is found by."""


def train_cell(grid: PoolGrid, cell: Cell) -> pd.DataFrame:
    """Trains and measures one model of the grid, unless the cache has it; one row."""
    d_task, d_hidden, k, seed = cell
    task = MarkovChainsConfig(grid.n_states, k, grid.length)
    model = EncodePoolDecode(grid.n_states, d_task, d_hidden)
    training = PoolTraining(steps=grid.steps)
    key = {
        "question": "pool-model",
        "task": asdict(task),
        "model": asdict(model),
        "training": asdict(training),
        "seed": seed,
        **{name: getattr(grid, name) for name in ("examples", "versions")},
    }
    return cached(key, lambda: pd.DataFrame([pool_row(model, task, training, seed, grid.examples)]))
