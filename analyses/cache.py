"""Tables that were computed once, found again by the hash of everything that decides them."""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from mechinterp.code_hash import code_hash
from mechinterp.runs.atomic import replace_file
from mechinterp.runs.tables import cache_folder


def cached(key: dict[str, Any], compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Gives a table from the cache, or computes and keeps it.

    Args:
        key: everything that decides the table, as plain JSON values: the question, its options,
            and the hashes of the checkpoints it reads.
        compute: makes the table; its code is part of what decides.

    Returns:
        The table. An unreadable cache entry is computed anew; a folder that cannot be written to
        only costs the time to compute again.
    """
    key = {**key, "code": code_hash(compute)}
    found = look_up(key)
    if found is not None:
        return found
    table = compute()
    keep(key, table)
    return table


def look_up(key: dict[str, Any]) -> pd.DataFrame | None:
    """Gives the table that was kept under a key; None if there is none, or it is unreadable."""
    path = _entry(key)
    try:
        return None if path is None else pd.read_parquet(path)
    except (OSError, ValueError):
        return None


def keep(key: dict[str, Any], table: pd.DataFrame) -> None:
    """Keeps a table, complete or not at all; does nothing where the folder refuses."""
    path = _entry(key)
    if path is None:
        return
    buffer = io.BytesIO()
    table.to_parquet(buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, buffer.getvalue())
    except (OSError, ValueError):
        pass


def _entry(key: dict[str, Any]) -> Path | None:
    folder = cache_folder()
    text = json.dumps(key, sort_keys=True, allow_nan=False)
    return folder and folder / f"{hashlib.sha256(text.encode()).hexdigest()}.parquet"
