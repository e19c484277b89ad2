"""Claims about the loss around the plateau: is it a saddle, and how anisotropic is it?"""

import math

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import below, every, inside, most, shown
from analyses.ledger.head_claims import HEADS, plateau_ends, shared_mapping
from analyses.ledger.seeds import geometric_over_seeds, over_seeds, scale_of, seeds_in, truth
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import waits
from analyses.rows import numbers, records

CRITICAL = 0.1
"""Gradient norm above which the repository's own probe says "not critical"."""

LATEST = 0.9
"""Share of tau after which a checkpoint no longer stands for the plateau."""

ALL_ALONG = "negative curvature by itself is found all along training, from the first step on"


def on_plateau(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: curvature-points at the last checkpoint that is on the plateau or, where
    none was measured there, at the first after it; with when the plateau ends (`end`, a step).

    Raises:
        NoEvidence: no run was measured there.
    """
    points = store.joined(HEADS, "curvature-points")
    taus = waits(store, HEADS).set_index("run")["time"]
    ends = plateau_ends(store)["end"]
    points = points.assign(tau=points["run"].map(taus), end=points["run"].map(ends))
    points = points.assign(at=numbers(points, "step") / numbers(points, "tau"))
    known = points[["lambda_max", "lambda_min", "grad_norm"]].notna().all(axis=1)
    here = pd.DataFrame(points[known & (points["at"] > 0) & (points["at"] <= LATEST)])
    if here.empty:
        raise NoEvidence("no run has its curvature measured between step 0 and 0.9 tau")
    # The last on the plateau comes first, then those after it, the earliest first.
    here = here.assign(late=here["step"] > here["end"])
    here = here.assign(order=here["step"].where(here["late"], -here["step"]))
    return here.sort_values(["late", "order"]).drop_duplicates("run").sort_values("run")


def saddle(store: EvidenceStore) -> Measured:
    """Is the plateau a saddle?"""
    table = on_plateau(store)
    found, norm = over_seeds(numbers(table, "lambda_min")), over_seeds(numbers(table, "grad_norm"))
    critical, escape = nearly_critical(table), escapes(table)
    parts = (
        critical,
        Part(f"and there a direction of negative curvature ({ALL_ALONG}: it counts where the point "
             "is nearly critical)", every((critical.held, escape.held)), escape.seen),
    )  # fmt: skip
    rows = [{"label": row["run"], "value": row["lambda_min"]} for row in records(table)]
    return Measured(
        parts,
        found,
        "lambda_min",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"no curvature": 0.0},
        f"gradient norm on the examples measured {shown(norm)}, of which sampling alone gives "
        f"{shown(over_seeds(numbers(table, 'grad_norm_of_noise')))}; {measured_where(table)}; "
        + shared_mapping(store),
    )


def nearly_critical(table: pd.DataFrame) -> Part:
    """Is the gradient as good as zero?"""
    clean = gradient_without_noise(table)
    return Part(
        f"gradient norm at most {CRITICAL} without the noise of sampling, so that the point is "
        "nearly critical",
        below(clean, CRITICAL),
        shown(clean),
    )


def escapes(table: pd.DataFrame) -> Part:
    """Is there negative curvature, which by itself says little?"""
    settled = numbers(table, "lambda_min") < -numbers(table, "lambda_min_residual")
    return Part(
        "lambda_min below 0 by more than its residual",
        most(settled.tolist()),
        f"lambda_min below 0 by more than its residual in {int(settled.sum())} of {len(table)}",
    )


def gradient_without_noise(table: pd.DataFrame) -> Estimate:
    """The gradient norm that is left of several runs when sampling's share of the square is taken
    away, by Student's t on the squares; 0 where that share is all."""
    squares = numbers(table, "grad_norm") ** 2 - numbers(table, "grad_norm_of_noise") ** 2
    return Estimate(*(math.sqrt(one) if not one < 0 else 0.0 for one in over_seeds(squares)))


def anisotropy(store: EvidenceStore) -> Measured:
    """How many times larger is the sharpest curvature than the escaping one?"""
    table = on_plateau(store)
    settled = truth(table["converged"])
    found = geometric_over_seeds(_ratios(table, "lambda_max", "lambda_min"))
    paper = geometric_over_seeds(_ratios(table, "paper_max", "paper_min"))
    sound = numbers(table, "paper_min_residual") < np.abs(numbers(table, "paper_min"))
    parts = (
        Part("|lambda_max / lambda_min| between 250 and 2000 by Lanczos",
             inside(found, 250.0, 2000.0), shown(found)),
    )  # fmt: skip
    rows = [
        {"label": f"{name}, {row['run']}", "value": abs(row[f"{top}_max"] / row[f"{low}_min"])}
        for name, top, low in (
            ("Lanczos", "lambda", "lambda"),
            ("paper's iteration", *["paper"] * 2),
        )
        for row in records(table)
        if row[f"{low}_min"] != 0
    ]
    note = (
        f"the paper's shifted power iteration gives {shown(paper)}; its residual is below its "
        f"lambda_min in {int(sound.sum())} of {len(table)} runs; Lanczos converged in "
        f"{sum(settled)}; {measured_where(table)}"
    )
    return Measured(
        parts,
        found,
        "ratio",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"paper, least": 500.0, "paper, greatest": 1000.0},
        note,
    )


def solver(store: EvidenceStore) -> Measured:
    """Does the paper's iteration find lambda_min at all?"""
    table = on_plateau(store)
    off = _ratios(table, "lambda_min", "paper_min")
    found = geometric_over_seeds(off)
    part = Part("lambda_min by power iteration within a factor of 1.5 of Lanczos's",
                inside(found, 1 / 1.5, 1.5), shown(found))  # fmt: skip
    rows = [
        {"label": row["run"], "value": one} for row, one in zip(records(table), off, strict=True)
    ]
    return Measured(
        (part,),
        found,
        "Lanczos over paper",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"agree": 1.0},
        f"iterations taken {table['paper_min_iterations'].min():g} to "
        f"{table['paper_min_iterations'].max():g}; {measured_where(table)}",
    )


def _ratios(table: pd.DataFrame, top: str, bottom: str) -> list[float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(numbers(table, top) / numbers(table, bottom))
    return [float(one) if np.isfinite(one) else math.nan for one in found]


def measured_where(table: pd.DataFrame) -> str:
    """Says where curvature was measured, and whether that is on the plateau."""
    late = table[table["late"]]
    at = f"at {_steps(table['step'])}, {table['at'].min():.2f} to {table['at'].max():.2f} tau"
    if late.empty:
        return f"{at}, on the plateau in every run"
    return (
        f"{at}: after the plateau's end in {len(late)} of {len(table)} runs, the first point "
        f"measured from then on (by our rule, when z matters or the loss falls, it ends at "
        f"{_steps(table['end'])})"
    )


def _steps(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return f"step {low:.0f}" if low == high else f"steps {low:.0f} to {high:.0f}"


CLAIMS = (
    Claim(
        "saddle",
        "marginals",
        "The plateau is a saddle: nearly critical, with a direction of negative curvature.",
        "lambda_min -0.001 to -0.01",
        "an earlier draft; shifted power iteration, mostly stopped at its least 12 steps",
        "on the plateau or, without a point there, at the first after it: gradient norm at most "
        "0.1 without the noise of sampling, and there lambda_min below 0 beyond its residual in "
        "most runs",
        (HEADS,),
        saddle,
    ),
    Claim(
        "anisotropy",
        "marginals",
        "Curvature is anisotropic there: the sharpest is 500 to 1000 times the escaping one.",
        "500 to 1000 (about 1000 in a draft)",
        "second-hand and an earlier draft; entries that iterated for longer give 1 to 3",
        "|lambda_max / lambda_min| between 250 and 2000 by Lanczos on a fixed batch, on the "
        "plateau or, without a point there, at the first after it",
        (HEADS,),
        anisotropy,
    ),
    Claim(
        "anisotropy-solver",
        "marginals",
        "The power iteration behind that ratio finds the least eigenvalue.",
        "assumed",
        "the repository's script stops when iterates agree, which a bulk near zero mimics",
        "lambda_min by the paper's iteration within a factor of 1.5 of Lanczos's, at the same "
        "point",
        (HEADS,),
        solver,
    ),
)
