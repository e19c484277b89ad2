"""Ctrl-C while a command is still importing: one line and code 130, as later on.

An exception raised in the middle of somebody's import shows a traceback, or comes out as another
one. Nothing has been begun at that time, so the process can simply leave. Importing this module
changes nothing; only a command calls it.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class _Leaving:
    """A signal handler that says who was interrupted, and leaves."""

    def __init__(self, prog: str) -> None:
        self.prog = prog

    def __call__(self, number: int, frame: FrameType | None) -> None:
        os.write(2, f"{self.prog}: interrupted before anything was begun\n".encode())
        os._exit(130)


def leave_quietly(prog: str) -> None:
    """Lets Ctrl-C end the process with one line, until `interruptible` is called.

    A process that was told to ignore it, or that handles it otherwise, is left as it is.

    Args:
        prog: how the command is called, for the line.
    """
    if _handles(signal.default_int_handler):
        signal.signal(signal.SIGINT, _Leaving(prog))


def interruptible() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if isinstance(signal.getsignal(signal.SIGINT), _Leaving):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def leaving_quietly(prog: str) -> Iterator[None]:
    """The same for a stretch of a command in which nothing is kept, such as its heavy imports."""
    leave_quietly(prog)
    try:
        yield
    finally:
        interruptible()


def _handles(handler: object) -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is handler
