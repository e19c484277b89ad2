"""Which checkpoints of a complete run stay: all, those around its transition, or none."""

import math
from pathlib import Path

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.runs import Run
from mechinterp.runs.atomic import remove_directory
from mechinterp.runs.lock import RunLock
from mechinterp.runs.manifest import step_directory, steps_of
from mechinterp.sweep.spec import Keep

LEFT, SOLVED = 0.95, 0.05
"""Shares of ln K between which the candidate loss is in transition."""


def steps_to_keep(run: Run, keep: Keep) -> list[int]:
    """Says which checkpoints of a run stay.

    Args:
        run: a complete run.
        keep: "all"; "window", the first, the last, and those of the transition, which for a task
            without candidates is the middle 90 % of the fall of the training loss, widened by half
            of its length to both sides; or "metrics", none.
    """
    steps = run.steps
    if keep == "all" or not steps:
        return steps
    if keep == "metrics":
        return []
    start, end = _window(run)
    return sorted({steps[0], steps[-1]} | {step for step in steps if start <= step <= end})


def _window(run: Run) -> tuple[float, float]:
    rows = run.metrics()
    task = run.config.task
    column = "candidate_loss" if isinstance(task, MarginalsConfig) else "train_loss"
    if column not in rows:
        return -math.inf, math.inf
    curve = rows[["step", column]].dropna()
    low, high = curve[column].min(), curve[column].max()
    if isinstance(task, MarginalsConfig):
        low, high = 0.0, math.log(max(task.k, 2))
    above = curve["step"][curve[column] > low + LEFT * (high - low)]
    below = curve["step"][curve[column] < low + SOLVED * (high - low)]
    start = float(above.max()) if len(above) else 0.0
    end = float(below.min()) if len(below) else math.inf
    margin = abs(end - start) / 2 if math.isfinite(end) else 0.0
    return min(start, end) - margin, max(start, end) + margin


def keep_only(path: Path, steps: list[int]) -> None:
    """Removes the other checkpoints of a run; its metrics stay whole.

    Raises:
        InputError: another process is writing to the run, or the disk refuses.
    """
    unknown = sorted(set(steps) - set(steps_of(path)))
    if unknown:
        raise InputError(f"run {path.name} has no checkpoint at step {unknown[0]}")
    lock = RunLock.acquire(path)
    try:
        for step in steps_of(path):
            if step not in steps:
                remove_directory(step_directory(path, step))
    finally:
        lock.release(path)
