"""One writer for each run: a lock that the system drops when its holder dies, however it dies."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from circuits.errors import InputError
from mechinterp.runs.atomic import is_written, plain_errors

LOCK = ".lock"


class InUse(InputError):
    """Another process is writing to the run; it may end soon."""


class RunLock:
    """An exclusive lock on a run's directory, held by an open file in it.

    The file is removed when the lock is given back; one that a killed process left behind is
    locked by nobody and in nobody's way.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> "RunLock":
        """Takes the lock without waiting.

        Args:
            directory: the run, or the temporary directory that becomes one: the lock stays with
                the file when the directory is renamed.

        Raises:
            InputError: another process holds it, or the directory cannot be written to.
        """
        with plain_errors("lock", directory):
            while True:
                lock = cls(os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644))
                try:
                    lock._take(directory)
                except BaseException:
                    os.close(lock._descriptor)
                    raise
                # The holder before us may have removed this very file after we opened it.
                if lock._holds(directory):
                    return lock
                os.close(lock._descriptor)

    def _take(self, directory: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            holder = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            raise InUse(
                f"run {directory.name} is in use by another process (number {holder or '?'}); "
                "wait until it ends, or stop it first"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def _holds(self, directory: Path) -> bool:
        try:
            there = os.stat(directory / LOCK)
        except OSError:
            return False
        mine = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def check(self, directory: Path) -> None:
        """Makes sure that the directory is still the one that was locked.

        Raises:
            InputError: it was deleted, or replaced by another one of the same name.
        """
        if not self._holds(directory):
            raise InputError(
                f"the run directory {directory} was deleted or replaced while it was written to; "
                "start the run again"
            )

    def release(self, directory: Path) -> None:
        """Gives the lock back and removes its file; a second call does nothing."""
        if self._descriptor < 0:
            return
        if self._holds(directory):
            # A file that cannot be removed is locked by nobody, and in nobody's way.
            with contextlib.suppress(OSError):
                os.unlink(directory / LOCK)
        os.close(self._descriptor)
        self._descriptor = -1


def is_locked(directory: Path) -> bool:
    """Whether another process is writing to a run; leaves no trace."""
    return is_written(directory / LOCK)
