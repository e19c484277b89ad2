"""The numbers in the tables of a mechanism test, each with its score's name and its component."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyses.rows import Row, records
from circuits.induction_head import SCORES, WEIGHT_SCORES
from circuits.selector_signals import SIGNALS
from mechinterp.findings import Finding

TESTS = ("selector", "induction", "task-vector")
"""The mechanism tests that give a score to components; others describe or repeat diagnostics."""

OF_HEADS = {"selector": SIGNALS, "induction": (*SCORES, *WEIGHT_SCORES)}
"""By table with one row a head: its scores."""

SINGLE = {
    "k_composition": ("edge", "effect"),
    "task_vector_patch": ("insert", "fraction"),
    "task_vector_probe": ("position", "accuracy"),
    "variance_shares": ("component", "share"),
}
"""By table: the column that names the component, and the one number of each row, which `low` and
`high` belong to."""


def score_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    """Gives every mechanism score of a checkpoint as one row.

    Args:
        findings: what `find_mechanisms` gave.

    Returns:
        Rows of `name` (the score), `component` (a head, an edge, or what the table's own rows are
        named by), `value`, `low`, `high`; the bounds are NaN for scores without sampling error.
    """
    rows = []
    for finding in findings:
        for table_name, table in finding.tables.items():
            if table_name in OF_HEADS:
                rows += _of_heads(table, OF_HEADS[table_name])
            elif table_name in SINGLE:
                rows += _single(table_name, table)
    return rows


def _of_heads(table: pd.DataFrame, scores: Sequence[str]) -> list[dict[str, Any]]:
    """Scores of heads; those of weights have no bounds."""
    nan = float("nan")
    return [
        _row(
            score, row["head"], row[score], row.get(f"{score}_low", nan),
            row.get(f"{score}_high", nan),
        )
        for row in records(table)
        for score in scores
    ]  # fmt: skip


def _single(name: str, table: pd.DataFrame) -> list[dict[str, Any]]:
    column, value = SINGLE[name]
    rows = records(table)
    if name == "task_vector_probe":  # A curve over the context: its end is the score.
        rows = rows[-1:]
    return [
        _row(name, _component(name, row, column), row[value], row["low"], row["high"])
        for row in rows
    ]


def _component(name: str, row: Row, column: str) -> str:
    if name == "task_vector_probe":
        return ""
    given = str(row[column])
    return f"{given} into {row['reader']}" if name == "task_vector_patch" else given


def _row(
    score: str, component: str, value: float, low: float = float("nan"), high: float = float("nan")
) -> dict[str, Any]:
    return {"name": score, "component": component, "value": value, "low": low, "high": high}
