"""Independent pieces of work on several cores: a thread a core, torch on one thread in each.

Small tensors gain little from torch's own threads, which meet after every operation. Pieces that
need nothing of each other meet once, at the end.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Piece = TypeVar("Piece")


def side_by_side(work: Callable[[Piece], None], pieces: Iterable[Piece], workers: int) -> None:
    """Works on every piece, several at a time, without gradients.

    Torch's own threads are set to one meanwhile, and put back afterwards. When a piece fails, or on
    Ctrl-C, pieces not begun are left, those under way are waited for, and the error goes on.

    Args:
        work: works on one piece; called from several threads.
        pieces: taken one by one, as workers become free.
        workers: threads; 1 to work in the caller's own.
    """
    if workers == 1:
        for piece in pieces:
            work(piece)
        return
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[None]] = set()
        try:
            for piece in pieces:
                waiting.add(pool.submit(_without_gradients, work, piece))
                if len(waiting) > workers:
                    waiting = _raise_first_error(waiting)
            while waiting:
                waiting = _raise_first_error(waiting)
        finally:
            for future in waiting:
                future.cancel()


def workers_on(device: torch.device) -> int:
    """How many pieces to work on at a time: torch's threads on a CPU, one on an accelerator."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _without_gradients(work: Callable[[Piece], None], piece: Piece) -> None:
    with torch.no_grad():  # The mode belongs to a thread, so that the caller's does not count here.
        work(piece)


def _raise_first_error(waiting: set[Future[None]]) -> set[Future[None]]:
    """Waits until some are done; gives the others."""
    done, others = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        future.result()
    return others


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch use one thread: the last bits of a result depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
