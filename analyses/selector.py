"""The selector head over training: when each signal leaves its noise, and its lead on the loss."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import torch

from analyses.answer import Answer
from analyses.catalogue import Selector
from analyses.checkpoints import check_examples, measure_checkpoints, read_from
from analyses.line_figure import Line, time_figure
from analyses.plateau import check_marginals, log_series
from analyses.rows import Row, keyed, records
from analyses.waiting.lead import LOSSES, lead_table, lead_verdict
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from circuits.figures.curves import onset_figure
from circuits.intervals import mean_interval
from circuits.onset import onsets
from circuits.selector_signals import SIGNALS
from circuits.selector_verdict import RANKED_BY
from mechinterp.findings.selector import task_selector
from mechinterp.runs import Run

PAIR_SEED = 1
"""Seed of the pairs, the one of `mechinterp.trace`: the same pairs at every checkpoint."""

MODEL = "model"
"""What stands in the column `head` for signals of the whole model."""


def answer(request: Selector) -> Answer:
    """Measures every checkpoint of one run and answers from the series.

    Raises:
        InputError: the run is of another task, has too few checkpoints, or has no such head.
    """
    run = Run.open(request.run, request.root)
    check_marginals(run, "selector")
    check_examples(request.examples)
    _check_steps(run, request.early)
    options = {"examples": request.examples, "pair_seed": PAIR_SEED}
    measure = SelectorMeasure(run.task(), request.examples)
    signals = measure_checkpoints(run, run.steps, "selector", options, measure, request.quiet)
    head = _followed(signals, request.head)
    tables = selector_tables(signals, head, request.early, _tau(run, signals))
    return Answer(
        summary=tuple(_summary(run, head, request.head is None, tables)),
        tables=tables,
        figures=_figures(head, tables),
        provenance={**read_from(run, run.steps), "options": options | {"early": request.early}},
    )


@dataclass(frozen=True)
class SelectorMeasure:
    """Measures the model of one checkpoint: rows `head`, `signal`, `value`, `low`, `high`.

    The head `model` stands for the whole model: the losses of the task's diagnostics, and
    `selector_effect`, what another selector in the input does to the target loss.
    """

    task: Any
    examples: int

    def __call__(self, model: Any) -> pd.DataFrame:
        """Measures one model."""
        task = self.task
        pairs = task.pairs(self.examples, torch.Generator().manual_seed(PAIR_SEED))
        found = task_selector(model, task, pairs)
        rows: list[tuple[Any, ...]] = [
            (row["head"], signal, row[signal], row[f"{signal}_low"], row[f"{signal}_high"])
            for row in found.table.to_dict("records")
            for signal in SIGNALS
        ]
        bounds = (float(bound) for bound in mean_interval(found.selector_effect))
        rows.append((MODEL, "selector_effect", *bounds))
        with torch.inference_mode():
            measured = task.diagnostics(model, self.examples, "quick")
        for name in LOSSES:
            value, half = measured[name].value, 1.96 * measured[name].se
            rows.append((MODEL, name, value, value - half, value + half))
        return pd.DataFrame(rows, columns=["head", "signal", "value", "low", "high"])


def selector_tables(
    signals: pd.DataFrame, head: str, early: int, tau: float
) -> dict[str, pd.DataFrame]:
    """Gives the tables of the answer.

    Args:
        signals: rows with `step`, `head`, `signal`, `value`, `low`, `high`.
        head: the one to follow.
        early: first checkpoints that make the noise band.
        tau: the waiting time, infinite where it does not end.

    Returns:
        `onsets` of the head and of the whole model, each with its lead; `heads`, the onset of every
        head by the signal that ranks heads; and `signals` themselves.
    """
    followed = pd.DataFrame(signals[signals["head"].isin([head, MODEL])])
    found = onsets(followed, early)
    found.insert(0, "head", [head if signal in SIGNALS else MODEL for signal in found["signal"]])
    ranked = pd.DataFrame(signals[signals["signal"] == RANKED_BY])
    each = onsets(ranked.assign(signal=ranked["head"]), early).rename(columns={"signal": "head"})
    steps = sorted(int(step) for step in signals["step"].unique())
    return {
        "onsets": lead_table(found, steps, tau),
        "heads": lead_table(each, steps, tau),
        "signals": signals,
    }


def _check_steps(run: Run, early: int) -> None:
    if early < 1:
        raise InputError(f"early is {early}; at least 1 checkpoint has to make the noise band")
    if len(run.steps) < early + 2:
        raise InputError(
            f"{run.name} has {len(run.steps)} checkpoints; selector needs at least {early + 2}, of "
            f"which the first {early} make the noise band: train with a smaller --save-every"
        )


def _followed(signals: pd.DataFrame, asked: str | None) -> str:
    """The head asked for, or the one whose values of z matter most on the last checkpoint."""
    heads = [head for head in signals["head"].unique() if head != MODEL]
    if asked is not None:
        if asked not in heads:
            raise InputError(f"{asked!r} is not a head of this run; its heads: {', '.join(heads)}")
        return asked
    last = signals[(signals["step"] == signals["step"].max()) & (signals["signal"] == RANKED_BY)]
    return str(last.loc[last["value"].idxmax(), "head"])


def _tau(run: Run, signals: pd.DataFrame) -> float:
    """Tau by the candidate loss, held below half of ln K; from the log, which is dense, if any."""
    task = run.task()
    try:
        series = log_series(run)
    except InputError:
        wide = signals[signals["head"] == MODEL].pivot(index="step", columns="signal")
        series = pd.DataFrame({"step": wide.index.to_numpy()})
        for name in ("candidate_loss", "first_token_ce"):
            series[name] = wide[("value", name)].to_numpy()
            series[f"{name}_se"] = (wide[("high", name)] - wide[("value", name)]).to_numpy() / 1.96
    taus = tau_table(series, task.reference_lines()["ln_k"])
    return float(keyed(taus, "definition")["a"]["sound"])


def _summary(run: Run, head: str, chosen: bool, tables: dict[str, pd.DataFrame]) -> list[str]:
    onset, signals = tables["onsets"], tables["signals"]
    why = f", which leads in {RANKED_BY} on the last checkpoint" if chosen else ""
    tau = float(onset["tau"].iloc[0])
    waiting = f"tau {tau:.0f}" if tau < float("inf") else "tau not reached"
    lines = [
        f"{run.name}: {signals['step'].nunique()} checkpoints, head {head}{why}; {waiting} "
        "(candidate loss held below half of ln K)",
        "onset of a signal: the step from which it stays outside the band of the first checkpoints",
        "  signal            of      onset  after   lead on tau, as a share of tau",
    ]
    lines += [_line(row) for row in records(onset)]
    lines.append(f"heads by onset of {RANKED_BY}: " + _by_onset(tables["heads"]))
    lines.append(lead_verdict(onset, head))
    return lines


def _line(row: Row) -> str:
    start = f"  {row['signal']:<17} {row['head']:<6}"
    if pd.isna(row["onset"]):
        return f"{start}  never"
    share = ""
    if not pd.isna(row["lead_low"]):
        share = f"  {row['lead_low']:.2f} to {row['lead_high']:.2f}"
    return f"{start} {row['onset']:6d} {row['after']:6d} {share}"


def _by_onset(heads: pd.DataFrame) -> str:
    known = heads.dropna(subset=["onset"]).sort_values("onset", kind="stable")
    return ", ".join(f"{row['head']} {row['onset']}" for row in records(known)) or "none has one"


def _figures(head: str, tables: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    signals, found = tables["signals"], tables["onsets"]
    series = pd.DataFrame(signals[signals["head"].isin([head, MODEL])])
    ranked = signals[signals["signal"] == RANKED_BY]
    wide = ranked.pivot(index="step", columns="head", values=["value", "low", "high"])
    wide.columns = [f"{one} {end}" for end, one in wide.columns]
    heads = list(dict.fromkeys(ranked["head"]))
    lines = [Line(f"{one} value", one, f"{one} low", f"{one} high") for one in heads]
    marks = {"tau": float(found["tau"].iloc[0])}
    return {
        f"Signals of {head}": onset_figure(series, found),
        "Heads": time_figure(
            wide.reset_index(),
            lines,
            title="What reading another z costs at each head",
            unit="nats",
            marks=marks,
        ),
    }
