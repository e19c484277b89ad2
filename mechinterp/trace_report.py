"""A trace for people: tables on the terminal, one page of figures, one JSON file."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from circuits.figures import circuit_figure, circuit_view, head_bar, write_html
from mechinterp.memory_budget import parse_size
from mechinterp.other_models import find_model
from mechinterp.other_models_tracing import OtherTraced, trace_other
from mechinterp.runs import open_checkpoint
from mechinterp.runs.atomic import make_room, replace_file
from mechinterp.trace import Trace
from mechinterp.trace_header import header_of, page_name, title_of
from mechinterp.trace_json import as_json
from mechinterp.trace_parts import BUDGET, Say
from mechinterp.trace_tables import diagnostics_table, print_parts
from mechinterp.tracing import Options, Traced, trace

Work = Callable[[Say], Traced | OtherTraced]

WIDTH = 108
"""Columns where the output is not a terminal, so that a file always looks the same."""


def trace_and_report(request: Trace) -> None:
    """Does what the command was asked: traces, prints, writes the page and the JSON.

    Raises:
        InputError: see `tracing.trace` and `other_models_tracing.trace_other`; also when a file
            cannot be written.
    """
    options = Options(
        request.ablation or ("zero" if request.model is None else "patch"),
        request.granularity,
        request.examples,
        request.device,
        request.gradients,
        request.mechanism,
        None if request.memory_budget is None else parse_size(request.memory_budget),
    )
    name, work = _job(request, options)
    page = request.html or Path("traces") / f"{name}.html"
    for file in (page, request.json):
        if file is not None:
            make_room(file)
    with _progress(request.quiet) as say:
        traced = work(say)
        say("drawing")
        write_html(figures(traced), page, title_of(traced), above=_view(traced))
    if request.json:
        replace_file(request.json, json.dumps(as_json(traced), indent=1).encode())
    if not request.quiet:
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        with console.capture() as printed:
            report(traced, console, request.top)
        print(*(line.rstrip() for line in printed.get().splitlines()), sep="\n")
        for file in (page, request.json):
            if file is not None:
                print(f"wrote {file}")


def _job(request: Trace, options: Options) -> tuple[str, Work]:
    """What is to be traced, by name, and how."""
    if request.model is None:
        assert request.ckpt is not None
        run, step = open_checkpoint(request.ckpt, request.run, request.root)
        return f"{run.name}-step_{step}", partial(trace, run, step, options)
    assert request.data is not None
    source = find_model(request.model, request.revision)
    work = partial(trace_other, source, request.data, request.metric or "loss", options)
    return page_name(source), work


def _view(traced: Traced | OtherTraced) -> str:
    """The circuit to explore, as the explorer's page has it."""
    if traced.parts is None:
        return ""
    edges = traced.parts.edges
    names = [node.name for node in edges.graph.nodes] + ["logits"]
    return circuit_view(edges.table, nodes=names, kept=traced.parts.circuit.names)


def figures(traced: Traced | OtherTraced) -> dict[str, Any]:
    """The figures of a trace by heading: the edges that are enough, its heads, its mechanisms.

    All its edges are in the view above them.
    """
    drawn: dict[str, Any] = {}
    if traced.parts is not None:
        table, graph = traced.parts.edges.table, traced.parts.edges.graph
        names = [node.name for node in graph.nodes] + ["logits"]
        kept = traced.parts.circuit.names
        inside = table.set_index("edge").loc[kept].reset_index()
        enough = f"KL at most {BUDGET} nats from the whole model"
        drawn[f"The {len(kept)} edges that are enough"] = circuit_figure(
            inside, nodes=names, title=enough
        )
        drawn["Heads"] = head_bar(traced.parts.heads.table, title="Effect of ablating each head")
    if isinstance(traced, Traced):
        for finding in traced.findings:
            drawn |= finding.figures
    return drawn


def report(traced: Traced | OtherTraced, console: Console, top: int) -> None:
    """Prints a trace: what was loaded, diagnostics, mechanisms, heads, edges, the circuit."""
    console.print(header_of(traced), soft_wrap=True, highlight=False, markup=False)
    losses = _print_findings(traced, console) if isinstance(traced, Traced) else None
    if traced.parts is not None:
        print_parts(traced.parts, console, top, losses)


def _print_findings(traced: Traced, console: Console) -> Any:
    """Prints diagnostics and mechanisms; gives the losses under each head's ablation, if any."""
    console.print(diagnostics_table(traced))
    losses = None
    for finding in traced.findings:
        if finding.name == "heads" and "heads" in finding.tables and traced.parts is not None:
            losses = finding.tables["heads"]  # Printed beside the effects of all examples.
            continue
        for line in finding.summary:
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    return losses


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """Says what is being done, on a terminal only; it leaves nothing behind."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda doing: status.update(f"{doing} ...")
