"""Training as somebody watches it: threads, a progress bar, and where the run is."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from circuits.errors import InputError
from mechinterp.config import RunConfig
from mechinterp.metric_sinks import Sink, make_sink
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.training_loop import Row, train

SHOWN = ("train_loss", "candidate_loss", "z_gap", "loss_new")
"""Metrics worth a place beside the bar, in order, where the task has them."""


def run_training(
    config: RunConfig,
    path: Path,
    *,
    resume: bool,
    threads: int,
    quiet: bool,
    command: str,
    as_json: bool = False,
    log_to: Sequence[Sink] = (),
    device: str = "cpu",
) -> None:
    """Trains a run with progress on stderr: a bar on a terminal, a line now and then elsewhere.

    At the end, what became of the run is printed: nothing where `quiet` is set, one JSON object
    where `as_json` is, with `seconds` those of this call.

    Raises:
        InputError: as `mechinterp.training_loop.train`, for a negative thread count, and for a sink
            that is not installed.
    """
    if threads < 0:
        raise InputError(f"threads is {threads}; it has to be 0 (automatic) or more")
    if threads:
        torch.set_num_threads(threads)
    watcher = _bar if sys.stderr.isatty() else _lines
    sinks = [make_sink(sink, config, path) for sink in log_to]
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)
        reports = [stack.enter_context(watcher(config.training.steps, quiet)), *sinks]

        def report(step: int, row: Row) -> None:
            for one in reports:
                one(step, row)

        train(
            config,
            path,
            resume=resume,
            command=command,
            report=report,
            say=_say(quiet),
            device=device,
        )
    seconds = time.monotonic() - started
    if as_json:
        print(_ending(path, seconds))
    elif not quiet:
        spent = f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
        spent += " since it was taken up" if resume else ""
        print(f"run {path.name}: {config.training.steps} steps, {spent}, in {path}")


def _ending(path: Path, seconds: float) -> str:
    last = list(read_rows(path / METRICS))[-1]
    return json.dumps(
        {
            "run": path.name,
            "path": str(path.resolve()),
            "steps": last["step"],
            "seconds": round(seconds, 3),
            "metrics": last,
        },
        indent=2,
    )


def _say(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else (lambda line: print(line, file=sys.stderr))


def _summary(row: Row) -> str:
    return "  ".join(f"{name} {row[name]:.3f}" for name in SHOWN if name in row)


class _bar:
    """A bar with loss, speed and time left."""

    def __init__(self, steps: int, quiet: bool) -> None:
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet,
        )
        self._bar = self._progress.add_task("training", total=steps, note="")
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> "_bar":
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def __call__(self, step: int, row: Row) -> None:
        now = time.monotonic()
        self._first = self._first or (now, step)
        speed = (step - self._first[1]) / max(now - self._first[0], 1e-9)
        self._progress.update(self._bar, completed=step, note=f"{_summary(row)}  {speed:.1f}/s")


class _lines:
    """A line of progress every twenty seconds, for logs."""

    def __init__(self, steps: int, quiet: bool) -> None:
        self._steps, self._quiet, self._last = steps, quiet, 0.0

    def __enter__(self) -> "_lines":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, step: int, row: Row) -> None:
        if not self._quiet and (time.monotonic() - self._last > 20 or step == self._steps):
            self._last = time.monotonic()
            print(f"step {step}/{self._steps}  {_summary(row)}", file=sys.stderr, flush=True)
