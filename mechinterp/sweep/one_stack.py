"""Several runs of a sweep from start to end: trained as one if that is quicker, then one by one."""

import time
from collections.abc import Sequence

import torch

from circuits.errors import InputError
from mechinterp.stacked_training import train_stacked
from mechinterp.stacking_gain import stacking_gain
from mechinterp.sweep.jobs import Job
from mechinterp.sweep.one_run import finish, last_logged
from mechinterp.sweep.outcome import Outcome, write_outcome

LEAST_GAIN = 1.1
"""Times as fast that stacking has to be in a trial; below it runs are trained apart, which gives
each the bits it always has."""


def finish_stack(jobs: Sequence[Job]) -> list[str]:
    """Brings runs to their ends.

    They are trained together if none of them has begun, as after the loss of a worker, and if a
    trial of a few steps on this machine says that it is quicker.

    Args:
        jobs: of one kind, see `mechinterp.stack_kind`.

    Returns:
        How each ended; "failed: ..." for those that could not go on.
    """
    torch.set_num_threads(jobs[0].threads)
    configs = [job.config for job in jobs]
    fresh = not any(job.path.exists() for job in jobs)
    if fresh and stacking_gain(configs, jobs[0].device) >= LEAST_GAIN:
        _train_together(jobs)
    return [_finished(job) for job in jobs]


def _finished(job: Job) -> str:
    try:
        return finish(job).reason
    except InputError as error:
        return f"failed: {error}"


def _train_together(jobs: Sequence[Job]) -> None:
    started = time.monotonic()
    one = jobs[0]
    endings = train_stacked(
        [job.config for job in jobs],
        [job.path for job in jobs],
        command=one.command,
        stop=one.stop,
        device=one.device,
    )
    share = round((time.monotonic() - started) / len(jobs), 3)
    for job, end in zip(jobs, endings, strict=True):
        step = last_logged(job.path)
        write_outcome(job.path, Outcome(end.reason, step, end.detail, job.stop, share))
