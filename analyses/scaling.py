"""Scaling: which power of a setting a time follows over several runs, and whether it diverges."""

from typing import Any

import numpy as np
import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import Scaling
from analyses.checkpoints import read_from
from analyses.laws.divergence import MIN_X as MIN_X_DIVERGING
from analyses.laws.divergence import diverging_time
from analyses.laws.figure import X_NAMES, scaling_figure
from analyses.laws.points import READINGS, other_differences, points_of
from analyses.laws.power import MIN_X, power_law
from analyses.rows import Row, kept, numbers, records
from circuits.errors import InputError
from mechinterp.runs import Run

SEED = 0


def answer(request: Scaling) -> Answer:
    """Reads the time off every run's log and fits laws to it.

    Raises:
        InputError: too few runs or different x, a run of the wrong task, or a run given twice.
    """
    runs = _open(request)
    points = points_of(runs, request.x, request.time)
    reached = kept(points, np.isfinite(numbers(points, "sound")))
    least = MIN_X_DIVERGING if request.diverging else MIN_X
    if len(set(reached["x"])) < least:
        raise InputError(_too_few(points, reached, request, least))
    fits = []
    diverging = []
    for reading in READINGS:
        used = kept(reached, np.isfinite(numbers(reached, reading)))
        used["time"] = used[reading]
        if len(set(used["x"])) < least:
            continue
        found = power_law(used, request.exponent, request.resamples, SEED)
        fits.append({"reading": reading, **found})
        if request.diverging:
            found = diverging_time(used, request.resamples, SEED)
            diverging.append({"reading": reading, **found})
    tables = {"fits": pd.DataFrame(fits), "points": points, "diverging": pd.DataFrame(diverging)}
    differences = other_differences(runs, request.x)
    options = {"x": request.x, "time": request.time, "resamples": request.resamples, "seed": SEED}
    options |= {"exponent": request.exponent, "diverging": request.diverging}
    return Answer(
        summary=tuple(_summary(request, tables, differences)),
        tables={name: table for name, table in tables.items() if len(table)},
        figures={"Scaling": scaling_figure(points, tables["fits"], tables["diverging"], request.x)},
        provenance={"runs": [read_from(run) for run in runs], "options": options},
    )


def _open(request: Scaling) -> list[Run]:
    least = MIN_X_DIVERGING if request.diverging else MIN_X
    if len(request.runs) < least:
        raise InputError(
            f"--runs names {len(request.runs)} runs; a fit needs at least {least}, of different "
            f"{request.x}: --runs NAME NAME ..."
        )
    if request.resamples < 100:
        raise InputError(f"resamples is {request.resamples}; it has to be at least 100")
    if request.exponent is not None and not np.isfinite(request.exponent):
        raise InputError(f"exponent is {request.exponent}; it has to be a finite number")
    runs = [Run.open(name, request.root) for name in request.runs]
    seen: set[Any] = set()
    for run in runs:
        if run.path.resolve() in seen:
            raise InputError(f"--runs names {run.name} twice; a run counts once")
        seen.add(run.path.resolve())
    return runs


def _too_few(points: pd.DataFrame, reached: pd.DataFrame, request: Scaling, least: int) -> str:
    late = [row for row in records(points) if row["run"] not in set(reached["run"])]
    names = ", ".join(f"{row['run']} (by step {row['last']})" for row in late)
    why = f"; not reached in {names}: train longer" if names else ""
    return (
        f"time {request.time} was reached at {len(set(reached['x']))} different {request.x}; the "
        f"fit needs at least {least}{why}, or give runs with other {request.x}"
    )


def _summary(
    request: Scaling, tables: dict[str, pd.DataFrame], differences: list[str]
) -> list[str]:
    name, points = X_NAMES.get(request.x, request.x), tables["points"]
    lines = [f"time {request.time} against {name}, {len(points)} runs"]
    for row in records(points):
        sound, paper = (_time(row[reading], row["last"]) for reading in ("sound", "paper"))
        lines.append(
            f"  {row['run']}: {name} {row['x']:g}, {sound} held, {paper} as the paper has it"
        )
    missed = int(np.isinf(numbers(points, "sound")).sum())
    if missed:
        lines.append(
            f"{missed} runs end before the time; leaving them out flatters a small exponent"
        )
    lines += [_fit_line(row) for row in records(tables["fits"])]
    lines += [_diverging_line(row) for row in records(tables["diverging"])]
    if differences:
        lines.append(f"besides {name} and seeds the runs differ in {', '.join(differences)}")
    return lines


def _time(time: float, last: int) -> str:
    return f"{time:.0f}" if np.isfinite(time) else f"not reached by step {last}"


def _fit_line(row: Row) -> str:
    text = f"{row['reading']}: exponent {row['exponent']:.3f}"
    if np.isnan(row["low"]):
        text += ", no interval over seeds: there is one run for each x"
    else:
        text += f", {row['low']:.3f} to {row['high']:.3f} by bootstrap over seeds"
    text += f" ({row['points_low']:.3f} to {row['points_high']:.3f} over points, the paper's way)"
    if not np.isnan(row["lack_of_fit_p"]):
        text += f"; lack of fit p {row['lack_of_fit_p']:.2g}"
    if "theory" in row:
        says = {True: "agrees", False: "disagrees", None: "cannot be compared"}[row["agrees"]]
        text += f"; the exponent {row['theory']:g} {says}"
    return text


def _diverging_line(row: Row) -> str:
    upper = f"{row['critical_high']:.4g}" if np.isfinite(row["critical_high"]) else "no upper end"
    text = (
        f"{row['reading']}: A (K* - K)^-gamma with K* {row['critical']:.4g} "
        f"({row['critical_low']:.4g} to {upper}), gamma {row['gamma']:.2f}"
    )
    preferred = "the divergence" if row["delta_aic"] > 2 else (
        "the power law" if row["delta_aic"] < -2 else "neither"
    )  # fmt: skip
    return (
        f"{text}; preferred over a power law: {preferred} (AIC difference {row['delta_aic']:.1f})"
    )
