"""Pieces of work side by side on this machine, a process each; one that dies is started again.

Processes are forked from one that has imported what is slow to import, so each starts at once.
"""

import multiprocessing
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from circuits.errors import InputError
from mechinterp.workers import interrupts_held_back, start_worker

ATTEMPTS = 3
"""How often work is started whose process dies without a word, as for want of memory."""

Report = Callable[[Sequence[Any], dict[str, str]], None]
"""Called now and then with the jobs at work and what became of the others, by name."""


@dataclass
class _Worker:
    job: Any
    process: ForkServerProcess
    answer: Connection


def run_local(
    jobs: Sequence[Any],
    work: Callable[[Any], str],
    at_once: int,
    report: Report,
    imported: Sequence[str] = (),
) -> dict[str, str]:
    """Does every piece of work.

    Args:
        jobs: what to do, each with a `path` whose name is its own.
        work: does one, and says how it ended; picklable.
        at_once: processes at the same time.
        report: for progress.
        imported: modules to import once, for all processes.

    Returns:
        By name of its path, how each ended; "failed: ..." for those that could not go on.
        In every case, Ctrl-C included, no process is left behind.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(imported))
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
    with suppress(BrokenPipeError):  # Interrupted, nobody listens any more.
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
