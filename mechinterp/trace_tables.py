"""The tables of a trace on the terminal: diagnostics, heads, edges, gradients, the circuit."""

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from circuits.figures import strongest
from mechinterp.findings.heads import EXAMPLES as HEAD_EXAMPLES
from mechinterp.findings.heads import MEASURES, RANKED_BY
from mechinterp.trace_parts import BUDGET, PRUNED_ON, Parts
from mechinterp.tracing import Traced

BAR = 24
"""Characters of the longest bar."""


def diagnostics_table(traced: Traced) -> Table:
    """Each measure beside the lines that it is to be read against."""
    table = _table("Diagnostics", "value", "s.e.", "reference lines")
    lines, compared = traced.reference_lines, traced.run.task().compared()
    for name, (value, se) in traced.diagnostics.items():
        beside = "  ".join(f"{line} {lines[line]:.3f}" for line in compared.get(name, ()))
        table.add_row(name, f"{value:.3f}", f"{se:.3f}", beside)
    return table


def print_parts(
    parts: Parts, console: Console, top: int, losses: pd.DataFrame | None = None
) -> None:
    """Prints heads, the strongest edges and the circuit.

    Args:
        parts: what was measured.
        console: where to.
        top: edges to print.
        losses: further losses under each head's ablation, to stand beside its effect.
    """
    heads = parts.heads.table
    if losses is None:
        console.print(_effects(heads, "head", "Heads, by the effect of ablating them"))
    else:
        console.print(_head_losses(heads, losses))
    total = len(parts.edges.table)
    largest = strongest(parts.edges.table, top=top).iloc[::-1]
    console.print(
        _effects(largest, "edge", f"The {len(largest)} strongest of {total} edges, by cutting them")
    )
    if parts.gradients:
        console.print(_gradients(parts))
    console.print(_circuit(parts, total), highlight=False, soft_wrap=True)


def _gradients(parts: Parts) -> Table:
    """Each gradient method's agreement with cutting, beside what chance and noise would give."""
    first = next(iter(parts.gradients.values())).table
    shown = [measure for measure in first["measure"] if measure != "signed rank correlation"]
    table = _table("Gradient methods against cutting", *shown)
    for method, agreed in parts.gradients.items():
        table.add_row(method, *(f"{agreed[measure]:.2f}" for measure in shown))
    by = first.set_index("measure")
    for name, column in (("shuffled, 95 % below", "chance_high"), ("half the examples", "ceiling")):
        table.add_row(name, *(f"{by.at[measure, column]:.2f}" for measure in shown), style="dim")
    return table


def _circuit(parts: Parts, total: int) -> str:
    line = (
        f"Circuit: {len(parts.circuit)} of {total} edges stay within {BUDGET} nats KL of the "
        f"whole model on {len(parts.heads.clean[:PRUNED_ON])} examples"
        f"{'' if parts.circuit.minimal else ', a few of which could still go'}"
    )
    if parts.faithfulness is None:
        return f"{line}."
    n_others = len(parts.faithfulness.per_example["kl"])
    held_out, controls = parts.faithfulness["kl"], parts.faithfulness.controls
    alike = controls[(controls["measure"] == "kl") & (controls["kind"] == "same layers")]
    return (
        f"{line}; on {n_others} others {held_out['circuit']:.3f} ({held_out['low']:.3f} to "
        f"{held_out['high']:.3f}), against {alike['mean'].iloc[0]:.3f} for random circuits with as "
        "many edges into each layer."
    )


def _effects(rows: pd.DataFrame, name: str, title: str) -> Table:
    table = _table(title, "effect", "95 % interval", "")
    ordered = strongest(rows).iloc[::-1]
    largest = max((abs(effect) for effect in ordered["effect"]), default=0.0)
    for row in ordered.to_dict("records"):
        bar = "#" * round(BAR * abs(row["effect"]) / largest) if largest else ""
        interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
        style = "dim" if row["low"] <= 0 <= row["high"] else ""
        table.add_row(str(row[name]), f"{row['effect']:+.3f}", interval, bar, style=style)
    return table


def _head_losses(heads: pd.DataFrame, losses: pd.DataFrame) -> Table:
    """Heads by the effect on the target loss, beside four losses that each are what they say."""
    table = _table("Heads ablated", "effect", "95 % interval", *MEASURES)
    under = losses.set_index("head")
    rows = {"none": ("", "")}
    for row in strongest(heads).iloc[::-1].to_dict("records"):
        rows[row["head"]] = (f"{row['effect']:+.3f}", f"{row['low']:+.3f} to {row['high']:+.3f}")
    for head, cells in rows.items():
        values = (f"{under.at[head, name]:.3f}" for name in MEASURES)
        table.add_row(head, *cells, *values, style="dim" if head == "none" else "")
    table.caption = (
        f"by the effect on {RANKED_BY}; the rest measured under the ablation, on at most "
        f"{HEAD_EXAMPLES} examples"
    )
    table.caption_justify = "left"
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, title_justify="left", pad_edge=False, header_style="bold")
    table.add_column(Text(title, style="bold"), no_wrap=True)
    for column in columns:
        numeric = column in ("value", "s.e.", "effect", "95 % interval", *MEASURES)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    return table
