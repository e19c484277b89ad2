"""Measuring a run's checkpoints one after the other: cached, with progress, one model at a time."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from analyses.cache import cached
from circuits.errors import InputError
from mechinterp.config import to_json
from mechinterp.runs import Run
from mechinterp.runs.metrics_log import METRICS

Measure = Callable[[Any], pd.DataFrame]
"""Measures the model of one checkpoint; gives any number of rows."""


def measure_checkpoints(
    run: Run,
    steps: Sequence[int],
    question: str,
    options: dict[str, Any],
    measure: Measure,
    quiet: bool = False,
) -> pd.DataFrame:
    """Measures checkpoints in order and keeps what each gave, so that a growing run costs little.

    One model is in memory at a time. A checkpoint whose weights, task and options were measured
    before is not even read.

    Args:
        run: the run.
        steps: those of its steps to measure.
        question: name of the measurement with the number of its version, such as "phases-1".
        options: all else that decides the numbers, as plain JSON values.
        measure: makes the rows of one checkpoint.
        quiet: show no progress.

    Returns:
        The rows of all checkpoints with their `step` as first column.

    Raises:
        InputError: a checkpoint is damaged.
    """
    decided = {
        "question": question,
        "options": options,
        "config": {part: to_json(run.config)[part] for part in ("task", "model")},
        "versions": versions(),
    }
    tables = []
    with progress(f"{question.rpartition('-')[0]}: checkpoints", len(steps), quiet) as advance:
        for step in steps:
            key = {**decided, "weights": run.checkpoint_hash(step)}
            table = cached(key, lambda step=step: measure(run.model(step).eval()))
            tables.append(table.assign(step=step)[["step", *table.columns]])
            advance()
    return pd.concat(tables, ignore_index=True)


@contextlib.contextmanager
def progress(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Shows a bar on stderr, on a terminal only, and gives the function that advances it."""
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def versions() -> dict[str, str]:
    """Gives the versions of what computes the numbers."""
    return {name: version(name) for name in ("torch", "transformer_lens", "mechinterp-toolkit")}


def read_from(run: Run, steps: Sequence[int] = ()) -> dict[str, Any]:
    """What was read of a run: its name, configuration, hashes of its log and checkpoints."""
    log = run.path / METRICS
    return {
        "run": run.name,
        "config": to_json(run.config),
        "metrics_sha256": hashlib.sha256(log.read_bytes()).hexdigest() if log.is_file() else None,
        "checkpoints": {str(step): run.checkpoint_hash(step) for step in steps},
        "versions": versions(),
    }


def check_examples(examples: int) -> None:
    """Refuses a number of examples that leaves no spread to measure.

    Raises:
        InputError: fewer than 2.
    """
    if examples < 2:
        raise InputError(f"examples is {examples}; an interval needs at least 2")
