"""The course of training for the explorer: phases, updates of the weights, curvature."""

from typing import Any

import numpy as np
import pandas as pd

from analyses import curvature, phases, weight_updates
from analyses.catalogue import Curvature, Explorer, Phases, WeightUpdates
from analyses.plateau import log_series
from analyses.updates.spans import choose_grid
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, MarkovChainsConfig
from mechinterp.runs import Run

MAX_LAG = 40
"""Updates farther apart than this are not compared: each lag holds one more in memory."""

MAX_ROWS = 60_000
"""Beyond this many cosines, those of parts of the model stay out of the page."""

PLATEAU_NOTE = (
    "Bands: the plateau up to half of tau, the approach up to tau, and after; tau by definition a "
    "(candidate loss below half of ln K, and staying there)."
)
CHAINS_NOTE = "Bands: the Bayes predictor that the model is nearest to; mixed where none is clear."


def phase_bands(run: Run, examples: int, quiet: bool) -> tuple[pd.DataFrame, str]:
    """Gives `phase, start, end` for the whole run with a sentence on what the bands are.

    Returns:
        No rows and an empty text where the task has no phases or the run is too short for them.
    """
    config = run.config.task
    try:
        if isinstance(config, MarkovChainsConfig):
            return chain_bands(_chain_phases(run, examples, quiet)), CHAINS_NOTE
        if isinstance(config, MarginalsConfig):
            return plateau_bands(run), PLATEAU_NOTE
    except InputError:
        pass
    return _bands([]), ""


def chain_bands(table: pd.DataFrame) -> pd.DataFrame:
    """Joins neighbouring steps of the same phase; a change lies half-way between two steps.

    Args:
        table: `step` and `phase`, in order of the steps.
    """
    steps, names = [float(step) for step in table["step"]], list(table["phase"])
    starts = [i for i in range(len(names)) if i == 0 or names[i] != names[i - 1]]
    edges = [steps[0], *((steps[i - 1] + steps[i]) / 2 for i in starts[1:]), steps[-1]]
    return _bands([(names[i], edges[n], edges[n + 1]) for n, i in enumerate(starts)])


def plateau_bands(run: Run) -> pd.DataFrame:
    """Cuts a run of the marginals task at half of tau and at tau, where it is reached.

    Raises:
        InputError: the log lacks what tau is read from.
    """
    config = run.config.task
    if not isinstance(config, MarginalsConfig) or config.variant != "bz_to_a" or config.k < 2:
        return _bands([])
    table: Any = tau_table(log_series(run), float(np.log(config.k))).set_index("definition")
    tau, last = float(table.at["a", "sound"]), float(run.metrics()["step"].max())
    if not np.isfinite(tau):
        return _bands([("plateau", 0.0, last)])
    return _bands([("plateau", 0.0, tau / 2), ("approach", tau / 2, tau), ("after tau", tau, last)])


def update_tables(run: Run, quiet: bool) -> tuple[dict[str, pd.DataFrame], int]:
    """Gives the cosines of all pairs of updates, momentum's own, and the span of an update.

    Raises:
        InputError: the run has too few checkpoints at equal spacing.
    """
    grid = choose_grid(run.steps, None, run.name)
    lags = tuple(n for n in range(1, min(len(grid.starts), MAX_LAG + 1)) if grid.pairs(n))
    asked = WeightUpdates(run=str(run.path), span=grid.span, lags=lags, quiet=quiet)
    tables = weight_updates.answer(asked).tables
    cosines = tables["cosines"]
    if len(cosines) > MAX_ROWS:
        cosines = cosines[cosines["group"] == "model"].reset_index(drop=True)
    momentum = tables["momentum"]
    mine = momentum[momentum["span"] == grid.span].rename(columns={"analytic": "momentum"})
    return {
        "cosines": cosines.assign(group=cosines["group"].astype(str)),
        "momentum": pd.DataFrame(mine[["lag", "momentum"]]),
    }, grid.span


def curvature_points(run: Run, request: Explorer) -> pd.DataFrame:
    """Gives the ends of the Hessian's spectrum at some checkpoints, on as many examples; slow.

    Raises:
        InputError: the run has too few checkpoints.
    """
    asked = Curvature(run=str(run.path), examples=request.examples, quiet=request.quiet)
    return curvature.answer(asked).tables["points"]


def _chain_phases(run: Run, examples: int, quiet: bool) -> pd.DataFrame:
    """The log's phases, which cost nothing, or else those of the checkpoints."""
    log = phases.log_phases(run)
    if len(log) >= phases.MIN_CHECKPOINTS:
        return log
    asked = Phases(run=str(run.path), examples=examples, quiet=quiet)
    return phases.answer(asked).tables["phases"]


def _bands(rows: list[tuple[str, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["phase", "start", "end"])
