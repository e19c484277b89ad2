"""Gathers everything the explorer shows of one run; each part is measured by its own analysis."""

from typing import Any

import pandas as pd

from analyses.catalogue import Explorer
from analyses.checkpoints import measure_checkpoints, read_from
from analyses.circuit_formation import chosen_steps
from analyses.explorer_data.components import (
    ComponentMeasure,
    attention_of,
    attribution_of,
    position_labels,
)
from analyses.explorer_data.course import curvature_points, phase_bands, update_tables
from analyses.explorer_data.settings import settings_of
from analyses.explorer_data.tables import RunData
from analyses.formation.measuring import drawn_pairs
from circuits.errors import InputError
from circuits.provenance import tensor_sha256
from mechinterp.config import task_name
from mechinterp.runs import Run

NO_CURVATURE = "Curvature was not computed; ask for it with --curvature."
NO_ATTRIBUTION = "This model's logits are not a sum over its components."

FORMED = ("scores", "diagnostics", "agreement", "overlap", "hands")
"""Tables that the circuit formation gives and that are shown as they are."""


def gather(run: Run, request: Explorer) -> RunData:
    """Measures one run, or finds in the cache what was measured before.

    Raises:
        InputError: too few checkpoints, one that does not exist, or an option out of range.
    """
    steps = chosen_steps(run, request.steps, request.checkpoints, early=1)
    settings, formed = settings_of(run, request, steps)
    components = _components(run, request, steps)
    tables = {name: formed[name] for name in FORMED if name in formed}
    tables["attribution"] = attribution_of(components)
    bands, note = phase_bands(run, request.examples, request.quiet)
    tables["phases"] = bands
    extra, absent, span = _updates_and_curvature(run, request)
    task = run.task()
    return RunData(
        name=run.name,
        task=task_name(run.config.task),
        steps=tuple(steps),
        settings=tuple(settings),
        log=run.metrics(),
        reference_lines=task.reference_lines(),
        compared=task.compared(),
        tables={name: table for name, table in {**tables, **extra}.items() if len(table)},
        absent={"attribution": NO_ATTRIBUTION, **absent},
        notes={"timeline": note},
        attention=attention_of(components, position_labels(task)),
        provenance=_provenance(run, request, steps, span),
    )


def _components(run: Run, request: Explorer, steps: list[int]) -> pd.DataFrame:
    measure = ComponentMeasure(run.config.task, request.examples)
    options = {"examples": request.examples}
    return measure_checkpoints(
        run, steps, "explorer-components", options, measure, request.quiet, jobs=request.jobs or 1
    )


def _updates_and_curvature(
    run: Run, request: Explorer
) -> tuple[dict[str, pd.DataFrame], dict[str, str], int | None]:
    """Tables, why one is missing, and the span of an update: a short run may lack both."""
    tables: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {} if request.curvature else {"curvature": NO_CURVATURE}
    span = None
    try:
        tables, span = update_tables(run, request.quiet)
    except InputError as error:
        absent["cosines"] = f"Weight updates were not compared: {error}."
    if request.curvature:
        try:
            tables["curvature"] = curvature_points(run, request)
        except InputError as error:
            absent["curvature"] = f"Curvature was not computed: {error}."
    return tables, absent, span


def _provenance(run: Run, request: Explorer, steps: list[int], span: int | None) -> dict[str, Any]:
    config = run.config
    model = config.model
    _, pairs = drawn_pairs(config.task, request.examples)
    seeds = {
        name: value
        for part in (config.task, model, config.training)
        for name, value in vars(part).items()
        if name.endswith("seed")
    }
    batch = tensor_sha256([pairs.clean])
    read = read_from(run, steps)
    return {
        "subtitle": [
            f"{model.n_layers} layers x {model.n_heads} heads, d_model {model.d_model}",
            f"{run.meta['n_params']:,} parameters",
        ],
        "shown": {
            "model": f"{model.n_layers} layers x {model.n_heads} heads, d_model {model.d_model}",
            "effects": "rise of the mean cross-entropy (nats) at the scored positions, on "
            f"{request.examples} sequences, with 95 % intervals",
            "seeds": seeds,
            "versions": {**run.meta.get("versions", {}), **read["versions"]},
            "batch sha256": batch,
            "trained with": run.meta.get("command"),
        },
        "batch_sha256": batch,
        "examples": request.examples,
        "update_span": span,
        **read,
    }
