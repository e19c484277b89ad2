"""Is a run what was written? Every hash compared, and what killed processes left behind removed."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from circuits.errors import InputError
from mechinterp.runs.atomic import TEMPORARY, is_written, plain_errors, remove_stray, strays
from mechinterp.runs.lock import LOCK, RunLock, is_locked
from mechinterp.runs.manifest import (
    MANIFEST,
    MODEL,
    RESUME,
    Manifest,
    check_file,
    check_layout,
    read_manifest,
    step_directory,
    steps_of,
)
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.runs.record import read_record


def problems_of(run: Path) -> list[str]:
    """Says what is wrong with a run, a line each; none when every hash matches.

    Costs one read of every file, in constant memory.

    Args:
        run: the run's directory.

    Raises:
        InputError: the directory cannot be read.
    """
    return list(_problems(run))


def _problems(run: Path) -> Iterator[str]:
    try:
        read_record(run, strict=True)
    except InputError as error:
        yield str(error)
    manifests = []
    for step in steps_of(run):
        try:
            manifests.append(read_manifest(run, step))
        except InputError as error:
            yield str(error)
    for manifest in manifests:
        yield from _checkpoint_problems(run, manifest)
    yield from _metrics_problems(run, manifests)


def _checkpoint_problems(run: Path, manifest: Manifest) -> Iterator[str]:
    directory = step_directory(run, manifest.step)
    for name in manifest.files:
        # Older checkpoints have given up their resume state; the newest may have been copied so.
        if name == RESUME and not (directory / name).exists():
            continue
        try:
            check_file(run, manifest, name)
            if name == MODEL:
                check_layout(run, manifest)
        except InputError as error:
            # A trainer may have given it up between the two looks at it.
            if name != RESUME or (directory / name).exists():
                yield str(error)
    with plain_errors("read", directory):
        names = sorted(os.listdir(directory))
    for name in names:
        if name not in {MANIFEST, *manifest.files} and not name.startswith(TEMPORARY):
            yield f"{run.name} step_{manifest.step}: {name[:80]!r} does not belong there"


def _metrics_problems(run: Path, manifests: list[Manifest]) -> Iterator[str]:
    """Compares each checkpoint's hash of the metrics before it; the first mismatch tells all."""
    path = run / METRICS
    try:
        read_rows(path)
    except InputError as error:
        yield str(error)
        return
    data = path.read_bytes() if path.exists() else b""
    for manifest in manifests:
        seal = manifest.metrics
        if seal is None:
            continue
        actual = hashlib.sha256(data[: seal.size]).hexdigest()
        if len(data) < seal.size or actual != seal.sha256:
            yield (
                f"{run.name}: {METRICS} is damaged before step {manifest.step}: the sha256 of its "
                f"first {seal.size} bytes is {actual[:12]}, recorded is {seal.sha256[:12]}"
            )
            return


def leftovers(run: Path) -> list[Path]:
    """Lists the temporary files that killed processes left in a run; none while one is writing."""
    if is_locked(run):
        return []
    stale = [run / LOCK] if (run / LOCK).exists() else []
    return stale + strays(run)


def repair(run: Path) -> list[Path]:
    """Removes the leftovers of a run; nothing that was completely written is touched.

    Returns:
        What was removed.

    Raises:
        InputError: another process is writing to the run, or the disk refuses.
    """
    found = leftovers(run)
    lock = RunLock.acquire(run)
    try:
        for path in found:
            if path.name != LOCK:
                remove_stray(path)
    finally:
        lock.release(run)
    return found


def unborn(folder: Path) -> list[Path]:
    """Lists what killed processes had not finished in a folder: of runs, of tables or of pages.

    What a living process is writing at this moment is left out.
    """
    if not folder.is_dir():
        return []
    with plain_errors("read", folder):
        entries = sorted(folder.iterdir())
    return [
        entry
        for entry in entries
        if entry.name.startswith(TEMPORARY) and not is_written(entry) and not is_locked(entry)
    ]
