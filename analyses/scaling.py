"""Scaling: which power of a setting a time follows over several runs, and whether it diverges."""

from typing import Any

import numpy as np
import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import Scaling
from analyses.checkpoints import read_from
from analyses.diverging_time import MIN_X as MIN_X_DIVERGING
from analyses.diverging_time import diverging_time
from analyses.power_law import MIN_X, power_law
from analyses.scaling_figure import X_NAMES, scaling_figure
from analyses.scaling_points import READINGS, other_differences, points_of
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
    reached = points[np.isfinite(points["sound"])]
    least = MIN_X_DIVERGING if request.diverging else MIN_X
    if reached["x"].nunique() < least:
        raise InputError(_too_few(points, reached, request, least))
    fits = []
    diverging = []
    for reading in READINGS:
        used = reached[np.isfinite(reached[reading])].rename(columns={reading: "time"})
        if used["x"].nunique() < least:
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
    runs = [Run.open(name, request.root) for name in request.runs]
    seen: set[Any] = set()
    for run in runs:
        if run.path.resolve() in seen:
            raise InputError(f"--runs names {run.name} twice; a run counts once")
        seen.add(run.path.resolve())
    return runs


def _too_few(points: pd.DataFrame, reached: pd.DataFrame, request: Scaling, least: int) -> str:
    late = points[~points["run"].isin(reached["run"])]
    names = ", ".join(f"{row.run} (by step {row.last})" for row in late.itertuples())
    why = f"; not reached in {names}: train longer" if names else ""
    return (
        f"time {request.time} was reached at {reached['x'].nunique()} different {request.x}; the "
        f"fit needs at least {least}{why}, or give runs with other {request.x}"
    )


def _summary(
    request: Scaling, tables: dict[str, pd.DataFrame], differences: list[str]
) -> list[str]:
    name, points = X_NAMES.get(request.x, request.x), tables["points"]
    lines = [f"time {request.time} against {name}, {len(points)} runs"]
    for row in points.itertuples():
        sound = f"{row.sound:.0f}" if np.isfinite(row.sound) else f"not reached by step {row.last}"
        paper = f"{row.paper:.0f}" if np.isfinite(row.paper) else "not reached"
        lines.append(f"  {row.run}: {name} {row.x:g}, {sound} held, {paper} as the paper reads it")
    missed = (~np.isfinite(points["sound"])).sum()
    if missed:
        lines.append(
            f"{missed} runs end before the time; leaving them out flatters a small exponent"
        )
    lines += [_fit_line(row) for _, row in tables["fits"].iterrows()]
    lines += [_diverging_line(row) for _, row in tables["diverging"].iterrows()]
    if differences:
        lines.append(f"besides {name} and seeds the runs differ in {', '.join(differences)}")
    return lines


def _fit_line(row: pd.Series) -> str:
    text = f"{row['reading']}: exponent {row['exponent']:.3f}"
    if np.isnan(row["low"]):
        text += ", no interval over seeds: there is one run for each x"
    else:
        text += f", {row['low']:.3f} to {row['high']:.3f} by bootstrap over seeds"
    text += f" ({row['points_low']:.3f} to {row['points_high']:.3f} over points, the paper's way)"
    if not np.isnan(row["lack_of_fit_p"]):
        text += f"; lack of fit p {row['lack_of_fit_p']:.2g}"
    if "theory" in row.index:
        says = {True: "agrees", False: "disagrees", None: "cannot be compared"}[row["agrees"]]
        text += f"; the exponent {row['theory']:g} {says}"
    return text


def _diverging_line(row: pd.Series) -> str:
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
