"""metrics.jsonl: one JSON object a line, in the order in which it was measured."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors, replace_file, write_all
from mechinterp.runs.manifest import Seal
from mechinterp.runs.sealed_json import parse_json

METRICS = "metrics.jsonl"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads the rows of a metrics file, in file order.

    Unreadable lines at the very end are what a kill or a power cut leaves and are passed over.

    Args:
        path: the file; a run without one has no rows.

    Raises:
        InputError: a line before the last readable one is damaged; it is named.
    """
    return [row for row, _ in _scan(path)]


def _scan(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    try:
        with plain_errors("read", path):
            data = path.read_bytes()
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    rows: list[tuple[dict[str, Any], bytes]] = []
    torn = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        row = _parse(line) if line.strip() else None
        if row is None:
            torn = torn or (number if line.strip() else 0)
        elif torn:
            raise InputError(
                f"{path} is damaged: line {torn} is not a JSON object with an integer step, and "
                "readable lines follow it; restore the file from a copy"
            )
        else:
            rows.append((row, line))
    return rows


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        return None
    return row if 0 <= row["step"] < 2**53 else None


class MetricsLog:
    """Appends rows to a metrics file and knows the hash of everything it holds."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file; a torn last line is dropped."""
        self.path = path
        self._rewrite(_scan(path))

    def _rewrite(self, rows: list[tuple[dict[str, Any], bytes]]) -> None:
        data = b"".join(line + b"\n" for _, line in rows)
        with plain_errors("write", self.path):
            if not self.path.exists() or self.path.read_bytes() != data:
                replace_file(self.path, data)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._size, self._hash = len(data), hashlib.sha256(data)

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; the system has it when this returns.

        Args:
            row: at least an integer `step`; values are numbers, strings, or JSON of them. A value
                that is not finite is written as null, which every JSON reader understands.

        Raises:
            InputError: no step is given, or the disk refuses; the row is then absent.
        """
        plain = {name: _plain(value) for name, value in row.items()}
        if type(plain.get("step")) is not int or not 0 <= plain["step"] < 2**53:
            raise InputError(f"a row of metrics needs an integer step, not {row.get('step')!r}")
        data = (json.dumps(plain) + "\n").encode()
        with plain_errors("write", self.path):
            try:
                write_all(self._descriptor, data)
            except OSError:
                os.ftruncate(self._descriptor, self._size)
                raise
        self._size += len(data)
        self._hash.update(data)

    def drop_after(self, step: int) -> None:
        """Drops the rows of later steps, keeping the others byte for byte."""
        rows = _scan(self.path)
        self.close()
        self._rewrite([(row, line) for row, line in rows if row["step"] <= step])

    def sync(self) -> None:
        """Waits until the disk has every row."""
        with plain_errors("write", self.path):
            os.fsync(self._descriptor)

    def seal(self) -> Seal:
        """Gives the length and the sha256 of the file as it is now."""
        return Seal(self._size, self._hash.hexdigest())

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _plain(value: Any) -> Any:
    """Turns a scalar tensor or numpy number into a plain one, and what is not finite into None."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
