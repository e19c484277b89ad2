"""Pieces of work on a Ray cluster; their files lie on storage that every machine sees."""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from circuits.errors import InputError
from mechinterp.engines.local import ATTEMPTS, Report
from mechinterp.runs.lock import InUse

PATIENCE = 60.0
"""Seconds for which a run may be locked by a worker that was lost and has not ended yet."""


def run_ray(
    jobs: Sequence[Any],
    work: Callable[[Any], str],
    address: str | None,
    threads: int,
    gpus: float,
    report: Report,
) -> dict[str, str]:
    """Does every piece of work on the machines of a cluster.

    Work whose worker is lost is started again elsewhere; a run, from its last checkpoint.
    On the same kind of machine, with as many threads, weights are those of the local engine bit for
    bit.

    Args:
        jobs: what to do, each with a `path` that is the same on every machine.
        work: does one, and says how it ended.
        address: cluster to join, such as "auto"; one is started on this machine if None.
        threads: CPUs that a run takes.
        gpus: GPUs that a run takes; a fraction lets runs share one.
        report: for progress.

    Returns:
        As `run_local`.

    Raises:
        InputError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            "--engine ray needs Ray: install the extra, pip install -e '.[ray]', or use --engine "
            "local"
        ) from None
    joined = ray.is_initialized()
    if not joined:
        try:
            _refuse_silent(address)
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"no Ray cluster at {address}: {reason}; start one with `ray start --head`"
            ) from None
    try:
        task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=ATTEMPTS)(_guarded)
        waiting = {task.remote(job, work): job for job in jobs}
        return _collect(ray, waiting, report)
    finally:
        if not joined:
            ray.shutdown()


def _refuse_silent(address: str | None) -> None:
    """Finds out at once whether anybody is there; Ray itself would ask for minutes.

    Raises:
        OSError: nobody is.
        ValueError: this is no address.
    """
    if address is not None and address not in ("auto", "local"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()


def _collect(ray: Any, waiting: dict[Any, Any], report: Report) -> dict[str, str]:
    ended: dict[str, str] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=0.5)
            for reference in ready:
                job = waiting.pop(reference)
                try:
                    ended[job.path.name] = ray.get(reference)
                except ray.exceptions.RayError as error:
                    said = str(error).strip().splitlines()[0]
                    ended[job.path.name] = f"failed: its worker was lost: {said}"
            report(list(waiting.values()), ended)
    finally:
        for reference in waiting:
            with contextlib.suppress(Exception):
                ray.cancel(reference, force=True)
    return ended


def _guarded(job: Any, work: Callable[[Any], str]) -> str:
    """Does one piece of work; a run that a lost worker still holds is waited for."""
    started = time.monotonic()
    while True:
        try:
            return work(job)
        except InUse as error:
            if time.monotonic() - started > PATIENCE:
                return f"failed: {error}"
            time.sleep(1.0)
        except InputError as error:
            return f"failed: {error}"
