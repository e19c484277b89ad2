"""Runs as text: one line in a list, or everything known about one of them."""

import json
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.config import RunConfig, to_json
from mechinterp.runs.atomic import plain_errors
from mechinterp.runs.manifest import RESUME, step_directory, steps_of
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.runs.record import read_record

_HEADINGS = ("NAME", "TASK", "STEP", "OF", "CHECKPOINTS", "SIZE", "PATH")


def table(runs: dict[str, Path]) -> str:
    """Gives an aligned table, a line for each run; an unreadable run says why."""
    rows = [_HEADINGS, *(_row(name, path) for name, path in runs.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(name: str, path: Path) -> tuple[str, ...]:
    try:
        config, meta = read_record(path)
        steps = steps_of(path)
        last, of = str(steps[-1]) if steps else "-", str(config.training.steps)
        return name, meta["task"], last, of, str(len(steps)), _size(path), str(path)
    except InputError as error:
        return name, "unreadable:", "", "", "", "", " ".join(str(error).split())


def _size(path: Path) -> str:
    with plain_errors("read", path):
        total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{total / 1e6:.1f} MB"


def as_json(path: Path) -> dict[str, Any]:
    """Gives everything known about a run as plain JSON values.

    Raises:
        InputError: run.json or the metrics cannot be read.
    """
    config, meta = read_record(path)
    steps = steps_of(path)
    rows = read_rows(path / METRICS)
    return {
        "name": path.name,
        "path": str(path),
        **meta,
        "config": to_json(config),
        "steps": steps,
        "resumable": [s for s in steps if (step_directory(path, s) / RESUME).exists()],
        "size": _size(path),
        "n_rows": len(rows),
        "last_row": rows[-1] if rows else None,
    }


def text(path: Path) -> str:
    """Gives everything known about a run as lines of `name  value`.

    Raises:
        InputError: run.json or the metrics cannot be read.
    """
    body = as_json(path)
    config = body.pop("config")
    last = body.pop("last_row")
    lines = {**body, **{f"config.{part}": values for part, values in config.items()}}
    if last is not None:
        lines |= {f"last.{name}": value for name, value in last.items()}
    shown = {_shown(name): _shown(value) for name, value in lines.items()}
    width = max(len(name) for name in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_shown(name)} {_shown(inner)}" for name, inner in value.items())
    # Escapes whatever a terminal might act on.
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def config_text(path: Path) -> str:
    """Gives a run's configuration as JSON, which `runs import --config` reads."""
    config: RunConfig = read_record(path)[0]
    return json.dumps(to_json(config), indent=2)
