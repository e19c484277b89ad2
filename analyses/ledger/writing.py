"""Writing a study: small CSV tables, what they were made by, and a limit on their size."""

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.ledger.store import MADE
from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors, replace_file

LARGEST = 5_000_000
"""Bytes that a study may have."""

PACKED = 200_000
"""Bytes of a table from which it is compressed."""

DIGITS = "%.6g"


def write_study(
    folder: Path, tables: dict[str, pd.DataFrame], made: dict[str, Any], spec: bytes | None
) -> dict[str, int]:
    """Writes a study's folder anew; tables that it no longer has are removed.

    Args:
        folder: of the study; made if it is not there.
        tables: by name; the first column of each is `run`.
        made: how it was made, as plain JSON values.
        spec: the sweep's description, if there is one.

    Returns:
        Bytes of every file.

    Raises:
        InputError: it would be too large, or the disk refuses.
    """
    files = dict(packed(name, table) for name, table in tables.items() if len(table))
    files[MADE] = (json.dumps(made, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    if spec is not None:
        files["spec.toml"] = spec
    total = sum(map(len, files.values()))
    if total > LARGEST:
        largest = max(files, key=lambda name: len(files[name]))
        raise InputError(
            f"the study would be {total / 1e6:.1f} MB, and {LARGEST / 1e6:.0f} are allowed; its "
            f"largest table is {largest} ({len(files[largest]) / 1e6:.1f} MB): leave runs out, or "
            "ask for fewer checkpoints"
        )
    with plain_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name.endswith((".csv", ".csv.gz")) and path.name not in files:
                path.unlink()
        for name, content in files.items():
            replace_file(folder / name, content)
    return {name: len(content) for name, content in files.items()}


def packed(name: str, table: pd.DataFrame) -> tuple[str, bytes]:
    """Gives the file of a table: its name, and CSV with 6 significant digits, compressed if large;
    the same table always gives the same bytes."""
    text = io.StringIO()
    table.to_csv(text, index=False, float_format=DIGITS, lineterminator="\n")
    content = text.getvalue().encode()
    if len(content) <= PACKED:
        return f"{name}.csv", content
    return f"{name}.csv.gz", gzip.compress(content, mtime=0)


def plain(value: float) -> float | None:
    """A number as JSON can hold it."""
    return value if math.isfinite(value) else None
