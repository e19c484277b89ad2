"""`--ckpt all`: every checkpoint of a run traced side by side, none of them twice."""

import dataclasses
import hashlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from circuits.errors import InputError
from mechinterp.code_hash import code_hash
from mechinterp.config import MarginalsConfig
from mechinterp.engines.local import run_local
from mechinterp.runs import DEFAULT_RUN, Run
from mechinterp.runs.atomic import plain_errors, replace_file
from mechinterp.runs.sealed_json import parse_json
from mechinterp.runs.tables import cache_folder
from mechinterp.sweep.progress import EVERY
from mechinterp.workers import n_cores

if TYPE_CHECKING:
    from mechinterp.trace import Trace

IMPORTED = ("mechinterp.trace_json", "plotly.graph_objects")

_DECIDES = ("ablation", "granularity", "examples", "device", "gradients", "mechanism")


@dataclass(frozen=True)
class CheckpointJob:
    """One checkpoint to trace, and the file that its trace goes to."""

    path: Path
    run: Path
    step: int
    options: dict[str, Any]


def trace_all(request: "Trace") -> None:
    """Traces every checkpoint of a run, prints a row for each and writes them all.

    A trace is kept under the hash of its checkpoint, its options and the code and versions that
    made it, and is not made again.

    Raises:
        InputError: no such run, it has no checkpoints, or some could not be traced; what was traced
            is kept.
    """
    run = Run.open(request.run or DEFAULT_RUN, request.root)
    if not run.steps:
        raise InputError(f"run {run.name} has no checkpoint yet")
    _refuse_too_many(run, request.examples)
    options = {name: getattr(request, name) for name in _DECIDES}
    options["ablation"] = options["ablation"] or "zero"
    folder = cache_folder() or Path("traces")
    with plain_errors("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    jobs = [_job(run, step, options, folder) for step in run.steps]
    left = [job for job in jobs if _read(job.path) is None]
    with _bar(len(jobs), len(jobs) - len(left), request.quiet) as watch:
        if request.engine == "ray":
            from mechinterp.engines.ray_cluster import run_ray

            ended = run_ray(left, trace_one, request.address, 1, 0.0, watch)
        else:
            ended = run_local(left, trace_one, request.jobs or n_cores(), watch, IMPORTED)
    _refuse_failed(ended, jobs)
    documents = [json.loads(job.path.read_bytes()) for job in jobs]
    if request.json:
        replace_file(request.json, json.dumps(documents, indent=1).encode())
    if not request.quiet:
        Console(width=None if sys.stdout.isatty() else 108).print(table_of(documents))
        print(f"{len(jobs)} checkpoints of {run.name}, {len(jobs) - len(left)} traced before")
        if request.json:
            print(f"wrote {request.json}")


def _refuse_too_many(run: Run, examples: int) -> None:
    """Finds out before any process is started what each of them would find out."""
    task = run.config.task
    if isinstance(task, MarginalsConfig) and examples > task.k * task.n_b:
        raise InputError(
            f"--examples is {examples}, and the task of run {run.name} has {task.k * task.n_b} "
            "sequences; ask for at most so many"
        )


def _job(run: Run, step: int, options: dict[str, Any], folder: Path) -> CheckpointJob:
    question = {
        "code": code_hash(trace_one),
        "checkpoint": run.checkpoint_hash(step),
        "options": options,
        "task": dataclasses.asdict(run.config.task),
        "versions": {n: importlib.metadata.version(n) for n in ("torch", "transformer-lens")},
    }
    key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return CheckpointJob(folder / f"{key}.trace.json", run.path, step, options)


def trace_one(job: CheckpointJob) -> str:
    """Traces one checkpoint in this process and writes its trace."""
    from mechinterp.trace_json import as_json
    from mechinterp.tracing import Options, trace

    traced = trace(Run.open(job.run), job.step, Options(**job.options))
    replace_file(job.path, json.dumps(as_json(traced), indent=1).encode())
    return "traced"


def _read(path: Path) -> dict[str, Any] | None:
    """A trace that was kept; None if there is none, or the file is damaged."""
    try:
        body = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) and "provenance" in body else None


def _refuse_failed(ended: dict[str, str], jobs: Sequence[CheckpointJob]) -> None:
    steps = {job.path.name: job.step for job in jobs}
    failed = {steps[name]: said for name, said in ended.items() if said.startswith("failed")}
    if failed:
        step, said = min(failed.items())
        raise InputError(
            f"{len(failed)} of {len(jobs)} checkpoints were not traced, the first at step {step}: "
            f"{said.strip().splitlines()[-1].removeprefix('failed: ')}; the others are kept"
        )


def table_of(documents: Sequence[dict[str, Any]]) -> Table:
    """One row a checkpoint: first diagnostics, strongest head and edge, size of the circuit."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    names = list(documents[0]["diagnostics"])[:3]
    for column in ("step", *names, "strongest head", "strongest edge", "circuit"):
        table.add_column(column, justify="left" if "strongest" in column else "right")
    for one in documents:
        cells = [f"{one['diagnostics'][name]['value']:.3f}" for name in names]
        table.add_row(str(one["step"]), *cells, *_parts(one))
    return table


def _parts(one: dict[str, Any]) -> tuple[str, str, str]:
    if "edges" not in one:
        return "-", "-", "-"
    strongest = [max(one[kind], key=lambda row: row["effect"]) for kind in ("heads", "edges")]
    head, edge = (
        f"{row[name]} {row['effect']:+.3f}"
        for row, name in zip(strongest, ("head", "edge"), strict=True)
    )
    return head, edge, f"{len(one['circuit']['edges'])} of {len(one['edges'])}"


class _bar:
    """Checkpoints traced so far: a bar that leaves nothing behind, or a line now and then."""

    def __init__(self, total: int, before: int, quiet: bool) -> None:
        self._total, self._before = total, before
        self._lines, self._last = not quiet and not sys.stderr.isatty(), time.monotonic()
        self._begun = self._last
        self._progress = Progress(
            TextColumn("tracing"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task("tracing", total=total, completed=before)

    def __enter__(self) -> "_bar":
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def __call__(self, jobs: Sequence[Any], ended: dict[str, str]) -> None:
        done = self._before + len(ended)
        self._progress.update(self._task, completed=done)
        if self._lines and time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            minutes = (self._last - self._begun) / 60
            said = f"{done} of {self._total} checkpoints traced in {minutes:.1f} min"
            if ended:
                said += f", about {minutes / len(ended) * (self._total - done):.0f} min to go"
            print(said, file=sys.stderr, flush=True)
