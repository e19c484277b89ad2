"""Tables that were computed once, found again by the hash of everything that decides them."""

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from mechinterp.runs.atomic import replace_file

VARIABLE = "MECHINTERP_CACHE"
"""Environment variable that names the cache's folder; "off" switches the cache off."""


def cache_folder() -> Path | None:
    """Gives the folder of cached tables, or None when the cache is off."""
    given = os.environ.get(VARIABLE)
    if given == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "mechinterp-toolkit"


def cached(key: dict[str, Any], compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Gives a table from the cache, or computes and keeps it.

    Args:
        key: everything that decides the table, as plain JSON values: the question and its version,
            its options, and the hashes of the checkpoints it reads.
        compute: makes the table.

    Returns:
        The table. An unreadable cache entry is computed anew; a folder that cannot be written to
        only costs the time to compute again.
    """
    folder = cache_folder()
    if folder is None:
        return compute()
    text = json.dumps(key, sort_keys=True, allow_nan=False)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()}.parquet"
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError):
        pass
    table = compute()
    buffer = io.BytesIO()
    table.to_parquet(buffer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, buffer.getvalue())
    except (OSError, ValueError):
        pass
    return table
