"""A checkpoint's tensors: written with their hashes, read back lazily or as a whole."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from circuits.errors import InputError
from mechinterp.runs.atomic import plain_errors, write_durably
from mechinterp.runs.header import layout
from mechinterp.runs.manifest import (
    MANIFEST,
    MODEL,
    Manifest,
    Seal,
    check_layout,
    compare,
    step_directory,
)


def write_checkpoint(
    directory: Path, step: int, files: Mapping[str, bytes], metrics: Seal | None
) -> None:
    """Writes the files of a checkpoint into a directory that is not in use yet.

    The hashes are taken of the bytes in memory, so they also tell a bad write from a good one.

    Args:
        directory: an empty directory.
        step: updates made so far.
        files: `MODEL`, and `RESUME` if it can be resumed from, each as `encode` gives it.
        metrics: size and hash of the metrics written before this checkpoint.
    """
    for name, data in files.items():
        write_durably(directory / name, data)
    seals = {name: Seal.of(data) for name, data in files.items()}
    manifest = Manifest(step, seals, layout(directory / MODEL), metrics)
    write_durably(directory / MANIFEST, manifest.to_bytes())


def read_whole(run: Path, manifest: Manifest, name: str) -> dict[str, Tensor]:
    """Reads every tensor of a file of a checkpoint into memory, from the bytes that were hashed.

    Raises:
        InputError: the file is missing, truncated or changed.
    """
    path = step_directory(run, manifest.step) / name
    with plain_errors("read", path):
        data = path.read_bytes()
    compare(run, manifest, name, Seal.of(data))
    try:
        return safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from None


class LazyWeights(Mapping[str, Tensor]):
    """Weights by TransformerLens name; a tensor is mapped from the file when it is asked for.

    Changing a tensor changes a private copy, never the file.
    """

    def __init__(self, run: Path, manifest: Manifest) -> None:
        """Opens the file; only its header is read.

        Raises:
            InputError: the file is malformed, or is not what checkpoint.json describes.
        """
        check_layout(run, manifest)
        self._path = step_directory(run, manifest.step) / MODEL
        self._names = tuple(manifest.tensors)
        with plain_errors("read", self._path):
            try:
                self._file = safetensors.safe_open(self._path, framework="pt")
            except (safetensors.SafetensorError, RuntimeError) as error:
                raise InputError(f"{self._path} is not a safetensors file: {error}") from None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
