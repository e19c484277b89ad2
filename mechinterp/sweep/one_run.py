"""One run of a sweep from start to end: train, ask what is to be asked, keep what is to be kept."""

import contextlib
import io
import os
import runpy
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.stopping import Diverged
from mechinterp.sweep.jobs import Job
from mechinterp.sweep.keeping import keep_only, steps_to_keep
from mechinterp.sweep.outcome import Outcome, read_outcome, write_outcome
from mechinterp.training_loop import train


def finish(job: Job) -> Outcome:
    """Brings a run to its end from wherever it is, and runs each following command once.

    Raises:
        InputError: the run is in use or cannot be written, or a following command failed.
    """
    torch.set_num_threads(job.threads)
    outcome = read_outcome(job.path, job.stop)
    if outcome is None:
        outcome = _train(job)
        write_outcome(job.path, outcome)
    for line in job.after:
        if line not in outcome.after and outcome.reason != "diverged":
            _run_module(line, job.path)
            outcome = replace(outcome, after=(*outcome.after, line))
            write_outcome(job.path, outcome)
    if job.keep != "all":
        keep_only(job.path, steps_to_keep(Run.open(job.path), job.keep))
    return outcome


def _train(job: Job) -> Outcome:
    started = time.monotonic()
    detail = ""
    try:
        reason = train(
            job.config,
            job.path,
            resume=True,
            command=job.command,
            stop=job.stop,
            device=job.device,
        )
    except Diverged as error:
        reason, detail = "diverged", str(error)
    seconds = round(time.monotonic() - started, 3)
    return Outcome(reason, last_logged(job.path), detail, job.stop, seconds)


def last_logged(run: Path) -> int:
    """Gives the last step of a run that has a row of metrics; 0 without one."""
    rows = Run.open(run).metrics()
    return int(rows["step"].iloc[-1]) if len(rows) else 0


def _run_module(line: str, run: Path) -> None:
    """Runs `python -m LINE` in this process, which has imported all that is slow to import.

    Raises:
        InputError: it left with another exit code than 0; its last words are given.
    """
    (run / "answers").mkdir(exist_ok=True)
    module, *arguments = (part.replace("{run}", str(run)) for part in shlex.split(line))
    said = io.StringIO()
    before = sys.argv
    sys.argv = [module, *arguments]
    code: object = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as leave:
        code = leave.code or 0
    except ImportError as error:
        raise InputError(f"`{line}` after run {run.name}: {error}") from None
    finally:
        sys.argv = before
    if code:
        words = (said.getvalue().strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"`{line}` failed after run {os.path.basename(run)}: {words}")
