"""Jobs whose runs can be trained as one, put together; the process that watches needs no torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechinterp.engines.local import Report
from mechinterp.stack_kind import can_stack, stack_kind
from mechinterp.sweep.jobs import Job


@dataclass(frozen=True)
class Stack:
    """Runs that none has begun yet and that are trained together where that is quicker."""

    jobs: tuple[Job, ...]

    @property
    def path(self) -> Path:
        """Where its first run lies, by which engines tell stacks apart."""
        return self.jobs[0].path


def stacked(jobs: Sequence[Job], most: int) -> list[Job | Stack]:
    """Puts together what can be trained together, up to a number of runs a stack.

    Args:
        jobs: what is left to do.
        most: runs in a stack, at most.

    Returns:
        The stacks, each where its first run was, and the jobs that go alone: those that have begun,
        those of a kind of their own, and those that ask for what goes run by run.
    """
    kinds: dict[Any, list[Job]] = {}
    for job in jobs:
        alone = most < 2 or job.path.exists() or not can_stack(job.config)
        kinds.setdefault(job.path if alone else (stack_kind(job.config), job.stop), []).append(job)
    work: list[Job | Stack] = []
    for alike in kinds.values():
        for start in range(0, len(alike), most):
            part = tuple(alike[start : start + most])
            work.extend([Stack(part)] if len(part) > 1 else part)
    return work


def one_line(work: Job | Stack) -> str:
    """Brings one run to its end and says how it ended; of a stack, a list of that as JSON."""
    from mechinterp.sweep.one_run import finish
    from mechinterp.sweep.one_stack import finish_stack

    return finish(work).reason if isinstance(work, Job) else json.dumps(finish_stack(work.jobs))


def run_by_run(work: Sequence[Job | Stack], ended: dict[str, str]) -> dict[str, str]:
    """Says how each run ended, from what engines say of each piece of work by its name."""
    said: dict[str, str] = {}
    for piece in work:
        words = ended.get(piece.path.name)
        if words is None:
            continue
        jobs = [piece] if isinstance(piece, Job) else piece.jobs
        told = isinstance(piece, Stack) and not words.startswith("failed")
        endings = json.loads(words) if told else [words] * len(jobs)
        said.update(zip([job.path.name for job in jobs], endings, strict=True))
    return said


def watched(work: Sequence[Job | Stack], watch: Report) -> Report:
    """Tells a watch of runs what an engine tells of jobs and stacks."""

    def report(at_work: Sequence[Job | Stack], ended: dict[str, str]) -> None:
        jobs = [j for piece in at_work for j in ([piece] if isinstance(piece, Job) else piece.jobs)]
        watch(jobs, run_by_run(work, ended))

    return report
