"""A trace as plain JSON values: complete, and stable in its layout."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from mechinterp.config import to_json
from mechinterp.other_models_tracing import OtherTraced
from mechinterp.trace_parts import BUDGET, Parts
from mechinterp.tracing import MEASURED_ON, PAIR_SEED, TESTED_ON, Traced

SCHEMA = 1
"""Version of the layout; it changes when a field is renamed or removed."""


def as_json(traced: Traced | OtherTraced) -> dict[str, Any]:
    """Gives every number of a trace, with what decided it.

    Returns:
        `schema`, `options`, `provenance`, and, unless a single mechanism was asked for, `heads` and
        `edges` (a list of rows each, in the unit of the metric), `gradients` (agreement of each
        method asked for) and `circuit` (budget, excess, edge names). Of a run also `run`, `step`,
        `config`, `diagnostics` (value and se by name), `reference_lines` and `mechanisms` (lines
        and tables by name); of another model `model`, `revision`, `config`, `data`, `metric`, and
        the metric on `clean` and `corrupt` prompts (value and se).
    """
    body = _of_run(traced) if isinstance(traced, Traced) else _of_other(traced)
    return body if traced.parts is None else body | _parts(traced.parts, body["provenance"])


def _of_run(traced: Traced) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": traced.run.name,
        "step": traced.step,
        "options": asdict(traced.options),
        "config": to_json(traced.run.config),
        "diagnostics": {name: m._asdict() for name, m in traced.diagnostics.items()},
        "reference_lines": traced.reference_lines,
        "mechanisms": {
            finding.name: {
                "summary": finding.summary,
                "tables": {name: _rows(table) for name, table in finding.tables.items()},
            }
            for finding in traced.findings
        },
        "provenance": {
            "pair_seed": PAIR_SEED,
            "diagnostics_on": min(traced.options.examples, MEASURED_ON),
            "mechanisms_on": min(traced.options.examples, TESTED_ON),
            "checkpoint_sha256": traced.run.checkpoint_hash(traced.step),
        },
    }


def _of_other(traced: OtherTraced) -> dict[str, Any]:
    plain = (str, int, float, bool, type(None))
    config = {k: v for k, v in vars(traced.source.cfg).items() if isinstance(v, plain)}
    return {
        "schema": SCHEMA,
        "model": traced.source.name,
        "revision": traced.source.step,
        "options": asdict(traced.options),
        "config": config,
        "data": {"pairs": traced.n_pairs, "sha256": traced.data_sha256},
        "metric": traced.metric,
        "clean": traced.clean._asdict(),
        "corrupt": None if traced.corrupt is None else traced.corrupt._asdict(),
        "provenance": {},
    }


def _parts(parts: Parts, known: dict[str, Any]) -> dict[str, Any]:
    circuit, held_out = parts.circuit, parts.faithfulness
    gradients = {method: _rows(agreed.table) for method, agreed in parts.gradients.items()}
    return {
        "heads": _rows(parts.heads.table),
        "edges": _rows(parts.edges.table),
        "gradients": gradients,
        "circuit": {
            "budget_kl": BUDGET,
            "excess_kl": circuit.excess,
            "complete": circuit.complete,
            "minimal": circuit.minimal,
            "edges": circuit.names,
            "held_out": None if held_out is None else _rows(held_out.table),
            "random_circuits": None if held_out is None else _rows(held_out.controls),
        },
        "provenance": known
        | {
            "heads": parts.heads.provenance,
            "edges": parts.edges.provenance,
            "circuit": circuit.provenance,
        },
    }


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]
