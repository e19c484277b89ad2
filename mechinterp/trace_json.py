"""A trace as plain JSON values: complete, and stable in its layout."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from mechinterp.config import to_json
from mechinterp.tracing import BUDGET, PAIR_SEED, Traced

SCHEMA = 1
"""Version of the layout; it changes when a field is renamed or removed."""


def as_json(traced: Traced) -> dict[str, Any]:
    """Gives every number of a trace, with what decided it.

    Returns:
        `schema`, `run`, `step`, `options`, `config`, `diagnostics` (value and se by name),
        `reference_lines`, `heads` and `edges` (a list of rows each, in nats), `circuit` (budget and
        edge names), and `provenance`.
    """
    return {
        "schema": SCHEMA,
        "run": traced.run.name,
        "step": traced.step,
        "options": asdict(traced.options),
        "config": to_json(traced.run.config),
        "diagnostics": {name: m._asdict() for name, m in traced.diagnostics.items()},
        "reference_lines": traced.reference_lines,
        "heads": _rows(traced.heads.table),
        "edges": _rows(traced.edges.table),
        "circuit": {"budget_kl": BUDGET, "edges": traced.circuit.names},
        "provenance": {
            "pair_seed": PAIR_SEED,
            "checkpoint_sha256": traced.run.checkpoint_hash(traced.step),
            "heads": traced.heads.provenance,
            "edges": traced.edges.provenance,
        },
    }


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]
