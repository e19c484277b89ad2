"""The ledger as a table to read and as rows to keep."""

import io
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from analyses.ledger.claim import VERDICTS, Judged
from analyses.ledger.criteria import shown
from analyses.ledger.made_by import commands_of

WIDTH = 100
"""Characters that the printed table fits into."""

COLUMNS = (
    ("claim", 21),
    ("verdict", 14),
    ("paper", 16),
    ("measured (95 %)", 21),
    ("seeds", 5),
    ("scale, or why not", 18),
)
"""Columns of the table with their widths."""

INTERVALS = (
    "Intervals, 95 %: Student's t over seeds (of ln for times and ratios); of exponents, seeds",
    "drawn anew and widened for their number; of shares of runs, Clopper and Pearson's.",
)
"""How the intervals are made, for the reader of the table."""

PAPERS = {
    "marginals": "Marginals Before Conditionals (arXiv 2603.10074)",
    "markov": "Distinct mechanisms underlying in-context learning (arXiv 2604.12151)",
}


def summary_of(judged: Sequence[Judged]) -> str:
    """Counts the verdicts: `n reproduced, n in part, n not reproduced, n not testable ...`."""
    counts = Counter(one.verdict for one in judged)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def measured_of(one: Judged) -> str:
    """Writes what was measured, with its interval and unit."""
    measured = one.measured
    if measured.missing or measured.estimate.value != measured.estimate.value:
        return "-"
    return f"{shown(measured.estimate)} {measured.unit}"


def printed(judged: Sequence[Judged]) -> list[str]:
    """Gives the lines of the ledger: a table for each paper, then the summary."""
    lines: list[str] = []
    for paper, title in PAPERS.items():
        own = [one for one in judged if one.claim.paper == paper]
        if own:
            lines += [title, *_lines(_table(own)), ""]
    return [*lines, *INTERVALS, "", summary_of(judged)]


def _table(judged: Sequence[Judged]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name, width in COLUMNS:
        justify = "right" if name == "seeds" else "left"
        table.add_column(name, width=width, justify=justify, overflow="fold")
    for one in judged:
        claim, measured = one.claim, one.measured
        cells = (claim.id, one.verdict, claim.paper_value, measured_of(one))
        table.add_row(*cells, str(measured.n_seeds or "-"), one.reason or measured.scale)
    return table


def _lines(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, markup=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def claims_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """Gives one row a claim with all that is known of it, numbers apart from words."""
    rows: list[dict[str, Any]] = []
    for one in judged:
        claim, measured = one.claim, one.measured
        rows.append(
            {
                "id": claim.id,
                "paper": claim.paper,
                "claim": claim.sentence,
                "paper_value": claim.paper_value,
                "source": claim.source,
                "criterion": claim.criterion,
                "verdict": one.verdict,
                "reason": one.reason,
                "value": measured.estimate.value,
                "low": measured.estimate.low,
                "high": measured.estimate.high,
                "unit": measured.unit,
                "seeds": measured.n_seeds,
                "scale": measured.scale,
                "note": measured.note,
                "studies": " ".join(claim.studies),
                "commands": " | ".join(commands_of(study).here for study in claim.studies),
                "commands_at_scale": " | ".join(
                    commands_of(study).at_scale for study in claim.studies
                ),
            }
        )
    return pd.DataFrame(rows)


def parts_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """Gives one row a statement of a criterion: `id`, `statement`, `held`, `seen`."""
    held = {True: "yes", False: "no", None: "undecided"}
    return pd.DataFrame(
        [
            {"id": one.claim.id, "statement": p.statement, "held": held[p.held], "seen": p.seen}
            for one in judged
            for p in one.measured.parts
        ],
        columns=["id", "statement", "held", "seen"],
    )


def details(one: Judged) -> list[str]:
    """Writes everything about one claim, for a reader who asked for it alone."""
    claim, measured = one.claim, one.measured
    lines = [
        f"{claim.id}: {claim.sentence}",
        f"paper: {claim.paper_value}; {claim.source}",
        f"criterion: {claim.criterion}",
        *(f"  {_HELD[part.held]}: {part.statement}: {part.seen}" for part in measured.parts),
        f"measured: {measured_of(one)}; {measured.n_seeds} seeds; {measured.scale or 'no runs'}",
        *([f"note: {measured.note}"] if measured.note else []),
        f"verdict: {one.verdict}{f' ({one.reason})' if one.reason else ''}",
        *(f"evidence: {commands_of(study).here}" for study in claim.studies),
        *(f"paper scale: {commands_of(study).at_scale}" for study in claim.studies),
    ]
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return wrapped


_HELD = {True: "holds", False: "fails", None: "undecided"}
