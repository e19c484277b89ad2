"""How far a sweep is, as somebody watches it; read from the runs' own logs, whoever writes them."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mechinterp.runs.metrics_log import METRICS

EVERY = 20.0
"""Seconds between two lines when there is no terminal to draw a bar on."""


class Watch:
    """Told by an engine how it goes; a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str, steps: dict[str, int], complete: int, quiet: bool) -> None:
        self._steps, self._complete, self._quiet, self._last = steps, complete, quiet, 0.0
        self._bar = Progress(
            TextColumn(name),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(name, total=sum(steps.values()), note="")

    def __enter__(self) -> "Watch":
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, jobs: Sequence[Any], ended: dict[str, str]) -> None:
        """Takes the jobs at work, and what became of the others by directory name."""
        now = time.monotonic()
        if self._quiet or (self._bar.disable and now - self._last < EVERY):
            return
        self._last = now
        steps = {job.path.name: last_step(job.path) for job in jobs}
        done = sum(self._steps[name] for name in ended) + sum(steps.values())
        total = len(self._steps) + self._complete
        failed = sum(said.startswith("failed") for said in ended.values())
        note = f"{self._complete + len(ended) - failed} of {total} runs complete"
        note += f", {failed} failed" if failed else ""
        self._bar.update(self._task, completed=done, note=note)
        if self._bar.disable:
            at = ", ".join(
                f"{name} step {step}/{self._steps[name]}" for name, step in steps.items()
            )
            print(f"{note}{'; now ' if at else ''}{at}", file=sys.stderr, flush=True)


def last_step(run: Path) -> int:
    """Gives the last logged step of a run, from the end of its log; 0 without one."""
    try:
        with open(run / METRICS, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - 8192, 0))
            lines = file.read().split(b"\n")
        return int(json.loads(lines[-2])["step"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return 0
