"""The same work on many items in processes of their own, all of which end when this one stops.

This file imports nothing heavy, so that a process that is starting can already be ended.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import TypeVar

from circuits.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def n_cores() -> int:
    """Gives the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Does the same work on every item, several at a time, and gives each result as it comes.

    Processes are started afresh rather than forked, which torch's threads do not survive. Each has
    one thread, does one item at a time, and keeps what it imported for the next.

    Args:
        work: picklable, as are the items and the results.
        items: what to work on.
        jobs: processes at most.

    Yields:
        Items with their results, in the order in which they are finished.

    Raises:
        InputError: a process died, for want of memory for instance.
        Exception: whatever `work` raised. In every case, Ctrl-C and a closed generator included,
            all processes are ended at once.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), context, initializer=start_worker)
    try:
        with interrupts_held_back():
            waiting = {pool.submit(work, item): item for item in items}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise InputError(
            f"one of {min(jobs, len(items))} processes died, perhaps for want of memory; what was "
            "finished is kept: try fewer --jobs"
        ) from None
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Starts processes that Ctrl-C does not reach: this one ends them, without their tracebacks.

    A process inherits which signals are held back. The tracker of shared resources lifts that when
    it is started, so it is started before.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def start_worker() -> None:
    """Sets up a process before it imports anything heavy."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _THREADS:
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Waits for the process that started this one, and does not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
