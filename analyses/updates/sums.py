"""Sums over the weights that every answer about updates is made from, in one pass over a run."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from analyses.updates.spans import Grid
from analyses.updates.weight_groups import FlatLayout
from mechinterp.runs import Run

Vector = Float[np.ndarray, " parameter"]


_Row = tuple[int, int, str, Float[np.ndarray, " group"]]
"""Step, lag, quantity, and its sum over each group; arrays, because a run has thousands."""


@dataclass(frozen=True)
class _Update:
    """One update, divided by the root mean square of its entries so that nothing underflows."""

    start: int
    unit: Vector
    scale: float


def update_sums(
    run: Run, layout: FlatLayout, grid: Grid, lags: tuple[int, ...], advance: Callable[[], None]
) -> pd.DataFrame:
    """Reads the checkpoints in order and sums what cosines, norms and bands need.

    Held in memory: the weights before and after an update, the displacement from the first to the
    last checkpoint of the run, and the last `max(lags)` updates; 4 bytes a parameter each.

    Args:
        run: the run.
        layout: of its weights.
        grid: updates to compare.
        lags: distances between compared updates, in updates.
        advance: called after every update.

    Returns:
        A row for each update (`step` is its start), `lag` and `quantity`, a column for each group:
        with lag 0, `square` (of the update), `weight_square` (before it), `along`
        (update . displacement), `along_square` (sum of squares of those products) and
        `displacement_square`; with lag l, `dot` and `dot_square` (the sum of the products and of
        their squares) for this update and the one that starts l spans later.

    Raises:
        InputError: a checkpoint is damaged, not finite, or of another model.
    """
    steps = run.steps
    far = _read(run, layout, steps[-1]) - _read(run, layout, steps[0])
    end = _Update(0, *_unit(far))
    window: deque[_Update] = deque(maxlen=max(lags))
    rows: list[_Row] = []
    after, at = None, -1
    for start in grid.starts:
        before = after if at == start and after is not None else _read(run, layout, start)
        after, at = _read(run, layout, start + grid.span), start + grid.span
        update = _Update(start, *_unit(after - before))
        rows += _own_rows(layout, update, end, before)
        for earlier in window:
            lag = (start - earlier.start) // grid.span
            if lag in lags:
                dot, square = _products(layout, earlier, update)
                rows.append((earlier.start, lag, "dot", dot))
                rows.append((earlier.start, lag, "dot_square", square))
        window.append(update)
        advance()
    return _frame(layout, rows)


def _own_rows(layout: FlatLayout, update: _Update, end: _Update, before: Vector) -> list[_Row]:
    """What is summed of an update by itself and with the displacement."""
    along, along_square = _products(layout, update, end)
    sums = {
        "square": _squares(layout, update.unit) * update.scale**2,
        "weight_square": _squares(layout, before),
        "along": along,
        "along_square": along_square,
        "displacement_square": _squares(layout, end.unit) * end.scale**2,
    }
    return [(update.start, 0, name, by_group) for name, by_group in sums.items()]


def _products(layout: FlatLayout, one: _Update, other: _Update) -> tuple[Any, Any]:
    """Sum over each group of the products of two updates, and of the squares of the products."""
    product, scale = one.unit * other.unit, one.scale * other.scale
    # A matrix product sums in blocks, which keeps six digits in float32; a plain running sum of
    # this many products would not.
    dots = np.array([float(one.unit[s] @ other.unit[s]) for s in layout.segments])
    return layout.by_group(dots) * scale, _squares(layout, product) * scale**2


def _squares(layout: FlatLayout, vector: Vector) -> Float[np.ndarray, " group"]:
    return layout.by_group(np.array([float(vector[s] @ vector[s]) for s in layout.segments]))


def _frame(layout: FlatLayout, rows: list[_Row]) -> pd.DataFrame:
    table = pd.DataFrame(np.stack([row[3] for row in rows]), columns=list(layout.groups))
    for at, name in enumerate(("step", "lag", "quantity")):
        table.insert(at, name, [row[at] for row in rows])
    return table


def _unit(delta: Vector) -> tuple[Vector, float]:
    scale = float(np.linalg.norm(delta)) / len(delta) ** 0.5
    return (delta / np.float32(scale) if scale > 0 else delta), scale


def _read(run: Run, layout: FlatLayout, step: int) -> Vector:
    return layout.flatten(run.weights(step), f"step_{step} of {run.name}")
