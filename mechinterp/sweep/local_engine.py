"""Runs of a sweep side by side on this machine, a process each; a process that dies loses nothing.

Processes are forked from one that has imported torch and TransformerLens, so a run starts at once.
"""

import multiprocessing
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from circuits.errors import InputError
from mechinterp.workers import interrupts_held_back, start_worker

ATTEMPTS = 3
"""How often a run is started whose process dies without a word, as for want of memory."""

_IMPORTED = ("mechinterp.sweep.one_run", "pandas", "plotly.graph_objects", "scipy.stats")

Report = Callable[[Sequence[Any], dict[str, str]], None]
"""Called now and then with the jobs at work and what became of the others, by directory name."""


@dataclass
class _Worker:
    job: Any
    process: ForkServerProcess
    answer: Connection


def run_local(
    jobs: Sequence[Any], work: Callable[[Any], str], at_once: int, report: Report
) -> dict[str, str]:
    """Brings every run to its end.

    Args:
        jobs: what to do, each with a `path`.
        work: does one, and says how it ended; picklable.
        at_once: processes at the same time.
        report: for progress.

    Returns:
        By name of the run's directory, how it ended; "failed: ..." for those that could not go on.
        In every case, Ctrl-C included, no process is left behind.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    waiting = deque(jobs)
    attempts: dict[str, int] = {}
    ended: dict[str, str] = {}
    at_work: list[_Worker] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < at_once:
                at_work.append(_start(context, waiting.popleft(), work))
            wait([w.answer for w in at_work], timeout=0.5)
            for worker in [w for w in at_work if w.answer.poll()]:
                at_work.remove(worker)
                name = worker.job.path.name
                said = _last_words(worker)
                attempts[name] = attempts.get(name, 0) + 1
                if said is None and attempts[name] < ATTEMPTS:
                    waiting.appendleft(worker.job)
                    continue
                ended[name] = said or f"failed: its process died {ATTEMPTS} times"
            report([w.job for w in at_work], ended)
    finally:
        for worker in at_work:
            worker.process.kill()
            worker.process.join()
    return ended


def _start(context: Any, job: Any, work: Callable[[Any], str]) -> _Worker:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, work, theirs))
    with interrupts_held_back():
        process.start()
    theirs.close()
    return _Worker(job, process, ours)


def _work(job: Any, work: Callable[[Any], str], answer: Connection) -> None:
    start_worker()
    try:
        said = work(job)
    except InputError as error:
        said = f"failed: {error}"
    except Exception:
        said = f"failed: {traceback.format_exc()}"
    answer.send(said)


def _last_words(worker: _Worker) -> str | None:
    """What a process said at its end; None if it was killed before it could."""
    try:
        return worker.answer.recv()
    except EOFError:
        return None
    finally:
        worker.answer.close()
        worker.process.join()
