"""Circuit formation: edges, heads and mechanisms at every checkpoint, on one time axis."""

import math
import re
from collections.abc import Sequence
from typing import Any, cast, get_args

import numpy as np
import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import CircuitFormation
from analyses.checkpoints import check_examples, measure_checkpoints, read_from
from analyses.formation.bounded_series import BoundedSeries
from analyses.formation.changes_of_hands import hands
from analyses.formation.events import leads, loss_events
from analyses.formation.figures import formation_figures
from analyses.formation.gradient_trust import trust
from analyses.formation.lifetimes import births
from analyses.formation.measuring import TRACED_LOSS, FormationMeasure, top_count
from analyses.formation.overlaps import overlap
from analyses.formation.summary import summary_lines
from analyses.formation.tables import bands, measured_tables, series_of
from circuits.edge_attribution import METHODS, Method
from circuits.errors import InputError, near_matches
from circuits.graph import GRANULARITIES, Granularity
from mechinterp.runs import Run
from mechinterp.tracing import Ablation
from mechinterp.workers import n_cores

AFTER = 2
"""Checkpoints needed after the early ones: a birth has to last."""


def answer(request: CircuitFormation) -> Answer:
    """Traces the checkpoints of one run and answers from the tables.

    Raises:
        InputError: too few checkpoints, one that does not exist, or an option out of range.
    """
    run = Run.open(request.run, request.root)
    granularity = chosen_granularity(run, request.granularity)
    options: dict[str, Any] = {
        name: getattr(request, name)
        for name in ("examples", "ablation", "methods", "early", "margin")
    }
    options["granularity"] = granularity
    steps = chosen_steps(run, request.steps, request.checkpoints, request.early)
    tables = formation(run, steps=steps, jobs=request.jobs, quiet=request.quiet, **options)
    return Answer(
        summary=tuple(summary_lines(run.name, tables, options)),
        tables=tables,
        figures=formation_figures(tables),
        provenance={**read_from(run, steps), "options": options},
    )


def formation(
    run: Run,
    *,
    steps: Sequence[int] = (),
    checkpoints: int = 40,
    examples: int = 128,
    ablation: Ablation | str = "zero",
    granularity: str = "auto",
    methods: Sequence[Method | str] = ("eap", "eap-ig-inputs"),
    early: int = 1,
    margin: float = 0.01,
    jobs: int | None = None,
    quiet: bool = True,
) -> dict[str, pd.DataFrame]:
    """How does the circuit of a run form? Every table of the answer, without printing.

    Args:
        run: the run.
        steps: checkpoints to trace; by default at most `checkpoints`, spread evenly.
        checkpoints: see `steps`.
        examples: clean/corrupt pairs to measure on.
        ablation: what replaces what is cut: "zero", "mean", "resample" or "patch".
        granularity: of the edges: "head", "layer", "layer-qkv", or "auto".
        methods: gradient methods to compare with the exact effects.
        early: first checkpoints that make the noise band.
        margin: by how much an effect (nats) or score has to leave the band.
        jobs: processes, one thread each; the number of cores if not given. The numbers are the
            same for any number.
        quiet: show no progress.

    Returns:
        Tidy tables, effects in nats of the mean cross-entropy at the scored positions, `low` and
        `high` 95 % intervals of each number alone:
        `edges` (`step, edge, source, reader, effect, low, high`, `se`, `significant`: beyond the
        margin in bounds that hold for all edges and steps together), `heads`, `scores` (of the
        mechanism tests), `diagnostics`, `agreement` (of gradient methods with exact effects),
        `births` (see `lifetimes`), `hands` (see `changes_of_hands`), `overlap` (see `overlaps`),
        `trust` (see `gradient_trust`), `events` and `leads` (see `events`), `bands` (how wide the
        bounds are). A checkpoint of the reference scale takes some 15 s of one core; one that was
        traced before is read from the cache.

    Raises:
        InputError: too few checkpoints, one that does not exist, or an option out of range.
    """
    chosen = chosen_steps(run, steps, checkpoints, early)
    check_examples(examples)
    _check(methods, ablation, margin)
    measure = FormationMeasure(
        run.config.task,
        examples,
        cast(Ablation, ablation),
        chosen_granularity(run, granularity),
        cast(tuple[Method, ...], tuple(methods)),
    )
    options = {
        name: getattr(measure, name) for name in ("examples", "ablation", "granularity", "methods")
    }
    jobs = n_cores() if jobs is None else jobs
    rows = measure_checkpoints(run, chosen, "circuit-formation", options, measure, quiet, jobs=jobs)
    return formation_tables(run, rows, examples, early, margin)


def formation_tables(
    run: Run, rows: pd.DataFrame, examples: int, early: int, margin: float
) -> dict[str, pd.DataFrame]:
    """Makes every table from the rows that `FormationMeasure` gave at all checkpoints."""
    tables = measured_tables(rows)
    widths = bands(rows, tables, examples, early, margin)
    series = series_of(tables, widths)
    edges = series["edge"]
    significant = edges.sizes()[0] > margin
    order = {step: i for i, step in enumerate(edges.steps)}
    named = {name: i for i, name in enumerate(edges.names)}
    where = [named[e] for e in tables["edges"]["edge"]], [order[s] for s in tables["edges"]["step"]]
    tables["edges"]["significant"] = significant[where]
    lives = [births(each, early, margin) for each in series.values()]
    tables["births"] = pd.concat([life for life in lives if len(life)], ignore_index=True)
    tables["hands"] = _hands(series, margin)
    tables["overlap"] = overlap(
        edges.steps,
        edges.value,
        significant,
        [stratum(edge) for edge in edges.names],
        top_count(len(edges.names)),
    )
    tables["trust"] = trust(tables["agreement"])
    tables["events"] = loss_events(run, tables["diagnostics"], TRACED_LOSS, early)
    tables["leads"] = leads(tables["births"], tables["events"])
    tables["bands"] = widths
    return tables


def _hands(series: dict[str, BoundedSeries], margin: float) -> pd.DataFrame:
    """When readers get another main source, the model another main head, and scores another."""
    readers: dict[str, list[str]] = {}
    for edge in series["edge"].names:
        readers.setdefault(edge.split("->")[1], []).append(edge)
    found = hands(series["edge"], readers, margin)
    for column in ("before", "after"):
        found[column] = [edge.split("->")[0] for edge in found[column]]
    parts = [found, hands(series["head"], {"all heads": series["head"].names}, margin)]
    if "score" in series:
        groups: dict[str, list[str]] = {}
        for name in series["score"].names:
            score, _, component = name.partition(" ")
            if re.fullmatch(r"L\d+H\d+", component):
                groups.setdefault(score, []).append(name)
        held = hands(series["score"], groups, margin)
        for column in ("before", "after"):
            held[column] = [name.partition(" ")[2] for name in held[column]]
        parts.append(held)
    return pd.concat([part for part in parts if len(part)] or [found], ignore_index=True)


def stratum(edge: str) -> str:
    """Gives the kind and layer of what reads an edge, as `random_circuits` matches them."""
    return re.sub(r"^(L\d+)H\d+", r"\1", edge.split("->")[1])


def chosen_granularity(run: Run, granularity: str) -> Granularity:
    """Gives the granularity asked for; "auto" merges heads where a layer has but one.

    Raises:
        InputError: an unknown granularity.
    """
    if granularity == "auto":
        return "layer-qkv" if run.config.model.n_heads == 1 else "head"
    if granularity not in GRANULARITIES:
        raise InputError(
            f"granularity={granularity!r} is not known; choose one of auto, "
            f"{', '.join(GRANULARITIES)}"
        )
    return cast(Granularity, granularity)


def chosen_steps(run: Run, steps: Sequence[int], checkpoints: int, early: int) -> list[int]:
    """Gives the checkpoints to trace: those named, or some spread evenly over the run's own.

    Raises:
        InputError: a step without a checkpoint, or too few of them.
    """
    least = max(early, 1) + AFTER
    if early < 1:
        raise InputError(f"early is {early}; at least 1 checkpoint has to make the noise band")
    if steps:
        chosen = sorted({run.resolve_step(step) for step in steps})
    elif checkpoints < least:
        raise InputError(f"checkpoints is {checkpoints}; it has to be at least {least}")
    else:
        saved = run.steps
        places = np.linspace(0, len(saved) - 1, min(checkpoints, len(saved))).round()
        chosen = [saved[int(place)] for place in places]
    if len(chosen) < least:
        raise InputError(
            f"{run.name}: {len(chosen)} checkpoints to trace; circuit-formation needs at least "
            f"{least}, {early} for the noise band and {AFTER} after it: name more --steps, or "
            "train with a smaller --save-every"
        )
    return chosen


def _check(methods: Sequence[str], ablation: str, margin: float) -> None:
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise InputError(
            f"method {unknown[0]!r} is not known; near matches: {near_matches(unknown[0], METHODS)}"
        )
    if ablation not in get_args(Ablation):
        raise InputError(
            f"ablation={ablation!r} is not known; choose one of {', '.join(get_args(Ablation))}"
        )
    if not 0 <= margin < math.inf:
        raise InputError(f"margin is {margin}; it has to be a number, 0 or more")
