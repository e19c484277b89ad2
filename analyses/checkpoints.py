"""Measuring a run's checkpoints: cached, with progress, one model at a time in each process."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from analyses.cache import keep, look_up
from circuits.errors import InputError
from circuits.side_by_side import one_thread
from mechinterp.code_hash import code_hash
from mechinterp.config import to_json
from mechinterp.runs import Run
from mechinterp.runs.metrics_log import METRICS
from mechinterp.workers import in_processes

Measure = Callable[[Any], pd.DataFrame]
"""Measures the model of one checkpoint; gives any number of rows."""


def measure_checkpoints(
    run: Run,
    steps: Sequence[int],
    question: str,
    options: dict[str, Any],
    measure: Measure,
    quiet: bool = False,
    jobs: int | None = None,
) -> pd.DataFrame:
    """Measures checkpoints in order and keeps what each gave, so that a growing run costs little.

    One model is in memory at a time, in each process. A checkpoint whose weights, task and options
    were measured before, by the same code, is not even read. What is finished is kept at once, so
    an interrupted scan goes on where it stopped.

    Args:
        run: the run.
        steps: those of its steps to measure.
        question: name of the measurement, such as "phases".
        options: all else that decides the numbers, as plain JSON values.
        measure: makes the rows of one checkpoint.
        quiet: show no progress.
        jobs: processes that measure at the same time, one thread each; `measure` then has to be
            picklable, such as a frozen dataclass that is called, and the numbers are the same for
            any number of jobs. With None, this process measures with all its threads.

    Returns:
        The rows of all checkpoints with their `step` as first column.

    Raises:
        InputError: a checkpoint is damaged, or `jobs` is below 1.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; it has to be at least 1")
    decided = {
        "question": question,
        "code": code_hash(measure),
        "options": options,
        "config": {part: to_json(run.config)[part] for part in ("task", "model")},
        "versions": versions(),
    }
    keys = {step: {**decided, "weights": run.checkpoint_hash(step)} for step in steps}
    tables = {step: look_up(key) for step, key in keys.items()}
    missing = [step for step, table in tables.items() if table is None]
    with progress(f"{question}: checkpoints", len(steps), quiet) as advance:
        for _ in range(len(steps) - len(missing)):
            advance()
        with contextlib.closing(_measured(run, missing, measure, jobs)) as finished:
            for step, table in finished:
                keep(keys[step], table)
                tables[step] = table
                advance()
    found = [(step, table) for step, table in tables.items() if table is not None]
    return pd.concat(
        [table.assign(step=step)[["step", *table.columns]] for step, table in found],
        ignore_index=True,
    )


def _measured(
    run: Run, steps: Sequence[int], measure: Measure, jobs: int | None
) -> Generator[tuple[int, pd.DataFrame]]:
    """Measures steps in any order and gives each as soon as it is there."""
    if jobs is not None and min(jobs, len(steps)) > 1:
        yield from in_processes(_Measured(run.path, measure), steps, jobs)
        return
    with one_thread() if jobs is not None else contextlib.nullcontext():
        for step in steps:
            yield step, measure(run.model(step).eval())


@dataclass(frozen=True)
class _Measured:
    """Measures one checkpoint of a run, in a process that does nothing else."""

    path: Path
    measure: Measure

    def __call__(self, step: int) -> pd.DataFrame:
        with one_thread():
            return self.measure(_opened(self.path).model(step).eval())


@lru_cache(maxsize=1)
def _opened(path: Path) -> Run:
    """Opens a run once in each process, so that its task is made once."""
    return Run.open(path)


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
