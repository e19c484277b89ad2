"""From the runs of a sweep to the tables of a study."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analyses.bypass.static_losses import gap_table, static_crossing
from analyses.chains.phase_changes import spells
from analyses.directions.times import times_of
from analyses.ledger.answer_tables import KEPT, Tables, analysis_of, tables_of
from analyses.ledger.run_rows import ending, flat_settings, outcome_of, own, split_settings
from analyses.ledger.store import RUNS
from analyses.phases import log_phases
from analyses.plateau import MEASURES, log_series, plateau_tables
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, MarkovChainsConfig
from mechinterp.runs import Run
from mechinterp.runs.locate import is_run
from mechinterp.tasks.chain_measures import predictor_gaps

LOG_ROWS = 120
"""Rows of a run's log that are kept, evenly spread, the first and the last among them."""

SHARES = (0.3, 0.5, 0.7)
"""Equal bars of the asymmetry, as shares of ignorance."""

DRAWS, SEQUENCES = 8, 128
"""Draws of the chains and sequences behind the static crossing."""


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What a sweep holds.

    Attributes:
        tables: of the study, by name.
        settings: those that all runs share.
        varies: names of those that differ, but for seeds.
        seconds: wall time of all runs together; NaN where it is not known.
        after: commands that ran after each run.
        versions: of the software behind the runs.
        left_out: directories that are no complete run.
        unasked: runs after which some of the sweep's commands have not run yet.
    """

    tables: Tables
    settings: dict[str, Any]
    varies: tuple[str, ...]
    seconds: float
    after: tuple[str, ...]
    versions: dict[str, str]
    left_out: tuple[str, ...]
    unasked: tuple[str, ...]


def gather(folder: Path) -> Gathered:
    """Reads every complete run of a sweep's folder.

    Raises:
        InputError: it holds no complete run, or an answer is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the one that a sweep wrote its runs to")
    there = [path for path in sorted(folder.iterdir()) if path.is_dir() and is_run(path)]
    outcomes = {path.name: found for path in there if (found := outcome_of(path))}
    runs = [Run.open(path) for path in there if path.name in outcomes]
    if not runs:
        raise InputError(
            f"{folder} holds {len(there)} runs and none is complete; let the sweep finish, or give "
            "its folder"
        )
    flat = {run.name: flat_settings(run) for run in runs}
    constant, varies = split_settings(list(flat.values()))
    rows = [
        {"run": run.name, **own(flat[run.name], varies), **ending(run, outcomes[run.name])}
        for run in runs
    ]
    tables = {RUNS: pd.DataFrame(rows), **_derived(runs), **_answers(runs)}
    seconds = sum(float(outcome.get("seconds", np.nan)) for outcome in outcomes.values())
    asked = {name: tuple(outcome.get("after", ())) for name, outcome in outcomes.items()}
    after = tuple(dict.fromkeys(line for lines in asked.values() for line in lines))
    return Gathered(
        tables,
        constant,
        varies,
        seconds,
        after,
        dict(runs[0].meta.get("versions", {})),
        tuple(path.name for path in there if path.name not in outcomes),
        tuple(
            name
            for name, lines in asked.items()
            if set(lines) < set(after) and outcomes[name].get("reason") != "diverged"
        ),
    )


def _answers(runs: Sequence[Run]) -> Tables:
    """The tables of all answers beside the runs, one below the other."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for run in runs:
        for path in sorted((run.path / "answers").glob("*.json")):
            if analysis_of(path) == "plateau":
                continue  # `_derived` has it of every run, from the same log
            for name, table in tables_of(path, analysis_of(path)).items():
                parts.setdefault(name, []).append(with_run(table, run.name))
    return {
        name: pd.concat(tables, ignore_index=True).drop_duplicates(ignore_index=True)
        for name, tables in parts.items()
    }


def with_run(table: pd.DataFrame, run: str) -> pd.DataFrame:
    """Puts the run's name into the first column."""
    found = table.drop(columns="run", errors="ignore").reset_index(drop=True)
    found.insert(0, "run", run)
    return found


def _derived(runs: Sequence[Run]) -> Tables:
    """What is read off the runs' own logs."""
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(name: str, table: pd.DataFrame, run: Run) -> None:
        if len(table):
            parts.setdefault(name, []).append(with_run(table, run.name))

    for run in runs:
        if isinstance(run.config.task, MarkovChainsConfig):
            log = log_phases(run)
            add("phases-log", thinned(log), run)
            if len(log):
                add("phases-spells", spells(log), run)
            continue
        metrics = run.metrics()
        add("log", thinned(metrics[[n for n in ("step", *MEASURES) if n in metrics]]), run)
        add("asymmetry-times", _bars(run), run)
        for name, table in _plateau(run).items():
            add(name, table, run)
    tables = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
    return tables | _static(runs)


def thinned(log: pd.DataFrame, rows: int = LOG_ROWS) -> pd.DataFrame:
    """Keeps so many rows of a log, evenly spread."""
    if len(log) <= rows:
        return log
    return pd.DataFrame(log.iloc[np.unique(np.linspace(0, len(log) - 1, rows).round().astype(int))])


def _bars(run: Run) -> pd.DataFrame:
    """When a run passed each bar of the asymmetry; empty for a task that has no such bars."""
    task = run.config.task
    assert isinstance(task, MarginalsConfig)
    if task.variant == "b_to_a" or task.k < 2 or run.metrics().empty:
        return pd.DataFrame()
    role = "reverse" if task.variant == "bz_to_a" else "forward"
    try:
        return pd.DataFrame(times_of(run, role, SHARES))
    except InputError:
        return pd.DataFrame()


def _plateau(run: Run) -> Tables:
    """The tables of `plateau`, which reads the log alone; none for a task without a plateau."""
    task = run.config.task
    assert isinstance(task, MarginalsConfig)
    if task.variant != "bz_to_a" or task.k < 2:
        return {}
    try:
        series = log_series(run)
    except InputError:
        return {}
    found = plateau_tables(series, run.task().reference_lines(), run.config.training.eval_examples)
    return {f"plateau-{name}": found[name] for name in KEPT["plateau"]}


def _static(runs: Sequence[Run]) -> Tables:
    """What no training is involved in: K_x of the study's chains, and how far 1-Gen and 2-Gen are
    from the truth on the new chains that the runs log; none for the marginals task."""
    configs = [run.config for run in runs if isinstance(run.config.task, MarkovChainsConfig)]
    if not configs:
        return {}
    task = configs[0].task
    assert isinstance(task, MarkovChainsConfig)
    k_x, low, high = static_crossing(gap_table(task, DRAWS, SEQUENCES))
    row = {"run": "-", "k_x": k_x, "low": low, "high": high}
    logged = configs[0].training.eval_examples
    # New chains are the same whatever K is; without frozen ones no posterior over chains is needed.
    gaps = predictor_gaps(dataclasses.replace(task, k="inf"), logged)
    kept = {name: gaps[name] for name in ("one_gen_new", "two_gen_new")}
    return {
        "static-crossing": pd.DataFrame([row | {"draws": DRAWS, "sequences": SEQUENCES}]),
        "static-gaps": pd.DataFrame([{"run": "-", **kept, "sequences": logged}]),
    }
