"""What is left to do of a sweep.

This file imports nothing heavy: the process that watches a sweep needs no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mechinterp.config import RunConfig
from mechinterp.runs.locate import is_run
from mechinterp.runs.manifest import steps_of
from mechinterp.stopping import StopRule
from mechinterp.sweep.outcome import read_outcome
from mechinterp.sweep.planning import Planned
from mechinterp.sweep.spec import Keep, Spec

IMPORTED = ("mechinterp.sweep.one_stack", "pandas", "plotly.graph_objects", "scipy.stats")
"""Modules that training and most following commands need, slow to import."""


@dataclass(frozen=True)
class Job:
    """What a process needs to know to bring one run to its end."""

    path: Path
    config: RunConfig
    stop: StopRule
    keep: Keep
    after: tuple[str, ...]
    threads: int
    command: str
    device: str = "cpu"


def jobs_of(
    spec: Spec,
    runs: Sequence[Planned],
    places: dict[str, Path],
    threads: int,
    command: str,
    device: str = "cpu",
) -> list[Job]:
    """Gives the job of every run.

    Args:
        spec: the sweep.
        runs: its runs.
        places: their directories by key.
        threads: CPU threads of each.
        command: recorded with each.
        device: where they train.
    """
    return [
        Job(places[run.key], run.config, spec.stop, spec.keep, spec.after, threads, command, device)
        for run in runs
    ]


def left_to_do(jobs: Sequence[Job]) -> list[Job]:
    """Gives the jobs whose run is not complete, or has a following command still to come."""
    return [job for job in jobs if not _complete(job)]


def _complete(job: Job) -> bool:
    outcome = read_outcome(job.path, job.stop)
    if outcome is None or not is_run(job.path):
        return False
    asked = outcome.reason == "diverged" or set(job.after) <= set(outcome.after)
    thinned = job.keep != "metrics" or not steps_of(job.path)
    return asked and thinned
