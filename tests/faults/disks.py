"""Real trouble with disks, in a process of its own: full, read-only, not one's own.

A process that enters a mount namespace sees a small or read-only file system where others see the
folder as it is. That takes root or user namespaces; where neither is there, `possible` says no.
"""

import contextlib
import ctypes
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults import children

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_CAPABILITIES_VERSION = 0x20080522


def possible() -> bool:
    """Whether this machine lets a process mount a file system that only it sees."""
    return children.finish(_try) == 0


def _try() -> None:
    _enter()


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _enter() -> None:
    if os.getuid() == 0:
        _call("unshare", _NEW_MOUNTS)
    else:
        user, group = os.getuid(), os.getgid()
        _call("unshare", _NEW_MOUNTS | _NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)


@contextlib.contextmanager
def _full(place: Path, kilobytes: int, out: Path) -> Iterator[None]:
    _enter()
    before = out / "before"
    if place.exists() and any(place.iterdir()):
        shutil.copytree(place, before)
    place.mkdir(parents=True, exist_ok=True)
    options = f"size={kilobytes}k".encode()
    _call("mount", b"none", os.fsencode(place), b"tmpfs", 0, options)
    if before.exists():
        shutil.copytree(before, place, dirs_exist_ok=True)
    try:
        yield
    finally:
        shutil.copytree(place, out / "after")


@contextlib.contextmanager
def _read_only(place: Path) -> Iterator[None]:
    _enter()
    folder = os.fsencode(place)
    _call("mount", folder, folder, None, _BIND, None)
    _call("mount", folder, folder, None, _BIND | _REMOUNT | _READ_ONLY, None)
    yield


@contextlib.contextmanager
def _not_ones_own(place: Path) -> Iterator[None]:
    """Takes the right to write away, and from root the power to write all the same."""
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    try:
        yield
    finally:
        for folder in folders:
            folder.chmod(0o755)


@contextlib.contextmanager
def _file_size(limit: int) -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    yield


def used_kilobytes(place: Path) -> int:
    """What the files below a folder take on a small disk, in its pages of 4 KiB."""
    return 4 * sum(-(-path.stat().st_size // 4096) for path in place.rglob("*") if path.is_file())


def command(trouble: tuple, *asked: object) -> None:
    """Runs a command as `children.command` does, in trouble: ("full", place, kilobytes, out),
    ("read-only", place) or ("denied", place)."""
    kinds = {"full": _full, "read-only": _read_only, "denied": _not_ones_own}
    kinds["file-size"] = _file_size
    kind, *arguments = trouble
    with kinds[kind](*arguments):
        children.command(*asked)
