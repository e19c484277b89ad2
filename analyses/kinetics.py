"""Kinetics: does slowing one subcircuit move K1*, and would the static crossing K_x say so too?"""

import math

import pandas as pd

from analyses.answer import Answer
from analyses.bypass.critical_k import arm_table, share_table
from analyses.bypass.figures import gap_figure, share_figure
from analyses.bypass.outcomes import PLAIN, outcome_table
from analyses.bypass.static_losses import gap_table, mean_gaps, static_crossing
from analyses.catalogue import Kinetics
from analyses.checkpoints import read_from
from analyses.rows import Row, records
from circuits.errors import InputError
from mechinterp.runs import Run

MIN_K = 2
"""Different K that an arm needs: K1* lies between two."""

SIGNIFICANT = 0.05


def answer(request: Kinetics) -> Answer:
    """Reads the outcome of every run, places K1* in every arm, and computes K_x beside it.

    Raises:
        InputError: no runs, a run given twice or of another task, runs that do not vary K or that
            differ in something else.
    """
    runs = _open(request)
    outcomes = outcome_table(runs, request.rule)
    _refuse_constant_k(outcomes)
    gaps = gap_table(runs[0].config.task, request.draws, request.sequences)  # pyright: ignore
    k_x, low, high = static_crossing(gaps)
    crossing = pd.DataFrame([{"k_x": k_x, "low": low, "high": high}])
    tables = {
        "arms": arm_table(outcomes, PLAIN),
        "crossing": crossing,
        "shares": share_table(outcomes),
        "outcomes": outcomes,
        "gaps": gaps,
    }
    options = {"rule": request.rule, "draws": request.draws, "sequences": request.sequences}
    return Answer(
        summary=tuple(_summary(request, tables)),
        tables=tables,
        figures={
            "Runs that enter 2-Gen": share_figure(tables["shares"], k_x),
            "Static crossing": gap_figure(mean_gaps(gaps), k_x),
        },
        provenance={"runs": [read_from(run) for run in runs], "options": options},
    )


def _open(request: Kinetics) -> list[Run]:
    if len(request.runs) < MIN_K:
        raise InputError(
            f"--runs names {len(request.runs)} runs; kinetics needs at least {MIN_K}, of different "
            "k: --runs NAME NAME ..."
        )
    runs, seen = [Run.open(name, request.root) for name in request.runs], set()
    for run in runs:
        if run.path.resolve() in seen:
            raise InputError(f"--runs names {run.name} twice; a run counts once")
        seen.add(run.path.resolve())
    return runs


def _refuse_constant_k(outcomes: pd.DataFrame) -> None:
    for arm, group in outcomes.groupby("arm", sort=False):
        ks = sorted(set(group["k"]))
        if len(ks) < MIN_K:
            raise InputError(
                f"the {len(group)} runs with lr_factor {arm} all have k={ks[0]}; K1* lies between "
                f"two k, so every arm needs at least {MIN_K}: train others with --k, or leave "
                "these out"
            )


def _summary(request: Kinetics, tables: dict[str, pd.DataFrame]) -> list[str]:
    crossing = records(tables["crossing"])[0]
    rule = {"phase": "being in that phase", "nearest": "being nearest to it"}[request.rule]
    lines = [
        f"K1*: half of the runs enter 2-Gen ({rule} at some evaluation), intervals 95 % and exact",
        *(_arm_line(row) for row in records(tables["arms"])),
        f"K_x, the static rival: 1-Mem predicts better than 2-Gen up to K = {crossing['k_x']:.3g} "
        f"({crossing['low']:.3g} to {crossing['high']:.3g}) whatever the learning rates",
    ]
    arms = {row["arm"]: row for row in records(tables["arms"])}
    if PLAIN in arms:
        lines.append(_compatible(arms[PLAIN], crossing))
    lines.append(_shift_line(list(arms.values())))
    return lines


def _arm_line(row: Row) -> str:
    text = f"  {row['arm']}: {row['runs']} runs, K1* {place(row['k1'])}"
    if not math.isnan(row["k1"]):
        text += f" ({_end(row['low'], 'no lower end')} to {_end(row['high'], 'no upper end')})"
    if not math.isnan(row["p"]):
        shift = "shift not defined" if math.isnan(row["shift"]) else f"shift {row['shift']:.2f}x"
        low, high = (_end(row[n], t) for n, t in (("shift_low", "0"), ("shift_high", "no end")))
        text += f"; {shift} ({low} to {high}), p of no shift {row['p']:.2g}"
    if row["undecided"]:
        text += f"; {row['undecided']} runs end undecided and do not count: train them longer"
    return text


def place(k1: float) -> str:
    """Puts K1* in words where it lies outside what was run."""
    if math.isnan(k1):
        return "unknown, no run is decided"
    if k1 == 0:
        return "below every k that was run"
    return "above every k that was run" if math.isinf(k1) else f"{k1:.3g}"


def _end(value: float, none: str) -> str:
    return none if value == 0 or math.isinf(value) else f"{value:.3g}"


def _compatible(row: Row, crossing: Row) -> str:
    if math.isnan(row["k1"]):
        return "K1* of the unscaled arm is unknown, so K_x cannot be compared with it"
    apart = row["low"] >= crossing["high"] or row["high"] <= crossing["low"]
    if apart:
        return "K_x lies outside the interval of K1*: the static crossing does not place it"
    return "K_x lies inside the interval of K1*: the place of K1* alone does not refute it"


def _shift_line(rows: list[Row]) -> str:
    tested = [row for row in rows if not math.isnan(row["p"])]
    if not tested:
        return "no shift can be told: give runs with and without --lr-factor, at the same k"
    # Several arms are several chances to be surprised.
    moved = [row["arm"] for row in tested if row["p"] * len(tested) < SIGNIFICANT]
    if moved:
        return f"learning rates move K1* ({'; '.join(moved)}), which K_x cannot explain"
    return "no arm moves K1* beyond chance, so these runs do not tell kinetics from K_x"
