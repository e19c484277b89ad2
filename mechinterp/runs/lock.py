"""One writer for each run: a lock that the system drops when its holder dies, however it dies."""

import errno
import fcntl
import os
from pathlib import Path

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors

LOCK = ".lock"


class RunLock:
    """An exclusive lock on a run's directory, held by an open file."""

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
        path = directory / LOCK
        with plain_errors("lock", directory):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
            except OSError as error:
                holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
                os.close(descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise InputError(
                    f"run {directory.name} is in use by another process (number {holder or '?'}); "
                    "wait until it ends, or stop it first"
                ) from None
        return cls(descriptor)

    def check(self, directory: Path) -> None:
        """Makes sure that the directory is still the one that was locked.

        Raises:
            InputError: it was deleted, or replaced by another one of the same name.
        """
        try:
            there = os.stat(directory / LOCK)
        except OSError:
            there = None
        mine = os.fstat(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise InputError(
                f"the run directory {directory} was deleted or replaced while it was written to; "
                "start the run again"
            )

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
