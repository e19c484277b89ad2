"""Phases: which Bayes predictor a model of the Markov-chain task computes at each checkpoint."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import Phases
from analyses.chains.phase_changes import transience, transitions
from analyses.chains.predictor_distances import distance_row, distances
from analyses.checkpoints import check_examples, measure_checkpoints, read_from
from analyses.line_figure import Line, time_figure
from analyses.rows import Row, records
from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme
from mechinterp.config import MarkovChainsConfig, task_name
from mechinterp.nearest_predictor import CLEAREST, FARTHEST, PHASES, nearest_phase
from mechinterp.runs import Run

MIN_CHECKPOINTS = 3
"""Checkpoints needed to tell a change from a state."""


def answer(request: Phases) -> Answer:
    """Measures every checkpoint of one run and answers from the distances.

    The run's own log, where it has one, gives the same times on a finer grid of steps, from fewer
    sequences.

    Raises:
        InputError: the run is of another task, or has too few checkpoints.
    """
    run = Run.open(request.run, request.root)
    config = check_chains(run, "phases")
    check_examples(request.examples)
    steps = run.steps
    if len(steps) < MIN_CHECKPOINTS:
        raise InputError(
            f"{run.name} has {len(steps)} checkpoints; phases needs at least {MIN_CHECKPOINTS}: "
            "train with a smaller --save-every"
        )

    def measure(model: Any) -> pd.DataFrame:
        return pd.DataFrame([distance_row(distances(model, config, request.examples))])

    options = {"examples": request.examples, "farthest": FARTHEST, "clearest": CLEAREST}
    table = measure_checkpoints(run, steps, "phases", options, measure, request.quiet)
    log = log_phases(run)
    sources = {"checkpoints": table} | ({"log": log} if len(log) >= MIN_CHECKPOINTS else {})
    tables = {
        "phases": table,
        "log": log,
        "transitions": _by_source(sources, transitions),
        "transience": _by_source(sources, lambda one: pd.DataFrame([transience(one)])),
    }
    return Answer(
        summary=tuple(_summary(run, tables)),
        tables=tables,
        figures=_figures(tables),
        provenance={**read_from(run, steps), "options": options},
    )


def check_chains(run: Run, question: str) -> MarkovChainsConfig:
    """Gives the task's configuration if it is the Markov-chain task.

    Raises:
        InputError: another task.
    """
    config = run.config.task
    if not isinstance(config, MarkovChainsConfig):
        raise InputError(
            f"{question} needs a run of the task markov_chains, but {run.name} has the task "
            f"{task_name(config)}; `python -m mechinterp.runs list` lists the runs"
        )
    return config


def log_phases(run: Run) -> pd.DataFrame:
    """Gives distances and phases from the run's own log; no rows where it has none.

    Returns:
        One row for each logged step: `step`, `<predictor>_train`, `<predictor>_new`, the same for
        `truth`, `phase`, `nearest_phase` and `margin`.
    """
    metrics = run.metrics()
    names = {"kl_truth": "truth", **{f"kl_{name}": name for name in PHASES}}
    found = {old: new for old, new in names.items() if f"{old}_new" in metrics.columns}
    if "kl_two_gen" not in found:
        return pd.DataFrame({"step": []})
    renamed = {old: f"{new}_train" for old, new in found.items()}
    renamed |= {f"{old}_new": f"{new}_new" for old, new in found.items()}
    table = pd.DataFrame(metrics[["step", *renamed]]).dropna().reset_index(drop=True)
    table.columns = ["step", *renamed.values()]
    predictors = [name for name in found.values() if name != "truth"]
    phases = [
        nearest_phase(
            {name: row[f"{name}_train"] for name in predictors},
            {name: row[f"{name}_new"] for name in predictors},
        )
        for row in records(table)
    ]
    table["phase"] = [phase.name for phase in phases]
    table["nearest_phase"] = [PHASES[phase.nearest] for phase in phases]
    table["margin"] = [phase.margin for phase in phases]
    return table


def _by_source(sources: dict[str, pd.DataFrame], make: Any) -> pd.DataFrame:
    made = [make(table).assign(source=source) for source, table in sources.items()]
    kept = [table for table in made if len(table)]
    return pd.concat(kept, ignore_index=True) if kept else made[0]


def _summary(run: Run, tables: dict[str, pd.DataFrame]) -> list[str]:
    lines = [f"{run.name}: {len(tables['phases'])} checkpoints, phase by the nearest predictor"]
    lines.append("    step  phase  nearest predictor    distance  margin  certainty")
    for row in records(tables["phases"]):
        lines.append(
            f"  {row['step']:6d}  {row['phase']:<5}  {row['nearest']:<19}  {row['distance']:8.4f}  "
            f"{row['margin']:6.2f}  {row['certainty']:9.0%}"
        )
    for row in records(tables["transitions"]):
        lines.append(
            f"{row['before']} to {row['after']} between steps {row['last_before']} and "
            f"{row['first_after']}, equally far at {row['crossing']:.0f} (from the {row['source']})"
        )
    if tables["transitions"].empty:
        lines.append("no transition between two phases was seen")
    lines += [_transience_line(row) for row in records(tables["transience"])]
    return lines


def _transience_line(row: Row) -> str:
    entered = f"step {row['entered']:.0f}" if row["entered"] < float("inf") else "never"
    left = f"step {row['left']:.0f}" if row["left"] < float("inf") else "never"
    is_so = "transient" if row["transient"] else "no transience"
    return (
        f"{is_so} (from the {row['source']}): nearest to 2-Gen from {entered}, passed by 2-Mem "
        f"{'at ' if left != 'never' else ''}{left}; KL to the truth on new chains "
        f"{row['least_new']:.3f} at its least (step {row['least_step']}), {row['last_new']:.3f} at "
        f"the end; on training chains {row['train_then']:.3f}, then {row['train_last']:.3f}"
    )


def _figures(tables: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    marks = {
        f"{row['before']} to {row['after']}": row["crossing"]
        for row in records(tables["transitions"])
        if row["source"] == "checkpoints"
    }
    return {
        "Training chains": distance_figure(tables["phases"], "train", marks),
        "New chains": distance_figure(tables["phases"], "new", marks),
        "Phases": phase_figure(tables["phases"]),
    }


def distance_figure(
    table: pd.DataFrame, which: str, marks: dict[str, float], theme: Theme = LIGHT
) -> go.Figure:
    """Draws the KL to the truth and to every predictor on one set of chains."""
    names = [n for n in ("truth", *PHASES) if f"{n}_{which}" in table.columns]
    lines = [
        Line(f"{n}_{which}", n.replace("_", " "), f"{n}_{which}_low", f"{n}_{which}_high")
        for n in names
    ]
    chains = {"train": "training", "new": "new"}[which]
    title = f"KL to each Bayes predictor on {chains} chains"
    return time_figure(table, lines, title=title, unit="nats", marks=marks, log=True, theme=theme)


def phase_figure(table: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws how far the nearest predictor is, with the limit up to which it makes a phase."""
    label = "distance to the nearest predictor"
    figure = time_figure(
        table,
        [Line("distance", label)],
        title="Phase at each checkpoint",
        unit="nats, on training chains",
        levels={"limit of a phase": FARTHEST},
        log=True,
        theme=theme,
    )
    figure.update_traces(
        selector={"name": label},
        mode="lines+markers+text",
        text=table["phase"].to_list(),
        textposition="top center",
    )
    return figure
