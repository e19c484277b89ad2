"""JSON files that carry the hash of their own content."""

import hashlib
import json
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors

LIMIT = 16 * 2**20
"""No description of a run or a checkpoint is larger than this many bytes."""


def parse_json(data: bytes) -> Any:
    """Parses JSON from an untrusted file; every way to fail is a ValueError.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deeply, or a number with too many digits.
    """
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        InputError: the file cannot be read, is too large, or is not a JSON object.
    """
    return _object(path, _read(path))


def _read(path: Path) -> bytes:
    with plain_errors("read", path), open(path, "rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise InputError(f"{path} is larger than {LIMIT // 2**20} MiB; it is no description")
    return data


def _object(path: Path, data: bytes) -> dict[str, Any]:
    try:
        body = parse_json(data)
    except ValueError as error:
        raise InputError(
            f"{path} is not valid JSON ({_short(error)}); restore it from a copy"
        ) from None
    if not isinstance(body, dict):
        raise InputError(f"{path} holds a {type(body).__name__}; it has to be a JSON object")
    return body


def _short(error: ValueError) -> str:
    # A decoding error repeats the whole file in its arguments, but not in its reason.
    return getattr(error, "reason", None) or str(error).splitlines()[0][:120]


def seal(body: dict[str, Any]) -> bytes:
    """Gives the bytes of a JSON file whose last field, sha256, covers all the others."""
    return _text({**body, "sha256": hashlib.sha256(_text(body)).hexdigest()})


def _text(body: dict[str, Any]) -> bytes:
    return (json.dumps(body, indent=2) + "\n").encode()


def read_sealed(path: Path, strict: bool) -> dict[str, Any]:
    """Reads a sealed JSON object and takes the seal off.

    Args:
        path: the file.
        strict: refuse a file that differs from what was written, be it by one byte.

    Raises:
        InputError: the file is unreadable, or strict and changed since it was written.
    """
    data = _read(path)
    body = _object(path, data)
    recorded = body.pop("sha256", None)
    if strict and seal(body) != data:
        actual = hashlib.sha256(_text(body)).hexdigest()
        raise InputError(
            f"{path} is damaged or was edited: its sha256 is {actual[:12]}, "
            f"recorded is {str(recorded)[:12]}; restore it from a copy"
        )
    return body
