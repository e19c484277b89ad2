"""How a trainer comes to a run: a new one is made, an existing one checked and taken up."""

from pathlib import Path

import torch

from circuits.errors import InputError
from mechinterp.config import RunConfig
from mechinterp.runs.atomic import (
    new_directory,
    plain_errors,
    remove_stray,
    replace_file,
    strays,
    write_durably,
)
from mechinterp.runs.locate import RECORD, is_run
from mechinterp.runs.lock import RunLock
from mechinterp.runs.record import differences, new_record, read_record, record_bytes


def create(path: Path, config: RunConfig, n_params: int, command: str) -> RunLock:
    """Makes the directory of a new run, locked from the first instant it can be seen.

    Raises:
        InputError: something else is there, or the disk refuses.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists and is not a run; choose another --run")
    record = new_record(config, n_params, command, torch.get_num_threads())
    with plain_errors("create", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    lock: RunLock | None = None
    try:
        with new_directory(path) as directory:
            lock = RunLock.acquire(directory)
            write_durably(directory / RECORD, record_bytes(record))
    except BaseException as error:
        if lock is not None:
            lock.release(path)
        if isinstance(error, InputError) and is_run(path):
            raise InputError(
                f"run {path.name} was made by another process at this moment; choose another --run"
            ) from None
        raise
    return lock


def take_up(path: Path, config: RunConfig, n_params: int, command: str) -> list[str]:
    """Checks that a locked run is the one asked for, and clears what a kill left behind.

    Returns:
        What the user should know, a line each.

    Raises:
        InputError: it was made with another configuration.
    """
    check_same(path, config, n_params)
    known, record = read_record(path)
    for stray in strays(path):
        remove_stray(stray)
    if known.training.steps != config.training.steps:
        extended = new_record(config, n_params, command, record["threads"])
        replace_file(path / RECORD, record_bytes({**extended, "created": record["created"]}))
    threads = torch.get_num_threads()
    if record["threads"] != threads:
        return [
            f"run {path.name} was started with {record['threads']} threads and goes on with "
            f"{threads}: the last bits of its weights may differ from an uninterrupted run's"
        ]
    return []


def check_same(path: Path, config: RunConfig, n_params: int) -> None:
    """Compares a run's configuration with the one asked for; only `training.steps` may grow.

    Raises:
        InputError: they differ; the fields are named.
    """
    known, record = read_record(path)
    changed = differences(known, config)
    longer = config.training.steps > known.training.steps
    if longer and config.training.lr_schedule == "constant":
        changed.pop("training.steps")
    if changed:
        shown = ", ".join(f"{k} {old!r} -> {new!r}" for k, (old, new) in changed.items())
        raise InputError(
            f"run {path.name} was made with another configuration ({shown}); resume it with the "
            "same one, or choose another --run"
        )
    if record["n_params"] != n_params:
        raise InputError(
            f"run {path.name} has {record['n_params']} parameters, this model has {n_params}; it "
            "was made with another version of the code"
        )
