"""One row a run: the settings that vary, its seeds, how it ended, and its last metrics."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.ledger.store import SEEDS
from analyses.rows import records
from mechinterp.config import to_json
from mechinterp.runs import Run

OUTCOME = "outcome.json"
"""What a sweep writes when a run has ended; see `mechinterp.sweep.outcome`."""


def flat_settings(run: Run) -> dict[str, Any]:
    """Gives all settings of a run but its checkpoints' in one dictionary; `task` is its name."""
    body = to_json(run.config)
    task = dict(body["task"])
    found = {"task": task.pop("name"), **task, **body["model"], **body["training"]}
    return {name: _plain(value) for name, value in found.items()}


def split_settings(flat: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parts settings into those that all runs share and the names of those that differ; seeds are
    in neither."""
    names = [name for name in flat[0] if name not in SEEDS]
    varies = tuple(n for n in names if len({repr(one.get(n)) for one in flat}) > 1)
    return {n: flat[0][n] for n in names if n not in varies}, varies


def own(settings: dict[str, Any], varies: tuple[str, ...]) -> dict[str, Any]:
    """Gives the settings of one run that differ from other runs', and its seeds."""
    seeds = [name for name in SEEDS if name in settings]
    return {name: settings[name] for name in (*varies, *seeds)}


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def outcome_of(path: Path) -> dict[str, Any] | None:
    """How a run of a sweep ended; None for one that has not."""
    try:
        body = json.loads((path / OUTCOME).read_text())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def ending(run: Run, outcome: dict[str, Any]) -> dict[str, Any]:
    """Says how far a run came, how it ended, and gives its last row of metrics as `final_...`."""
    metrics = run.metrics()
    last = records(metrics.tail(1))[0] if len(metrics) else {}
    kept = {n: v for n, v in last.items() if n != "step" and not n.endswith("_se")}
    return {
        "steps_trained": last.get("step", 0),
        "outcome": outcome.get("reason", "unknown"),
        "seconds": outcome.get("seconds"),
        **{f"final_{name}": value for name, value in kept.items()},
    }
