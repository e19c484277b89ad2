"""The header of a safetensors file, checked before a byte of tensor is allocated."""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors
from mechinterp.runs.sealed_json import LIMIT, parse_json

_WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1}
_WIDTHS |= {"I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4}
_WIDTHS |= {"I64": 8, "U64": 8, "F64": 8}


def layout(path: Path) -> dict[str, str]:
    """Says which tensors a safetensors file holds, reading its header only.

    Args:
        path: the file.

    Returns:
        Name to data type and shape, written as `F32[4,128,32]`.

    Raises:
        InputError: the header is malformed, or it promises more than the file holds.
    """
    with plain_errors("read", path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        text, room = _header(path, file, size)
    try:
        body = parse_json(text)
    except ValueError:
        raise _damaged(path, "its header is not JSON") from None
    if not isinstance(body, dict):
        raise _damaged(path, "its header is not a JSON object")
    body.pop("__metadata__", None)
    return {name: _entry(path, name, entry, room) for name, entry in sorted(body.items())}


def _header(path: Path, file: BinaryIO, size: int) -> tuple[bytes, int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8 or length > LIMIT:
        raise _damaged(path, f"its header claims {length} bytes, the file has {size}")
    return file.read(length), size - 8 - length


def _entry(path: Path, name: str, entry: Any, room: int) -> str:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [begin, end, *shape]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError
        needed = math.prod(shape) * _WIDTHS[dtype]
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, f"the header entry of {name[:60]!r} is malformed") from None
    if end > room or needed != end - begin:
        raise _damaged(
            path, f"{name[:60]!r} claims {needed:.4g} bytes, {room} are there for all tensors"
        )
    return f"{dtype}[{','.join(map(str, shape))}]"


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged: {reason}; restore it or choose another checkpoint")
