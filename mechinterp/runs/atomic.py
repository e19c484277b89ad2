"""Writes that are either complete or absent, and one plain line when the disk refuses."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from circuits.errors import InputError

TEMPORARY = ".tmp-"
"""How the name of every unfinished file or directory begins; a killed process may leave some."""

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and ask again (training: with --resume)",
    errno.EDQUOT: "the quota is used up; free some space and ask again (training: with --resume)",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission denied; choose another place or change the permissions",
    errno.EPERM: "permission denied; choose another place or change the permissions",
    errno.ENOENT: "it or its directory does not exist (any more)",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EEXIST: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory, not a file",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EMFILE: "too many files are open",
}


@contextlib.contextmanager
def plain_errors(doing: str, path: Path) -> Iterator[None]:
    """Turns an operating-system error into an `InputError` that says what failed where and why."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or type(error).__name__)
        raise InputError(f"cannot {doing} {path}: {reason}") from error


def temporary_name(path: Path) -> Path:
    """Gives a fresh temporary name beside `path`, on the same file system."""
    return path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{path.name[:100]}")


def make_room(file: Path) -> None:
    """Makes the folder of a file to come, and finds out before the work whether it can be written.

    Raises:
        InputError: it cannot.
    """
    with plain_errors("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory, not a file")
        probe = temporary_name(file)
        probe.touch()
        probe.unlink()


def write_durably(path: Path, data: bytes) -> None:
    """Writes a new file and waits until the disk has it; not atomic by itself."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes every byte; the system call alone may stop early, for instance on a full disk."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_directory(path: Path) -> None:
    """Waits until the disk has the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: at every instant it has the old content or the new one.

    Raises:
        InputError: the disk refuses; the old content is still there.
    """
    temporary = temporary_name(path)
    with plain_errors("write", path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _claim(descriptor)
            write_all(descriptor, data)
            os.fsync(descriptor)
            os.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        sync_directory(path.parent)


def _claim(descriptor: int) -> None:
    """Marks an unfinished file or directory as being written; the system lifts it at death."""
    # Where a file system knows no locks, `is_written` finds none either.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_written(path: Path) -> bool:
    """Whether a living process holds a lock on a file or directory; leaves no trace."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Fills a temporary directory and gives it its name at the end, so it is complete or absent.

    Args:
        target: the final path; at most an empty directory may be there.

    Yields:
        The temporary directory, beside the target.

    Raises:
        InputError: the disk refuses, or the target exists; nothing is left behind.
    """
    temporary = temporary_name(target)
    with plain_errors("write", target):
        try:
            os.mkdir(temporary)
            with _claimed(temporary):
                yield temporary
                sync_directory(temporary)
                os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(target.parent)


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _claim(descriptor)
        yield
    finally:
        os.close(descriptor)


def remove_directory(path: Path) -> None:
    """Removes a directory as a whole: it loses its name first, and its content afterwards.

    Raises:
        InputError: the disk refuses.
    """
    temporary = temporary_name(path)
    with plain_errors("remove", path):
        os.rename(path, temporary)
        shutil.rmtree(temporary)


def strays(directory: Path) -> list[Path]:
    """Lists what killed processes left unfinished in a directory and in its checkpoints."""
    with plain_errors("read", directory):
        entries = sorted(directory.iterdir())
    found = [entry for entry in entries if entry.name.startswith(TEMPORARY)]
    for entry in entries:
        if entry.name.startswith("step_") and entry.is_dir() and not entry.is_symlink():
            found += strays(entry)
    return found


def remove_stray(path: Path) -> None:
    """Removes one unfinished file or directory."""
    with plain_errors("remove", path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
