"""The plateau: how high, how long under every definition, and what the model knows on it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import Plateau
from analyses.checkpoints import check_examples, measure_checkpoints, read_from
from analyses.rows import Row, keyed, records
from analyses.waiting.figures import loss_figure, mass_figure
from analyses.waiting.level import knowledge_share, level_table, onset_table, plateau_end, verdict
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, task_name
from mechinterp.runs import Run

MEASURES = ("candidate_loss", "candidate_mass", "first_token_ce", "target_ce", "z_gap")
"""What the answer is made from; all are in a run's log."""

MIN_ROWS = 8
"""Rows of measurements below which a plateau cannot be told from a slope."""


def answer(request: Plateau) -> Answer:
    """Reads or measures the series of one run and answers from it.

    Raises:
        InputError: the run is of another task, or has too few measurements.
    """
    run = Run.open(request.run, request.root)
    check_marginals(run, "plateau")
    check_examples(request.examples)
    from_log = request.source == "log"
    steps = () if from_log else tuple(run.steps)
    series = log_series(run) if from_log else _measured(run, request)
    n_examples = run.config.training.eval_examples if from_log else request.examples
    lines = run.task().reference_lines()
    tables = plateau_tables(series, lines, n_examples)
    options = {"source": request.source, "examples": n_examples}
    return Answer(
        summary=tuple(_summary(run, tables)),
        tables=tables,
        figures=_figures(tables, lines),
        provenance={**read_from(run, steps), "options": options, "reference_lines": lines},
    )


def check_marginals(run: Run, question: str) -> MarginalsConfig:
    """Gives the task's configuration if the task has a plateau at ln K.

    Raises:
        InputError: another task, or a variant in which no selector decides between candidates.
    """
    config = run.config.task
    if not isinstance(config, MarginalsConfig):
        found = f"the task {task_name(config)}"
    elif config.variant != "bz_to_a" or config.k < 2:
        found = f"variant={config.variant}, k={config.k}"
    else:
        return config
    raise InputError(
        f"{question} needs a run of the task marginals with variant=bz_to_a and k >= 2, but "
        f"{run.name} has {found}; `python -m mechinterp.runs list` lists the runs"
    )


OTHER_SOURCE = ", or measure its checkpoints with --source checkpoints"


def log_series(
    run: Run, measures: Sequence[str] = MEASURES, otherwise: str = OTHER_SOURCE
) -> pd.DataFrame:
    """Gives what the run logged of some measures: `step`, `measures` and their `..._se`.

    Args:
        run: whose log is read.
        measures: those of the plateau if not given.
        otherwise: what the message says can be done besides training anew.

    Raises:
        InputError: the log has too few rows, or lacks a measure.
    """
    metrics = run.metrics()
    columns = [column for name in measures for column in (name, f"{name}_se")]
    missing = [column for column in columns if column not in metrics.columns]
    if len(metrics) < MIN_ROWS or missing:
        lacks = f"and lacks {', '.join(missing)} " if missing and len(metrics) else ""
        raise InputError(
            f"the log of {run.name} has {len(metrics)} rows of metrics {lacks}; at least "
            f"{MIN_ROWS} are needed: train longer or with a smaller --eval-every{otherwise}"
        )
    return pd.DataFrame(metrics[["step", *columns]]).dropna().reset_index(drop=True)


def _measured(run: Run, request: Plateau) -> pd.DataFrame:
    steps, task = run.steps, run.task()
    if len(steps) < MIN_ROWS:
        raise InputError(
            f"{run.name} has {len(steps)} checkpoints; at least {MIN_ROWS} are needed: train with "
            "a smaller --save-every, or read its log with --source log"
        )

    def measure(model: Any) -> pd.DataFrame:
        found = task.diagnostics(model, request.examples, "quick")
        return pd.DataFrame(
            [{n + end: m for name in MEASURES for n, end, m in _pair(name, found[name])}]
        )

    options = {"examples": request.examples}
    return measure_checkpoints(run, steps, "plateau", options, measure, request.quiet)


def _pair(name: str, measure: Any) -> list[tuple[str, str, float]]:
    return [(name, "", measure.value), (name, "_se", measure.se)]


def plateau_tables(
    series: pd.DataFrame, lines: dict[str, float], n_examples: int
) -> dict[str, pd.DataFrame]:
    """Gives the tables of the answer: `taus`, `onset`, `level` and the `series` itself.

    Args:
        series: rows with `step`, `MEASURES` and their `..._se`.
        lines: reference lines of the task.
        n_examples: evaluation examples behind each row.
    """
    onset = onset_table(series, lines["ln_k"])
    level = level_table(series, lines, plateau_end(onset))
    level["knowledge_share"] = [knowledge_share(row) for row in records(level)]
    taus = tau_table(series, lines["ln_k"], lines["marginal_first_token_ce"], n_examples)
    return {"taus": taus, "onset": onset, "level": level, "series": series}


def _summary(run: Run, tables: dict[str, pd.DataFrame]) -> list[str]:
    level, onset = keyed(tables["level"], "quantity"), keyed(tables["onset"], "reading")
    height, mass = level["height"], level["candidate_mass"]
    last = int(tables["series"]["step"].iloc[-1])
    lines = [
        f"{run.name}: {len(tables['series'])} evaluations up to step {last}",
        f"height {height['value']:.3f} ln K ({height['low']:.3f} to {height['high']:.3f}); over "
        f"steps 100 to 500, as the paper has it, {height['paper']:.3f}",
        f"on the plateau the candidate mass is {mass['value']:.3f} ({mass['low']:.3f} to "
        f"{mass['high']:.3f}, {mass['at_end']:.3f} at its end), where ignorance has "
        f"{mass['ignorant']:.3f} and the marginal 1: {plateau_verdict(tables['level'])}",
        "tau  as the paper reads it (range)  held and interpolated",
    ]
    for row in records(tables["taus"]):
        paper, sound = _range(row, "paper"), _range(row, "sound")
        lines.append(f"  {row['definition']}  {paper:<28} {sound:<28} {row['loss']} {row['rule']}")
    for reading, what in (("paper", "first-token loss"), ("sound", "candidate loss")):
        seen, lead = _range(onset[reading], "onset"), _share(onset[reading])
        falls = _range(onset[reading], "falls")
        lines.append(f"z-gap of 0.1 nat ({reading}): {seen}; {what} falls: {falls}; lead {lead}")
    return lines


def plateau_verdict(level: pd.DataFrame) -> str:
    """Is the plateau a marginal or ignorance? From candidate mass, or else from the target loss."""
    rows = keyed(level, "quantity")
    by_mass = rows["candidate_mass"]["knowledge_share"]
    share = rows["target_ce"]["knowledge_share"] if math.isnan(by_mass) else by_mass
    words = {
        "marginal": "a marginal",
        "between": f"between the two ({share:.0%} of the way to the marginal)",
        "ignorance": "ignorance, not a marginal",
        "undefined": "cannot be told",
    }
    return words[verdict(share)]


def _range(row: Row, name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if not np.isfinite(value):
        return "not reached" if not np.isfinite(low) else f"not reached (from {low:.0f})"
    return f"{value:.0f} ({low:.0f} to {'later' if not np.isfinite(high) else f'{high:.0f}'})"


def _share(row: Row) -> str:
    if np.isnan(row["lead_share"]):
        return "not defined, one of the two is not reached"
    return (
        f"{row['lead']:.0f} steps, {row['lead_share']:.2f} tau "
        f"({row['lead_share_low']:.2f} to {row['lead_share_high']:.2f})"
    )


def _figures(tables: dict[str, pd.DataFrame], lines: dict[str, float]) -> dict[str, go.Figure]:
    onset, taus = keyed(tables["onset"], "reading"), keyed(tables["taus"], "definition")
    marks = {"z-gap": onset["sound"]["onset"], "tau a": taus["a"]["sound"]}
    return {
        "Losses": loss_figure(tables["series"], lines, marks),
        "Candidate mass": mass_figure(tables["series"], lines, marks),
    }
