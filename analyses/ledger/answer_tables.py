"""From the files that analyses and traces write to the tables that verdicts need, and no more."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from circuits.errors import InputError

MODEL_ONLY = {"group": ("model",)}

SIGNALS = {"signal": ("value_patch", "ablation", "candidate_loss")}

COSINES, UPDATES = ("step", "lag", "cosine"), ("step", "update_norm", "weight_norm")

PHASES = ("step", "phase", "nearest_phase", "nearest", "distance", "margin", "certainty")

Rule = tuple[tuple[str, ...], dict[str, tuple[str, ...]]]
"""Columns to keep (all if none is named), and the values that a row needs to have."""

KEPT: dict[str, dict[str, Rule]] = {
    "plateau": {"taus": ((), {}), "onset": ((), {}), "level": ((), {})},
    "snap": {"snap": ((), {}), "verdict": ((), {})},
    "selector": {"onsets": ((), {}), "signals": ((), SIGNALS)},
    "weight-updates": {
        "phases": ((), {}),
        "averages": ((), MODEL_ONLY),
        "cosines": (COSINES, MODEL_ONLY),
        "updates": (UPDATES, MODEL_ONLY),
    },
    "curvature": {"points": ((), {})},
    "phases": {"phases": (PHASES, {}), "transitions": ((), {}), "transience": ((), {})},
    "symmetric-model": {
        name: ((), {}) for name in ("biases", "growth", "laws", "taus", "removals")
    },
    "pool-model": {name: ((), {}) for name in ("capacity", "generalisation", "models")},
    "linear-net": {"models": ((), {})},
}
"""Tables of each analysis that are kept. A table that is empty is left out."""

MECHANISMS = {
    "phase": ("expected_edges",),
    "induction": ("induction", "k_composition"),
    "task-vector": ("task_vector_patch", "variance_shares"),
}
"""Tables of a trace's mechanisms that are kept."""

Tables = dict[str, pd.DataFrame]


def read_answer(path: Path) -> dict[str, Any]:
    """Reads what an analysis or a trace wrote with --json.

    Raises:
        InputError: it cannot be read, or is neither.
    """
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(body, dict) or not ({"tables", "mechanisms"} & set(body)):
        raise InputError(f"{path} is no answer of an analysis and no trace; give what --json wrote")
    return body


def tables_of(path: Path, name: str) -> Tables:
    """Gives the tables that are kept of one file, by the name they have in a study.

    Args:
        path: what an analysis or a trace wrote with --json.
        name: of the analysis; a trace is told by its content.

    Raises:
        InputError: it cannot be read, or a table lacks a column.
    """
    body = read_answer(path)
    if "mechanisms" in body:
        return trace_tables(body)
    return {
        f"{name}-{table}": found
        for table, (columns, values) in KEPT.get(name, {}).items()
        if len(found := _kept(path, pd.DataFrame(body["tables"].get(table, [])), columns, values))
    }


def analysis_of(path: Path) -> str:
    """Which analysis wrote a file, by its name: weight_updates.json, pool-model-0.json; the longest
    name that fits, or the stem itself."""
    stem = path.stem.replace("_", "-")
    fitting = [name for name in KEPT if stem == name or stem.startswith(f"{name}-")]
    return max(fitting, key=len, default=stem)


def _kept(
    path: Path, table: pd.DataFrame, columns: tuple[str, ...], values: dict[str, tuple[str, ...]]
) -> pd.DataFrame:
    if table.empty:
        return table
    missing = [name for name in (*columns, *values) if name not in table]
    if missing:
        raise InputError(f"{path} has a table without {', '.join(missing)}: ask the analysis anew")
    for name, allowed in values.items():
        table = pd.DataFrame(table[table[name].isin(allowed)])
    return pd.DataFrame(table[list(columns)]) if columns else table


def trace_tables(body: dict[str, Any]) -> Tables:
    """Gives the tables that are kept of one trace, each with its `step`.

    Edges are kept where the heads of a layer are traced together, or are one; their nodes are then
    called A0, A1.
    """
    found: Tables = {}
    for mechanism, names in MECHANISMS.items():
        tables = body["mechanisms"].get(mechanism, {}).get("tables", {})
        for name in names:
            if tables.get(name):
                found[f"trace-{mechanism}-{name}"] = pd.DataFrame(tables[name])
    by_layer = str(body["options"].get("granularity", "head")).startswith("layer")
    if body.get("edges") and (by_layer or body["config"]["model"]["n_heads"] == 1):
        edges = pd.DataFrame(body["edges"])[["edge", "effect", "low", "high"]]
        found["trace-edges"] = edges.assign(edge=[layered(edge) for edge in edges["edge"]])
    for name, table in found.items():
        found[name] = table.assign(step=body["step"])[["step", *table.columns]]
    return found


def layered(edge: str) -> str:
    """Names the only head of a layer as the layer's attention: L0H0->L1H0.k is A0->A1.k."""
    return re.sub(r"\bL(\d+)H0\b", r"A\1", edge)
