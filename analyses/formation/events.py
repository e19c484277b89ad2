"""When does the loss move, under each definition that fits the task, and what was born before?"""

import math
from typing import Any

import pandas as pd

from analyses.chains.phase_changes import spells
from analyses.phases import log_phases
from analyses.plateau import MEASURES, MIN_ROWS, log_series
from analyses.rows import keyed, numbers, records
from analyses.waiting.level import onset_table
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from circuits.onset import onsets
from mechinterp.config import MarginalsConfig
from mechinterp.nearest_predictor import PHASES, nearest_phase
from mechinterp.runs import Run

COLUMNS = ("event", "step", "low", "high", "source")

LOGGED = ("target_ce", "loss")
"""Names in a run's log of the loss that training minimises: marginals, Markov chains."""

FIRST_FALL = "loss leaves its value at the start"
PLATEAU_END = "candidate loss falls 0.1 nat below ln K"

Event = tuple[str, float, float, float, str]


def loss_events(run: Run, diagnostics: pd.DataFrame, loss: str, early: int = 1) -> pd.DataFrame:
    """When does the loss move?

    The run's own log is read where it has enough rows, since it is denser than the checkpoints.

    Args:
        run: the run.
        diagnostics: of its checkpoints: `step`, `name`, `value`, `se`.
        loss: name among them of the loss that effects are changes of.
        early: first checkpoints that make the loss's own noise band.

    Returns:
        One row an event, in this order: the loss leaves its value at the start (`circuits.onset`);
        for the marginals task the end of the plateau, tau and the z-gap (the sound readings of
        `analyses.plateau`); for Markov chains the first beginning of every phase. `event`, `step`
        (infinite if it never happens), `low` and `high`: where it lies between, by the steps that
        were measured or by evaluation noise, `source` ("log" or "checkpoints").
    """
    rows = [_first_fall(run, diagnostics, loss, early)]
    config = run.config.task
    if not isinstance(config, MarginalsConfig):
        rows += _phase_events(run, diagnostics)
    elif config.variant == "bz_to_a" and config.k > 1:
        rows += _plateau_events(run, diagnostics, config.k)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def leads(births: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """How long before the loss moves is each component born?

    Args:
        births: what `analyses.formation.lifetimes.births` gave.
        events: what `loss_events` gave.

    Returns:
        One row a component that was born and an event that happened: `component`, `kind`, `event`,
        `born`, `event_step`, `lead` (steps from the birth to the event, negative where it came
        after), `lead_low` and `lead_high` (what the spacing of checkpoints and the event's own
        interval allow), and `before`, whether even the least lead is above 0.
    """
    rows = []
    for event in records(events):
        if not math.isfinite(event["step"]):
            continue
        for born in records(pd.DataFrame(births.dropna(subset=["born"]))):
            low, high = event["low"] - born["born"], event["high"] - born["born_after"]
            lead = event["step"] - born["born"]
            rows.append(
                (born["component"], born["kind"], event["event"], born["born"], event["step"],
                 lead, low, high, low > 0)
            )  # fmt: skip
    columns = ["component", "kind", "event", "born", "event_step", "lead", "lead_low", "lead_high"]
    return pd.DataFrame(rows, columns=[*columns, "before"])


def _first_fall(run: Run, diagnostics: pd.DataFrame, loss: str, early: int) -> Event:
    one = pd.DataFrame(diagnostics[diagnostics["name"] == loss]).sort_values("step")
    one, source = pd.DataFrame(one[["step", "value", "se"]]), "checkpoints"
    metrics = run.metrics()
    logged = next((name for name in LOGGED if f"{name}_se" in metrics.columns), None)
    if logged is not None and len(metrics) >= MIN_ROWS:
        early = int((metrics["step"] <= one["step"].iloc[early - 1]).sum())
        columns = {logged: "value", f"{logged}_se": "se"}
        one, source = metrics[["step", *columns]].rename(columns=columns).dropna(), "log"
    half = 1.96 * one["se"]
    series = one.assign(signal=loss, low=one["value"] - half, high=one["value"] + half)
    onset = onsets(series, max(early, 1))["onset"].iloc[0]
    if pd.isna(onset):
        return FIRST_FALL, math.inf, math.inf, math.inf, source
    before = max(step for step in one["step"] if step < onset)
    return FIRST_FALL, float(onset), float(before), float(onset), source


def _wide(diagnostics: pd.DataFrame) -> pd.DataFrame:
    """Diagnostics as the log has them: a column for each quantity and its `_se`."""
    value = diagnostics.pivot(index="step", columns="name", values="value")
    se = diagnostics.pivot(index="step", columns="name", values="se").add_suffix("_se")
    return value.join(se).reset_index()


def _plateau_events(run: Run, diagnostics: pd.DataFrame, k: int) -> list[Event]:
    try:
        series, source = log_series(run), "log"
    except InputError:
        columns = [column for name in MEASURES for column in (name, f"{name}_se")]
        series, source = pd.DataFrame(_wide(diagnostics)[["step", *columns]]), "checkpoints"
    ln_k = math.log(k)
    sound = keyed(onset_table(series, ln_k), "reading")["sound"]
    tau = keyed(tau_table(series, ln_k), "definition")["a"]
    return [
        (PLATEAU_END, sound["falls"], sound["falls_low"], sound["falls_high"], source),
        ("z-gap rises to 0.1 nat", sound["onset"], sound["onset_low"], sound["onset_high"], source),
        ("tau: candidate loss held below 0.5 ln K", tau["sound"], tau["sound_low"],
         tau["sound_high"], source),
    ]  # fmt: skip


def _phase_events(run: Run, diagnostics: pd.DataFrame) -> list[Event]:
    table, source = log_phases(run), "log"
    if len(table) < MIN_ROWS:
        table, source = _phases(_wide(diagnostics)), "checkpoints"
    steps, seen = numbers(table, "step"), {"mixed"}
    events: list[Event] = []
    for row in records(spells(table)):
        first = float(row["first"])
        if row["phase"] not in seen and first > steps[0]:
            before = float(steps[steps < first].max())
            events.append((f"{row['phase']} begins", first, before, first, source))
        seen.add(row["phase"])
    return events


def _phases(wide: pd.DataFrame) -> pd.DataFrame:
    """Distances at checkpoints in the form that `transitions` reads."""
    found = [name for name in PHASES if f"kl_{name}" in wide.columns]
    table = pd.DataFrame({"step": wide["step"]})
    for name in (*found, "truth"):
        table[f"{name}_train"] = numbers(wide, f"kl_{name}")
        table[f"{name}_new"] = numbers(wide, f"kl_{name}_new")
    table["phase"] = [_name(row, found) for row in records(table)]
    return table


def _name(row: dict[str, Any], found: list[str]) -> str:
    return nearest_phase(
        {name: row[f"{name}_train"] for name in found},
        {name: row[f"{name}_new"] for name in found},
    ).name
