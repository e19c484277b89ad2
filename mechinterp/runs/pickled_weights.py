"""State dicts from torch.save, read without running or trusting anything inside them."""

import pickletools
import re
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors

_ALLOWED = re.compile(
    r"collections OrderedDict"
    r"|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch [A-Za-z0-9]+Storage"
)
"""What the pickle of a dictionary of tensors refers to; anything else could run code."""

_PICKLE_LIMIT = 64 * 2**20


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Reads a `torch.save`d dictionary of tensors.

    The archive is inspected before torch sees it, and torch reads it with `weights_only=True`:
    nothing in it can run, and no tensor can be larger than the file.

    Args:
        path: a file in torch's zip format (torch 1.6 or later).

    Raises:
        InputError: the file is damaged, refers to anything but tensors, or is no dictionary of
            them.
    """
    with plain_errors("read", path), open(path, "rb"):
        pass
    sizes = _inspect(path)
    try:
        body = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damage leads to
        raise _refusal(path, f"torch cannot read it ({type(error).__name__})") from None
    if not isinstance(body, dict) or not body:
        raise _refusal(path, f"it holds a {type(body).__name__}, not a dictionary of tensors")
    for name, value in body.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise _refusal(
                path, f"{str(name)[:60]!r} is a {type(value).__name__}; only tensors are imported"
            )
        _check_tensor(path, name, value, sizes)
    return {name: value.detach() for name, value in body.items()}


def _check_tensor(path: Path, name: str, tensor: Tensor, sizes: set[int]) -> None:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise _refusal(path, f"{name[:60]!r} is not a dense tensor")
    held = tensor.untyped_storage().nbytes()
    if (held and held not in sizes) or tensor.numel() * tensor.element_size() > held:
        raise _refusal(path, f"{name[:60]!r} claims more elements than the file holds")


def _inspect(path: Path) -> set[int]:
    """Checks the archive and its pickle; gives the sizes of the stored arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise _refusal(path, "it is compressed, which torch.save never does")
            for name in (entry.filename for entry in entries):
                if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name):
                    raise _refusal(path, f"its part {name[:60]!r} points outside the archive")
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise _refusal(path, "its parts claim more bytes than the file has")
            (pickled,) = [e for e in entries if e.filename.rpartition("/")[2] == "data.pkl"]
            if pickled.file_size > _PICKLE_LIMIT:
                raise _refusal(path, "its description is larger than any state dict's")
            program = archive.read(pickled)
    except InputError:
        raise
    except Exception:  # zipfile raises half a dozen kinds for a malformed archive
        raise _refusal(path, "it is not an archive written by torch.save") from None
    _check_program(path, program)
    return {entry.file_size for entry in entries}


def _check_program(path: Path, program: bytes) -> None:
    try:
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "GLOBAL" and not _ALLOWED.fullmatch(str(argument)):
                named = ".".join(str(argument).split())[:80]
                raise _refusal(path, f"it refers to {named}, which is no tensor; nothing was run")
            if opcode.name in ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"):
                raise _refusal(path, f"its pickle uses {opcode.name}; nothing was run")
    except InputError:
        raise
    except Exception:  # pickletools raises several kinds for a malformed pickle
        raise _refusal(path, "its pickle is malformed") from None


def _refusal(path: Path, reason: str) -> InputError:
    return InputError(f"{path} cannot be imported: {reason}")
