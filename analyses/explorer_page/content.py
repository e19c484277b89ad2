"""The data of a page as one JSON value: what `data.js` unpacks."""

from typing import Any

import numpy as np
import pandas as pd

from analyses.explorer_data.tables import Attention, ExplorerData, RunData, Setting
from analyses.explorer_page.packing import (
    Packed,
    pack_grid,
    pack_numbers,
    pack_table,
    plain_json,
)
from circuits.figures.circuit_page import graph_layout

EFFECT = ["effect", "low", "high"]
SHARE = 65535
"""A share of attention from 0 to 1 travels as a whole number up to this."""


def page_content(data: ExplorerData) -> dict[str, Any]:
    """Packs everything a page shows.

    Raises:
        InputError: a table has two rows for one step and component, or an edge has a name of
            another form than `L0H3->L2H1.q`.
    """
    return {"command": data.command, "runs": [_run(run) for run in data.runs]}


def _run(run: RunData) -> Packed:
    steps = list(run.steps)
    tables = {name: pack_table(table) for name, table in run.tables.items() if len(table.columns)}
    return {
        "name": run.name,
        "task": run.task,
        "steps": steps,
        "settings": [_setting(setting, steps) for setting in run.settings],
        "log": pack_table(run.log),
        "reference_lines": plain_json(run.reference_lines),
        "compared": {name: list(lines) for name, lines in run.compared.items()},
        "tables": tables,
        "absent": run.absent,
        "notes": run.notes,
        "attention": None if run.attention is None else _attention(run.attention),
        "provenance": plain_json(run.provenance),
    }


def _setting(setting: Setting, steps: list[int]) -> Packed:
    edges = pack_grid(setting.edges, "edge", steps, EFFECT)
    return {
        "ablation": setting.ablation,
        "granularity": setting.granularity,
        "position": setting.position,
        "edges": edges,
        "heads": pack_grid(setting.heads, "head", steps, EFFECT),
        "births": pack_table(setting.births),
        "circuits": {str(step): list(kept) for step, kept in setting.circuits.items()},
        "layout": _layout(edges["names"], setting.heads),
    }


def _layout(edges: list[str], heads: pd.DataFrame) -> Packed:
    """The layout of `circuits.figures`; a head without any edge is drawn all the same."""
    merged = any(edge.startswith("A") or "->A" in edge for edge in edges)
    return graph_layout(edges, () if merged else heads["head"].astype(str))


def _attention(attention: Attention) -> Packed:
    shares = np.clip(attention.patterns, 0.0, 1.0) * SHARE
    return {
        "heads": list(attention.heads),
        "labels": list(attention.labels),
        "scale": SHARE,
        "patterns": pack_numbers(np.rint(shares).astype("<u2").ravel()),
    }
