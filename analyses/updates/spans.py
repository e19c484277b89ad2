"""Which checkpoints to compare: updates of equal span, as the spacing of a run allows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from circuits.errors import InputError

MIN_UPDATES = 3
"""Updates below which an average cosine has fewer than two pairs behind it."""

DEFAULT_LAGS = (1, 2, 4, 8)
"""Lags to compare at, in updates, as far as the run is long enough."""


@dataclass(frozen=True)
class Grid:
    """Updates that all span the same number of steps.

    Attributes:
        span: steps from the checkpoint before an update to the one after it.
        starts: steps at which the updates start, in order; they do not overlap, but where a
            checkpoint is missing there is a hole between them.
        left_out: saved steps that no update uses.
    """

    span: int
    starts: tuple[int, ...]
    left_out: tuple[int, ...]

    @property
    def steps(self) -> list[int]:
        """Every checkpoint that is read, once, in order."""
        return sorted({s for start in self.starts for s in (start, start + self.span)})

    def pairs(self, lag: int) -> int:
        """How many pairs of updates lie `lag` updates apart."""
        starts = set(self.starts)
        return sum(start + lag * self.span in starts for start in self.starts)


def choose_grid(saved: Sequence[int], span: int | None, name: str) -> Grid:
    """Chooses updates of equal span, because a cosine between a long and a short one misleads.

    An update over more steps averages over more noise, so its direction is steadier, and momentum
    weighs less in it. Without a given span, the one among the gaps between neighbours that yields
    the most updates is taken, of several the longest, which covers most of the run.

    Args:
        saved: steps that have a checkpoint.
        span: steps of an update, or None to choose.
        name: the run, for the error.

    Raises:
        InputError: fewer than `MIN_UPDATES` updates, whatever the span.
    """
    steps = sorted(saved)
    gaps = sorted({later - step for step, later in pairwise(steps)})
    if span is not None and span < 1:
        raise InputError(f"span is {span}; it has to be at least 1 step")
    tried = [_grid(steps, one) for one in ([span] if span is not None else gaps)]
    best = max(tried, key=lambda grid: (len(grid.starts), grid.span), default=None)
    if best is None or len(best.starts) < MIN_UPDATES:
        found = "" if best is None else f" (most of {best.span} steps, {len(best.starts)})"
        raise InputError(
            f"{name} has {len(steps)} checkpoints; at least {MIN_UPDATES} updates of equal span "
            f"are needed{found}: train with a regular --save-every, or choose another --span"
        )
    return best


def choose_lags(grid: Grid, lags: Sequence[int], name: str) -> tuple[int, ...]:
    """Gives the lags to compare at, in updates.

    Raises:
        InputError: a lag below 1, or one at which the run has no pair of updates.
    """
    if not lags:
        return tuple(lag for lag in DEFAULT_LAGS if grid.pairs(lag))
    for lag in lags:
        if lag < 1 or not grid.pairs(lag):
            allowed = [n for n in range(1, len(grid.starts) + 1) if grid.pairs(n)]
            raise InputError(
                f"lag is {lag}; {name} has {len(grid.starts)} updates of {grid.span} steps, which "
                f"allow lags of {allowed[0]} to {allowed[-1]} updates"
                if allowed
                else f"{name} has no two updates of {grid.span} steps to compare; give --span"
            )
    return tuple(sorted(set(lags)))


def _grid(steps: list[int], span: int) -> Grid:
    """The updates of one span, all counted from the offset that yields most of them."""
    saved = set(steps)
    starts = [step for step in steps if step + span in saved]
    if not starts:
        return Grid(span, (), tuple(steps))
    counts = Counter(int(r) for r in np.array(starts) % span)
    offset = max(counts, key=lambda r: (counts[r], -r))
    kept = tuple(step for step in starts if step % span == offset)
    used = {s for step in kept for s in (step, step + span)}
    return Grid(span, kept, tuple(step for step in steps if step not in used))
