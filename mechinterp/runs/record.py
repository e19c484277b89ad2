"""run.json: what a run is, how it was asked for, and with which versions."""

import datetime
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.config import RunConfig, from_json, task_name, to_json
from mechinterp.runs.locate import RECORD
from mechinterp.runs.sealed_json import read_sealed, seal

FORMAT = 1
"""Version of the layout on disk; a newer one is refused instead of misread."""

_RECORDED = ("mechinterp-toolkit", "torch", "transformer-lens", "numpy", "safetensors")


def new_record(config: RunConfig, n_params: int, command: str, threads: int) -> dict[str, Any]:
    """Makes the content of run.json.

    Args:
        config: everything that decides the run.
        n_params: number of trained parameters.
        command: the command line that makes this run again.
        threads: CPU threads of torch; the last bits of the weights depend on it.
    """
    return {
        "format": FORMAT,
        "task": task_name(config.task),
        "n_params": n_params,
        "command": command,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "threads": threads,
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **_versions()},
        "config": to_json(config),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _RECORDED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def record_bytes(record: dict[str, Any]) -> bytes:
    """Gives run.json as it is written, with its own hash."""
    return seal(record)


def read_record(run: Path, strict: bool = False) -> tuple[RunConfig, dict[str, Any]]:
    """Reads run.json.

    Args:
        run: the run's directory.
        strict: refuse a file that was changed since it was written.

    Returns:
        The configuration, and everything else by name.

    Raises:
        InputError: it is missing, malformed, of a newer format, or holds an impossible value.
    """
    path = run / RECORD
    body = read_sealed(path, strict)
    if body.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {str(body.get('format'))[:20]!r}, this version reads {FORMAT}; "
            "a newer version of mechinterp-toolkit may read it"
        )
    try:
        config = from_json(body.pop("config", None))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    _check_extras(path, body, config)
    return config, body


def _check_extras(path: Path, body: dict[str, Any], config: RunConfig) -> None:
    kinds = {"n_params": int, "command": str, "created": str, "threads": int, "versions": dict}
    for name, kind in kinds.items():
        if type(body.get(name)) is not kind:
            raise InputError(f"{path}: {name} has to be of type {kind.__name__}")
    if body.get("task") != task_name(config.task):
        raise InputError(
            f"{path}: task is {str(body.get('task'))[:40]!r}, its config says "
            f"{task_name(config.task)!r}"
        )


def differences(old: RunConfig, new: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Says which fields differ between two configurations, and how.

    Returns:
        Dotted field name to the old and the new value; a field that one of them lacks is None.
    """
    before, after = _flat(to_json(old)), _flat(to_json(new))
    names = [*before, *(name for name in after if name not in before)]
    return {
        name: (before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    }


def _flat(body: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in body.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat
