"""When has a task been learned? Bars for the forward and the reverse task, and the steps."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyses.plateau import log_series
from analyses.rows import Row, numbers
from analyses.waiting.crossings import first_below, held_below, shifted
from mechinterp.runs import Run

Role = Literal["forward", "reverse"]

PAPER = "paper"
"""Name of the paper's own bars, which are unequal."""

PAPER_NATS = 0.1
"""The paper's bar for the forward task: this first-token loss, in nats whatever the alphabet."""

PAPER_SHARE = 0.5
"""The paper's bar for the reverse task: this share of ln K in candidate loss."""

PAPER_EVERY: dict[Role, int] = {"forward": 50, "reverse": 200}
"""Steps between two looks of the paper at each task; also unequal."""

MEASURES: dict[str, dict[Role, tuple[str, str]]] = {
    "first_token": {
        "forward": ("first_token_ce", "ln_36"),
        "reverse": ("first_token_ce", "ln_36"),
    },
    "answer": {
        "forward": ("target_ce", "ignorant_target_ce"),
        "reverse": ("target_ce", "ignorant_target_ce"),
    },
    "own": {
        "forward": ("first_token_ce", "ln_36"),
        "reverse": ("candidate_loss", "ln_k"),
    },
}
"""Equal bars: a loss of each task, and the reference line of one who knows nothing, whose share it
has to fall to. `own` takes the two losses of the paper, which are not the same loss."""


@dataclass(frozen=True)
class Bar:
    """A loss and how far it has to fall."""

    name: str
    share: float
    """Of the loss of ignorance; NaN for the paper's bars."""
    loss: str
    nats: float


def bars_of(run: Run, role: Role, shares: tuple[float, ...]) -> list[Bar]:
    """Gives the paper's bar of a task and then the equal ones, in nats.

    Args:
        run: of the variant that belongs to the role.
        role: whether the run is of the forward or the reverse task.
        shares: equal bars, as shares of the loss of ignorance.
    """
    lines = run.task().reference_lines()
    if role == "forward":
        bars = [Bar(PAPER, math.nan, "first_token_ce", PAPER_NATS)]
    else:
        bars = [Bar(PAPER, math.nan, "candidate_loss", PAPER_SHARE * lines["ln_k"])]
    for name, by_role in MEASURES.items():
        loss, level = by_role[role]
        bars += [Bar(name, share, loss, share * lines[level]) for share in shares]
    return bars


def times_of(run: Run, role: Role, shares: tuple[float, ...]) -> list[Row]:
    """When does a run pass every bar?

    The paper's bars count at the first look below them; equal ones when the loss stays below for
    at least five rows, interpolated between rows.

    Args:
        run: the run; its log is read and no weights.
        role: whether it is of the forward or the reverse task.
        shares: equal bars, as shares of the loss of ignorance.

    Returns:
        One row a bar: `role`, `run`, `bar`, `share`, `loss`, `nats`, `time` (steps, infinite where
        the run ends first), `low` and `high`, its range when the whole series moves by 1.96
        standard errors, and `last`, the last logged step.

    Raises:
        InputError: the log is too short, or lacks a loss.
    """
    bars = bars_of(run, role, shares)
    series = log_series(run, sorted({bar.loss for bar in bars}), otherwise="")
    steps, rows = numbers(series, "step"), []
    for bar in bars:
        moved = shifted(numbers(series, bar.loss), numbers(series, f"{bar.loss}_se"))
        if bar.name == PAPER:
            seen = looks(steps, PAPER_EVERY[role])
            times = first_below(steps[seen], moved[:, seen], bar.nats)
        else:
            times = held_below(steps, moved, bar.nats)
        row = {"role": role, "run": run.name, "bar": bar.name, "share": bar.share}
        row |= {"loss": bar.loss, "nats": bar.nats, "time": float(times[len(times) // 2])}
        row |= {"low": float(times.min()), "high": float(times.max()), "last": int(steps[-1])}
        rows.append(row)
    return rows


def looks(steps: np.ndarray, every: int) -> np.ndarray:
    """Which rows would have been seen by somebody who looks every so many steps?

    Args:
        steps: steps of the rows, rising.
        every: steps between two looks; a coarser log is seen whole.

    Returns:
        Positions of the first row at or after each look.
    """
    due = np.arange(0, steps[-1] + 1, every)
    return np.unique(np.searchsorted(steps, due))
