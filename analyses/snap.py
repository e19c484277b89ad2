"""The snap: are whole groups learned together, or is it how independent items look from afar?"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import Snap
from analyses.checkpoints import measure_checkpoints, read_from
from analyses.groups.collective import LEVEL, collective_row, holm
from analyses.groups.outcomes import group_outcomes
from analyses.line_figure import Line, time_figure
from analyses.plateau import check_marginals, log_series
from analyses.rows import keyed, numbers, records
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme
from mechinterp.runs import Run
from mechinterp.tasks.marginals import Marginals

MIN_CHECKPOINTS = 3
"""Checkpoints needed up to 1.5 tau."""

LAST = 1.5
"""Multiple of tau at which the question ends."""

SNAP, COVERAGE = 0.05, 0.2
"""The paper's criterion: a share of groups at 80 % at tau/2 up to the one, or above the other."""

SEED = 0

_ICC = ("icc", "icc_low", "icc_high", "step")


def answer(request: Snap) -> Answer:
    """Scores whole groups of one run at its checkpoints and answers from the outcomes.

    Raises:
        InputError: the run is of another task, never reaches tau, or has too few checkpoints.
    """
    run = Run.open(request.run, request.root)
    check_marginals(run, "snap")
    _check(request)
    task = run.task()
    assert isinstance(task, Marginals)
    task.groups(request.groups)  # refuses more groups than there are before any model is loaded
    tau, steps = choose_steps(run, request.checkpoints)
    table = _measured(run, task, steps, request)
    table.insert(1, "share_of_tau", table["step"] / tau)
    table["p_holm"] = holm(numbers(table, "p_spread_by_slot"))
    verdict = snap_verdict(table)
    options = {"groups": request.groups, "permutations": request.permutations, "seed": SEED}
    return Answer(
        summary=tuple(_summary(run, tau, table, verdict, request.groups)),
        tables={"snap": table, "verdict": pd.DataFrame([{"tau": tau, **verdict}])},
        figures={"Whole groups": snap_figure(table, tau), "Alike": alike_figure(table, tau)},
        provenance={**read_from(run, steps), "options": options},
    )


def _check(request: Snap) -> None:
    for name, value, low in (
        ("groups", request.groups, 2),
        ("checkpoints", request.checkpoints, MIN_CHECKPOINTS),
        ("permutations", request.permutations, 100),
    ):
        if value < low:
            raise InputError(f"{name} is {value}; it has to be at least {low}")


def choose_steps(run: Run, n: int) -> tuple[float, list[int]]:
    """Gives tau (definition a, held and interpolated) and the checkpoints nearest to even spacing.

    Raises:
        InputError: the log never reaches tau, or fewer than 3 checkpoints lie up to 1.5 tau.
    """
    series = log_series(run)
    config = check_marginals(run, "snap")
    tau = keyed(tau_table(series, math.log(config.k)), "definition")["a"]["sound"]
    last = int(series["step"].iloc[-1])
    if not np.isfinite(tau):
        lowest = numbers(series, "candidate_loss").min() / math.log(config.k)
        raise InputError(
            f"{run.name} does not reach tau: up to step {last} its candidate loss never stays "
            f"below 0.5 ln K (least {lowest:.2f} ln K); snap needs a run that does: train longer"
        )
    steps = nearest_steps(run.steps, LAST * tau, n)
    if len(steps) < MIN_CHECKPOINTS:
        raise InputError(
            f"{run.name} has {len(steps)} checkpoints up to 1.5 tau (step {LAST * tau:.0f}); snap "
            f"needs at least {MIN_CHECKPOINTS}: train with a smaller --save-every"
        )
    return tau, steps


def nearest_steps(saved: Sequence[int], end: float, n: int) -> list[int]:
    """Gives the saved steps nearest to `n` evenly spaced ones from 0 to `end`, each once."""
    return sorted({min(saved, key=lambda s: abs(s - goal)) for goal in np.linspace(0, end, n)})


def _measured(run: Run, task: Marginals, steps: list[int], request: Snap) -> pd.DataFrame:
    def measure(model: Any) -> pd.DataFrame:
        outcomes = group_outcomes(model, task, request.groups).numpy()
        return pd.DataFrame([collective_row(outcomes, request.permutations, SEED)])

    options = {"groups": request.groups, "permutations": request.permutations, "seed": SEED}
    return measure_checkpoints(run, steps, "snap", options, measure, request.quiet)


def snap_verdict(table: pd.DataFrame) -> dict[str, Any]:
    """Says what the paper's criterion and the test say.

    Args:
        table: one row a checkpoint, as `collective_row` gives, with `share_of_tau` and `p_holm`.

    Returns:
        `paper`: snap, coverage or unclear, by the share of groups at 80 % nearest to tau/2
        (`paper_share`, at `paper_at` tau), and `paper_of_null`, what independent items would be
        called at that checkpoint; `collective`: whether groups are more uneven than independence
        allows at any checkpoint (Holm over checkpoints, difficulty of each slot kept);
        `least_p`, adjusted; `icc`, its interval and `icc_step`: the largest intraclass correlation
        among checkpoints with a mean accuracy of 0.2 to 0.8 (any checkpoint if there is none).
    """
    rows = records(table)
    half = min(rows, key=lambda row: abs(row["share_of_tau"] - 0.5))
    known = [row for row in rows if not math.isnan(row["icc"])]
    amid = [row for row in known if 0.2 <= row["mean_accuracy"] <= 0.8] or known
    top = max(amid, key=lambda row: row["icc"], default=dict.fromkeys(_ICC, math.nan))
    least = float(table["p_holm"].min())
    return {
        "paper": _criterion(half["groups_80"]),
        "paper_share": half["groups_80"],
        "paper_at": half["share_of_tau"],
        "paper_of_null": _criterion(half["null_80"]),
        "collective": least < LEVEL,
        "least_p": least,
        **{name: top[name] for name in _ICC[:3]},
        "icc_step": top["step"],
    }


def _criterion(share: float) -> str:
    if share <= SNAP:
        return "snap"
    return "coverage" if share > COVERAGE else "unclear"


def _summary(
    run: Run, tau: float, table: pd.DataFrame, verdict: dict[str, Any], groups: int
) -> list[str]:
    told = "more alike than independent items" if verdict["collective"] else (
        "not told apart from independent items"
    )  # fmt: skip
    lines = [
        f"{run.name}: tau {tau:.0f} (candidate loss held below 0.5 ln K), {groups} groups at "
        f"{len(table)} checkpoints",
        f"the paper's criterion: {verdict['paper']} ({verdict['paper_share']:.1%} of groups at "
        f"80 % at {verdict['paper_at']:.2f} tau); independent items at the same mean accuracy "
        f"would be called {verdict['paper_of_null']}",
        f"the test: members of a group are {told} (least adjusted p {verdict['least_p']:.2g}); "
        f"intraclass correlation {verdict['icc']:.3f} ({verdict['icc_low']:.3f} to "
        f"{verdict['icc_high']:.3f}), where 1 is all or none",
        "  tau   step  mean acc.   80 % (null)        100 % (null)     adj. p     icc",
    ]
    for row in records(table):
        lines.append(
            f"  {row['share_of_tau']:4.2f} {row['step']:6d}   {row['mean_accuracy']:.3f}    "
            f"{row['groups_80']:6.1%} ({row['null_80']:6.1%})   {row['groups_100']:6.1%} "
            f"({row['null_100']:6.1%})   {row['p_holm']:7.2g} {row['icc']:7.3f}"
        )
    return lines


def snap_figure(table: pd.DataFrame, tau: float, theme: Theme = LIGHT) -> go.Figure:
    """Draws the shares of solved groups beside what independent items would give."""
    lines = [
        Line("mean_accuracy", "mean accuracy", "mean_accuracy_low", "mean_accuracy_high"),
        Line("groups_80", "groups at 80 %", "groups_80_low", "groups_80_high"),
        Line("groups_100", "groups at 100 %", "groups_100_low", "groups_100_high"),
        Line("null_80", "80 %, independent items", "null_80_low", "null_80_high", dash="dot"),
        Line("null_100", "100 %, independent items", "null_100_low", "null_100_high", dash="dot"),
    ]
    title = "Solved groups against independent items"
    return time_figure(table, lines, title=title, unit="share", marks={"tau": tau}, theme=theme)


def alike_figure(table: pd.DataFrame, tau: float, theme: Theme = LIGHT) -> go.Figure:
    """Draws how alike the members of a group are."""
    lines = [Line("icc", "intraclass correlation", "icc_low", "icc_high")]
    title = "How alike the members of a group are: 0 independent, 1 all or none"
    return time_figure(
        table,
        lines,
        title=title,
        unit="correlation",
        levels={"independent": 0.0},
        marks={"tau": tau},
        theme=theme,
    )
