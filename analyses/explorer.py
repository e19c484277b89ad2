"""The explorer: everything about a forming circuit on one page that opens from disk."""

import dataclasses
import re
import shlex
from pathlib import Path

import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import Explorer
from analyses.checkpoints import check_examples
from analyses.explorer_data.run import gather
from analyses.explorer_data.tables import ExplorerData, RunData
from analyses.explorer_page.assembling import explorer_page
from circuits.errors import InputError
from mechinterp.runs import Run

FOLDER = Path("traces")
"""Where the page is written unless --out says otherwise, as `mechinterp.trace` does."""

UNSAID = ("quiet", "json", "jobs")
"""Options that do not change the page."""


def answer(request: Explorer) -> Answer:
    """Measures one run, or two to compare, and builds the page.

    Costs what `circuit-formation` costs for each ablation and granularity, and little more unless
    --by-position, --curvature or --prune is given; what was measured before is read from the cache.

    Raises:
        InputError: too few checkpoints, an unknown run, an option out of range, or the same run
            twice.
    """
    check_examples(request.examples)
    if not request.ablations or not request.granularities:
        raise InputError("ablations and granularities each need at least one value")
    runs = [Run.open(request.run, request.root)]
    if request.compare is not None:
        runs.append(Run.open(request.compare, request.root))
        if runs[0].path == runs[1].path:
            raise InputError(
                f"--compare names {request.compare}, the run itself; two of its checkpoints are "
                "compared on every page, so give another run or leave --compare out"
            )
    files = [path for path in (request.out, request.html) if path] or [_default_file(runs[0].name)]
    data = ExplorerData(tuple(gather(run, request) for run in runs), rebuild_command(request))
    page = explorer_page(data)
    if FOLDER in {file.parent for file in files}:
        FOLDER.mkdir(exist_ok=True)
    return Answer(
        summary=tuple(_summary(data, page)),
        tables=_tables(data),
        provenance={run.name: run.provenance for run in data.runs},
        pages=dict.fromkeys(files, page),
    )


def rebuild_command(request: Explorer) -> str:
    """Gives the command line that builds the same page: every option that is not its default."""
    words = ["python", "-m", "analyses", "explorer", "--run", request.run]
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if field.name in (*UNSAID, "run") or value == field.default:
            continue
        words.append("--" + field.name.replace("_", "-"))
        if value is not True:
            words += [str(one) for one in (value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)


def _default_file(name: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}-explorer.html"


def _summary(data: ExplorerData, page: str) -> list[str]:
    lines = [_run_line(run) for run in data.runs]
    births = data.runs[0].settings[0].births
    heads = births[births["kind"] == "head"].dropna(subset="born")
    strongest = heads.loc[heads["peak_effect"].abs().nlargest(3).index]
    for row in strongest.itertuples():
        lines.append(
            f"  {row.component} is born at step {row.born}, its effect {row.peak_effect:+.3f} at "
            f"step {row.peak_step}"
        )
    size = len(page.encode()) / 1e6
    return [*lines, f"one page of {size:.1f} MB, which opens from disk without a network"]


def _run_line(run: RunData) -> str:
    n_edges = run.settings[0].edges["edge"].nunique()
    kinds = ", ".join(f"{one.ablation}/{one.granularity}/{one.position}" for one in run.settings)
    return f"{run.name}: {len(run.steps)} checkpoints, {n_edges} edges, measured as {kinds}"


def _tables(data: ExplorerData) -> dict[str, pd.DataFrame]:
    """The tables of the first run under their names, those of a second one under the run's."""
    tables = {}
    for place, run in enumerate(data.runs):
        prefix = f"{run.name} " if place else ""
        first = run.settings[0]
        named = {"edges": first.edges, "heads": first.heads, "births": first.births, **run.tables}
        tables |= {f"{prefix}{name}": table for name, table in named.items()}
    return tables
