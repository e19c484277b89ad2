"""One row a run: what varies, how it ended, and its last metrics."""

from pathlib import Path

import pandas as pd

from circuits.errors import InputError
from mechinterp.runs.locate import is_run
from mechinterp.runs.lock import is_locked
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.sweep.outcome import read_outcome
from mechinterp.sweep.planning import Planned, directories_of
from mechinterp.sweep.spec import Spec


def run_table(spec: Spec, runs: tuple[Planned, ...], folder: Path) -> pd.DataFrame:
    """Puts the runs of a sweep in one table.

    Args:
        spec: the sweep.
        runs: its runs.
        folder: where they are.

    Returns:
        A row for each run: `run`, its settings by dotted field, `outcome` ("budget", "converged",
        "diverged", "running", "partial", "damaged" or "waiting"), `step`, and each metric at its
        last logged step.
    """
    rows = []
    places = directories_of(folder, runs)
    for run in runs:
        path = places[run.key]
        settings = {
            name: "+".join(map(str, value)) if isinstance(value, list) else value
            for name, value in run.settings.items()
        }
        rows.append({"run": path.name, **settings, **_state(spec, path)})
    return pd.DataFrame(rows)


def _state(spec: Spec, path: Path) -> dict[str, object]:
    if not is_run(path):
        return {"outcome": "waiting", "step": 0}
    try:
        logged = read_rows(path / METRICS)
    except InputError:
        return {"outcome": "damaged", "step": 0}
    last = logged[-1] if logged else {"step": 0}
    done = read_outcome(path, spec.stop)
    state = done.reason if done else ("running" if is_locked(path) else "partial")
    seconds = {"seconds": done.seconds} if done else {}
    return {"outcome": state, "step": last["step"], **seconds, **{
        name: value for name, value in last.items() if name != "step"
    }}  # fmt: skip


def all_metrics(runs: tuple[Planned, ...], folder: Path) -> pd.DataFrame:
    """Puts the logs of all runs below each other, the run's name first."""
    places = directories_of(folder, runs)
    logs = [
        pd.DataFrame(read_rows(places[run.key] / METRICS)).assign(run=places[run.key].name)
        for run in runs
        if is_run(places[run.key])
    ]
    logs = [log for log in logs if len(log)]
    if not logs:
        return pd.DataFrame({"run": [], "step": []})
    whole = pd.concat(logs, ignore_index=True)
    return whole[["run", *(name for name in whole if name != "run")]]
