"""A sweep from its runs to their ends: who is still to do, by which engine, and what came of it."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.errors import InputError
from mechinterp.command import heavy_imports
from mechinterp.engines.local import run_local
from mechinterp.runs.atomic import plain_errors, replace_file
from mechinterp.sweep.jobs import IMPORTED, jobs_of, left_to_do
from mechinterp.sweep.planning import Planned, directories_of
from mechinterp.sweep.progress import Watch
from mechinterp.sweep.spec import Spec
from mechinterp.sweep.stacks import one_line, run_by_run, stacked, watched

if TYPE_CHECKING:
    from mechinterp.sweep.command import RunSweep


def run_sweep(
    spec: Spec, runs: tuple[Planned, ...], folder: Path, request: "RunSweep", command: str
) -> int:
    """Brings every run of a sweep to its end, and says what came of them.

    Returns:
        The exit code: 0 when every run is complete.

    Raises:
        InputError: some runs failed; the first reason is given.
    """
    with plain_errors("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "spec.toml", request.spec.read_bytes())
    device = "cuda" if request.gpus else "cpu"
    places = directories_of(folder, runs)
    everything = jobs_of(spec, runs, places, request.threads, command, device)
    jobs = left_to_do(everything)
    work = stacked(jobs, request.stack)
    steps = {job.path.name: job.config.training.steps for job in jobs}
    with Watch(spec.name, steps, len(runs) - len(jobs), request.quiet) as bar:
        watch = watched(work, bar)
        if request.engine == "ray":
            from mechinterp.engines.ray_cluster import run_ray

            ended = run_ray(work, one_line, request.address, request.threads, request.gpus, watch)
        else:
            from mechinterp.sweep.command import jobs_at_once

            ended = run_local(work, one_line, jobs_at_once(request), watch, IMPORTED)
    return _conclude(len(runs), len(jobs), run_by_run(work, ended), folder, request)


def _conclude(
    n_runs: int, n_jobs: int, ended: dict[str, str], folder: Path, request: "RunSweep"
) -> int:
    failed = {name: said for name, said in ended.items() if said.startswith("failed")}
    diverged = sum(said == "diverged" for said in ended.values())
    if request.json:
        counts = {"runs": n_runs, "complete": n_runs - len(failed), "before": n_runs - n_jobs}
        rest = {"diverged": diverged, "failed": failed, "folder": str(folder)}
        print(json.dumps({**counts, **rest}, indent=2))
    elif not request.quiet:
        print(
            f"{n_runs - len(failed)} of {n_runs} runs complete, {n_runs - n_jobs} of them before; "
            f"{diverged} diverged; in {folder}"
        )
    if failed:
        for name, said in failed.items():
            print(f"{name} {said}", file=sys.stderr)
        raise InputError(
            f"{len(failed)} of {n_runs} runs failed, listed above; mend the cause and give the "
            "same command again: what is complete is kept"
        )
    return 0


def dry_run(spec: Spec, runs: tuple[Planned, ...], folder: Path, request: "RunSweep") -> None:
    """Prints the runs that are left with their estimated time and disk, from a few trial steps."""
    from mechinterp.sweep.command import jobs_at_once

    places = directories_of(folder, runs)
    left = {job.path for job in left_to_do(jobs_of(spec, runs, places, request.threads, ""))}
    todo = tuple(run for run in runs if places[run.key] in left)
    if not request.json:
        print(f"{len(runs)} runs, {len(runs) - len(todo)} complete, in {folder}")
    if not todo:
        if request.json:
            print("[]")
        return
    print("timing a few steps of each kind of run", file=sys.stderr)
    with heavy_imports():
        from mechinterp.sweep.calibration import estimates
    table = estimates(todo, spec.keep, request.threads)
    if request.json:
        print(json.dumps(json.loads(table.to_json(orient="records")), indent=2))
        return
    print(
        table.assign(minutes=(table["seconds"] / 60).round(1), MB=(table["bytes"] / 1e6).round(1))[
            ["run", "steps", "minutes", "MB"]
        ].to_string(index=False)
    )
    jobs = jobs_at_once(request)
    minutes = table["seconds"].sum() / 60
    print(
        f"together {minutes:.1f} minutes of training, {minutes / min(jobs, len(todo)):.1f} with "
        f"{jobs} at once on {os.cpu_count()} cores, if none stops early; "
        f"{table['bytes'].sum() / 1e6:.0f} MB of disk"
    )
