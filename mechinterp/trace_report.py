"""A trace for people: tables on the terminal, one page of figures, one JSON file."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from circuits.figures import circuit_figure, circuit_view, head_bar, strongest, write_html
from mechinterp.config import task_name
from mechinterp.findings.heads import EXAMPLES as HEAD_EXAMPLES
from mechinterp.findings.heads import MEASURES, RANKED_BY
from mechinterp.runs import open_checkpoint
from mechinterp.runs.atomic import replace_file
from mechinterp.trace import Trace
from mechinterp.trace_json import as_json
from mechinterp.tracing import (
    BUDGET,
    MEASURED_ON,
    PRUNED_ON,
    TESTED_ON,
    Options,
    Parts,
    Traced,
    trace,
)

BAR = 24
"""Characters of the longest bar."""

WIDTH = 108
"""Columns where the output is not a terminal, so that a file always looks the same."""


def trace_and_report(request: Trace) -> None:
    """Does what the command was asked: traces, prints, writes the page and the JSON.

    Raises:
        InputError: see `mechinterp.tracing.trace`; also when a file cannot be written.
    """
    run, step = open_checkpoint(request.ckpt, request.run, request.root)
    page = request.html or Path("traces") / f"{run.name}-step_{step}.html"
    for file in (page, request.json):
        if file is not None:
            _refuse_unwritable(file)
    options = Options(
        request.ablation,
        request.granularity,
        request.examples,
        request.device,
        request.gradients,
        request.mechanism,
    )
    with _progress(request.quiet) as say:
        traced = trace(run, step, options, say)
        say("drawing")
        write_html(figures(traced), page, _title(traced), above=_view(traced))
    if request.json:
        replace_file(request.json, json.dumps(as_json(traced), indent=1).encode())
    if not request.quiet:
        report(traced, Console(width=None if sys.stdout.isatty() else WIDTH), request.top)
        for file in (page, request.json):
            if file is not None:
                print(f"wrote {file}")


def _view(traced: Traced) -> str:
    """The circuit to explore, as the explorer's page has it."""
    if traced.parts is None:
        return ""
    edges = traced.parts.edges
    names = [node.name for node in edges.graph.nodes] + ["logits"]
    return circuit_view(edges.table, nodes=names, kept=traced.parts.circuit.names)


def figures(traced: Traced) -> dict[str, Any]:
    """The figures of a trace by heading: its edges, what is enough, its heads, its mechanisms."""
    drawn: dict[str, Any] = {}
    if traced.parts is not None:
        table, graph = traced.parts.edges.table, traced.parts.edges.graph
        names = [node.name for node in graph.nodes] + ["logits"]
        kept = traced.parts.circuit.names
        inside = table.set_index("edge").loc[kept].reset_index()
        enough = f"KL at most {BUDGET} nats from the whole model"
        drawn["Every edge"] = circuit_figure(table, nodes=names, title=_title(traced))
        drawn[f"The {len(kept)} edges that are enough"] = circuit_figure(
            inside, nodes=names, title=enough
        )
        drawn["Heads"] = head_bar(traced.parts.heads.table, title="Effect of ablating each head")
    for finding in traced.findings:
        drawn |= finding.figures
    return drawn


def report(traced: Traced, console: Console, top: int) -> None:
    """Prints a trace: what was loaded, diagnostics, mechanisms, heads, edges, the circuit."""
    console.print(_header(traced), soft_wrap=True, highlight=False)
    console.print(_diagnostics(traced))
    losses = None
    for finding in traced.findings:
        if finding.name == "heads" and "heads" in finding.tables and traced.parts is not None:
            losses = finding.tables["heads"]  # Printed beside the effects of all examples.
            continue
        for line in finding.summary:
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    if traced.parts is not None:
        _print_parts(traced.parts, losses, console, top)


def _print_parts(parts: Parts, losses: pd.DataFrame | None, console: Console, top: int) -> None:
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


def _title(traced: Traced) -> str:
    return f"{traced.run.name}, step {traced.step}, {traced.options.ablation} ablation"


def _header(traced: Traced) -> str:
    config, options = traced.run.config, traced.options
    model = config.model
    return (
        f"{traced.run.name}, step {traced.step} of {config.training.steps}: "
        f"{task_name(config.task)}, {model.n_layers} layers x {model.n_heads} heads, "
        f"d_model {model.d_model}, {traced.run.meta['n_params']:,} parameters\n"
        f"{options.ablation} ablation, {options.examples} examples; effect = rise of the mean "
        "cross-entropy (nats) at the scored positions, with its 95 % interval\n"
        f"diagnostics on {min(options.examples, MEASURED_ON)} examples, mechanisms on at most "
        f"{min(options.examples, TESTED_ON)}"
    )


def _diagnostics(traced: Traced) -> Table:
    """Each measure beside the lines that it is to be read against."""
    table = _table("Diagnostics", "value", "s.e.", "reference lines")
    lines, compared = traced.reference_lines, traced.run.task().compared()
    for name, (value, se) in traced.diagnostics.items():
        beside = "  ".join(f"{line} {lines[line]:.3f}" for line in compared.get(name, ()))
        table.add_row(name, f"{value:.3f}", f"{se:.3f}", beside)
    return table


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


def _refuse_unwritable(file: Path) -> None:
    """Finds out before the work whether its result can be kept."""
    from mechinterp.runs.atomic import plain_errors, temporary_name

    with plain_errors("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(21, "it is a directory, not a file")
        probe = temporary_name(file)
        probe.touch()
        probe.unlink()


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """Says what is being done, on a terminal only; it leaves nothing behind."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda doing: status.update(f"{doing} ...")
