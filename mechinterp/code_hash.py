"""A hash of the code behind a number, so that no cache gives out what other code computed.

It covers the module that computes and all that it imports, directly or not, of this project's own
packages: a change in any of them counts, one elsewhere does not.
"""

import hashlib
import importlib.util
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

PACKAGES = ("circuits", "mechinterp", "analyses")
"""Whose imports are followed; what else is imported has a version."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))",
    re.MULTILINE,
)
"""A statement that imports; parsing whole files would take ten times as long."""

_NOWHERE = secrets.token_hex()
"""Stands for code without a file, such as a notebook's: found again in this process alone."""


def code_hash(work: Callable[..., Any]) -> str:
    """Gives the hash of the code that a function, or an object that is called, runs.

    Costs a tenth of a second for the largest, once in a process.
    """
    while isinstance(work, partial):
        work = work.func
    module = getattr(work, "__module__", None)
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return _NOWHERE if file is None else _hash_from(Path(file))


@lru_cache
def _hash_from(start: Path) -> str:
    """Hashes a file and those that it leads to, in an order that no path decides."""
    found, waiting = {start.resolve()}, [start]
    while waiting:
        for file in _imported(waiting.pop()):
            if file not in found:
                found.add(file)
                waiting.append(file)
    each = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in found)
    return hashlib.sha256("".join(each).encode()).hexdigest()


def _imported(file: Path) -> Iterator[Path]:
    """Files of this project's packages that a file imports, anywhere in it."""
    for module, names, whole in _IMPORT.findall(file.read_text(encoding="utf-8")):
        for name in re.findall(r"\w+", names) or [""]:  # What is imported may be a module itself.
            yield from _files(f"{module or whole}.{name}".rstrip("."))


@cache
def _files(name: str) -> tuple[Path, ...]:
    """Files that run when a module of this project is imported: its own and its packages'."""
    return tuple(_run_on_import(*name.split(".")))


def _run_on_import(top: str, *rest: str) -> Iterator[Path]:
    if top not in PACKAGES or (folder := _folder(top)) is None:
        return
    yield folder / "__init__.py"
    for part in rest:
        if (module := folder / f"{part}.py").is_file():
            yield module
            return
        folder /= part
        if not (folder / "__init__.py").is_file():
            return
        yield folder / "__init__.py"


@lru_cache
def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    origin = spec and spec.origin
    return Path(origin).resolve().parent if origin else None
