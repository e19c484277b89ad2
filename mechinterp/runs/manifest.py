"""checkpoint.json: what a checkpoint holds, and the hash of each of its files."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors
from mechinterp.runs.header import layout
from mechinterp.runs.sealed_json import read_sealed, seal

MANIFEST = "checkpoint.json"
MODEL = "model.safetensors"
RESUME = "resume.safetensors"
"""Optimizer state; only the newest checkpoints keep theirs."""

_STEP = re.compile(r"step_(0|[1-9][0-9]{0,14})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Seal:
    """Size and sha256 of a file, or of the beginning of one."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "Seal":
        """Gives the seal of some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint.

    `tensors` maps the name of each weight to `F32[40,128]`; `metrics` covers the rows that were
    written before this checkpoint.
    """

    step: int
    files: dict[str, Seal]
    tensors: dict[str, str]
    metrics: Seal | None

    def to_bytes(self) -> bytes:
        """Gives checkpoint.json as it is written, with its own hash."""
        body: dict[str, Any] = {
            "step": self.step,
            "files": {name: _plain(s) for name, s in self.files.items()},
            "metrics": _plain(self.metrics) if self.metrics else None,
            "tensors": self.tensors,
        }
        return seal(body)


def _plain(seal: Seal) -> dict[str, Any]:
    return {"bytes": seal.size, "sha256": seal.sha256}


def step_directory(run: Path, step: int) -> Path:
    """Gives the directory of a checkpoint."""
    return run / f"step_{step}"


def steps_of(run: Path) -> list[int]:
    """Lists the steps that have a checkpoint directory, in order.

    Raises:
        InputError: the run cannot be read.
    """
    with plain_errors("read", run):
        names = os.listdir(run)
    matches = (_STEP.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def read_manifest(run: Path, step: int) -> Manifest:
    """Reads checkpoint.json of a step.

    Raises:
        InputError: it is missing, was changed since it was written, or belongs to another step.
    """
    path = step_directory(run, step) / MANIFEST
    body = read_sealed(path, strict=True)
    try:
        manifest = _parse(body)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{path} is not the description of a checkpoint") from None
    if manifest.step != step:
        raise InputError(
            f"{path} describes step {manifest.step}; the directory was renamed, rename it back"
        )
    return manifest


def _parse(body: dict[str, Any]) -> Manifest:
    files = {name: _seal(entry) for name, entry in body["files"].items()}
    tensors = body["tensors"]
    if type(body["step"]) is not int or MODEL not in files or not set(files) <= {MODEL, RESUME}:
        raise ValueError
    if not isinstance(tensors, dict) or not all(isinstance(v, str) for v in tensors.values()):
        raise ValueError
    metrics = _seal(body["metrics"]) if body["metrics"] is not None else None
    return Manifest(body["step"], files, tensors, metrics)


def _seal(entry: Any) -> Seal:
    if type(entry["bytes"]) is not int or not _SHA256.fullmatch(entry["sha256"]):
        raise ValueError
    return Seal(entry["bytes"], entry["sha256"])


def check_file(run: Path, manifest: Manifest, name: str) -> None:
    """Makes sure that a file of a checkpoint is the one that was written.

    Costs one read of the file, in constant memory.

    Raises:
        InputError: it is missing, truncated or changed; names the file and both hashes.
    """
    path = step_directory(run, manifest.step) / name
    with plain_errors("read", path), open(path, "rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    compare(run, manifest, name, Seal(size, actual))


def compare(run: Path, manifest: Manifest, name: str, actual: Seal) -> None:
    """Compares a file's seal with the recorded one.

    Raises:
        InputError: they differ.
    """
    expected = manifest.files[name]
    if actual == expected:
        return
    size = (
        f" and it has {actual.size} bytes of {expected.size}"
        if actual.size != expected.size
        else ""
    )
    raise InputError(
        f"{run.name} step_{manifest.step}: {name} is damaged: its sha256 is {actual.sha256[:12]}, "
        f"recorded is {expected.sha256[:12]}{size}; restore it or choose another checkpoint"
    )


def check_layout(run: Path, manifest: Manifest) -> None:
    """Makes sure that the header of the weights agrees with checkpoint.json; reads no weights.

    Raises:
        InputError: the file is malformed, or holds other tensors than recorded.
    """
    path = step_directory(run, manifest.step) / MODEL
    found = layout(path)
    if found != manifest.tensors:
        names = sorted(
            name
            for name in {*found, *manifest.tensors}
            if found.get(name) != manifest.tensors.get(name)
        )
        raise InputError(
            f"{run.name} step_{manifest.step}: {MODEL} and {MANIFEST} disagree on {names[0]!r}; "
            "restore the checkpoint or choose another one"
        )
