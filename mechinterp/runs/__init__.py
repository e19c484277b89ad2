"""Runs on disk: configuration, metrics and checkpoints, each either complete or absent."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mechinterp.runs.locate import DEFAULT_RUN, check_name, find_run, list_runs, new_run_path
    from mechinterp.runs.reader import Run, open_checkpoint
    from mechinterp.runs.writer import RunWriter

# Imported on first use, so that a command can show its help without loading torch and pandas.
_HOME = {
    "DEFAULT_RUN": "locate",
    "check_name": "locate",
    "find_run": "locate",
    "list_runs": "locate",
    "new_run_path": "locate",
    "Run": "reader",
    "open_checkpoint": "reader",
    "RunWriter": "writer",
}

__all__ = [
    "DEFAULT_RUN",
    "Run",
    "RunWriter",
    "check_name",
    "find_run",
    "list_runs",
    "new_run_path",
    "open_checkpoint",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
