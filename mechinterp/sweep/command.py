"""The command behind `python -m mechinterp.sweep`: parse, plan, hand to an engine, print."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from circuits.errors import InputError
from mechinterp.command import heavy_imports, run_command
from mechinterp.runs.locate import new_run_path
from mechinterp.workers import n_cores

PROG = "python -m mechinterp.sweep"

DESCRIPTION = """Train many runs from one description, side by side, and put them in one table.

A run that is complete is never repeated; one that was interrupted goes on where it was.

Examples:
  python -m mechinterp.sweep study.toml --dry-run
  python -m mechinterp.sweep study.toml --jobs 2
  python -m mechinterp.sweep status study.toml
  python -m mechinterp.sweep table study.toml --csv study.csv"""


@dataclass(frozen=True)
class _Options:
    spec: tyro.conf.Positional[Path]
    """Description of the sweep, a TOML file."""
    root: Path | None = None
    """Folder for the sweep's folder: MECHINTERP_RUNS when not given, else ./checkpoints."""


@dataclass(frozen=True)
class RunSweep(_Options):
    """Train every run that is not complete yet (the word `run` may be left out)."""

    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or a Ray cluster (needs the extra [ray])."""
    jobs: int | None = None
    """Runs at the same time on this machine; the number of cores if not given."""
    threads: int = 1
    """CPU threads of each run."""
    stack: int = 1
    """Train up to so many new runs that differ in seeds or data only as one, where a short trial
    says that it is quicker (small models); each is then equal to its own training up to rounding,
    no longer bit for bit."""
    address: str | None = None
    """Ray cluster to join, such as auto; one is started on this machine if not given."""
    gpus: float = 0.0
    """GPUs of each run, with --engine ray; a fraction lets runs share one."""
    dry_run: bool = False
    """Print the runs with their estimated time and disk, and train nothing."""
    quiet: bool = False
    """Print no progress."""
    json: bool = False
    """At the end, print one JSON object of counts; with --dry-run, a list of the runs that are
    left with their seconds and bytes."""


@dataclass(frozen=True)
class Status(_Options):
    """Say how far every run of the sweep is."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class Table(_Options):
    """Write one row for each run: what varies, how it ended, its last metrics."""

    csv: Path | None = None
    """File for the table; table.csv in the sweep's folder if not given."""
    parquet: Path | None = None
    """The same as parquet; table.parquet in the sweep's folder if not given."""
    metrics: Path | None = None
    """Parquet file for every row of every run's log."""
    quiet: bool = False
    """Print nothing; write the files only."""


Request = (
    Annotated[RunSweep, tyro.conf.subcommand("run")]
    | Annotated[Status, tyro.conf.subcommand("status")]
    | Annotated[Table, tyro.conf.subcommand("table")]
)

_WORDS = ("run", "status", "table", "-h", "--help")


def act(request: RunSweep | Status | Table) -> int | None:
    """Does what was asked for."""
    if isinstance(request, RunSweep):
        _refuse_bad_numbers(request)
    from mechinterp.sweep.planning import planned
    from mechinterp.sweep.spec import read_spec

    spec = read_spec(request.spec)
    runs = planned(spec)
    folder = new_run_path(spec.name, request.root)
    if isinstance(request, RunSweep):
        from mechinterp.sweep.running import dry_run, run_sweep

        if request.dry_run:
            return dry_run(spec, runs, folder, request)
        return run_sweep(spec, runs, folder, request, f"{PROG} {shlex.join(sys.argv[1:])}")
    with heavy_imports():
        from mechinterp.sweep.table import all_metrics, run_table
    table = run_table(spec, runs, folder)
    if isinstance(request, Status):
        _print_status(table, request.json)
        return None
    return _write_tables(request, folder, table, lambda: all_metrics(runs, folder))


def _refuse_bad_numbers(request: RunSweep) -> None:
    if request.jobs is not None and request.jobs < 1:
        raise InputError(f"jobs is {request.jobs}; it has to be 1 or more")
    for name, value in (("threads", request.threads), ("stack", request.stack)):
        if value < 1:
            raise InputError(f"{name} is {value}; it has to be 1 or more")
    if request.gpus < 0:
        raise InputError(f"gpus is {request.gpus}; it has to be 0 or more")
    if request.engine == "local" and (request.address is not None or request.gpus):
        raise InputError("--address and --gpus are for --engine ray; leave them out, or give it")


def jobs_at_once(request: RunSweep) -> int:
    """Gives the number of processes to use on this machine."""
    return request.jobs or max(n_cores() // request.threads, 1)


def _print_status(table, as_json: bool) -> None:
    if as_json:
        print(json.dumps(json.loads(table.to_json(orient="records")), indent=1))
        return
    counts = table["outcome"].value_counts()
    print(", ".join(f"{n} {state}" for state, n in counts.items()))
    shown = [name for name in ("run", "outcome", "step", "train_loss") if name in table]
    print(table[shown].to_string(index=False, na_rep="-"))


def _write_tables(request: Table, folder: Path, table, metrics) -> None:
    from mechinterp.runs.atomic import plain_errors

    csv, parquet = request.csv or folder / "table.csv", request.parquet or folder / "table.parquet"
    if not folder.is_dir():
        raise InputError(f"the sweep has no run yet: {folder} does not exist; run it first")
    for path, write in (
        (csv, lambda path: table.to_csv(path, index=False)),
        (parquet, lambda path: table.to_parquet(path, index=False)),
        (request.metrics, lambda path: metrics().to_parquet(path, index=False)),
    ):
        if path is not None:
            with plain_errors("write", path):
                write(path)
            if not request.quiet:
                print(f"wrote {path}", file=sys.stderr)
    if not request.quiet:
        print(table.to_string(index=False, na_rep="-"))


def _names_command(argv: list[str]) -> bool:
    """Whether the first word is a subcommand, or stands where one would, before the file."""
    if not argv or argv[0] in _WORDS:
        return bool(argv)
    two_words = len(argv) > 1 and not any(word.startswith("-") for word in argv[:2])
    return two_words and not Path(argv[0]).exists()


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    given = sys.argv[1:] if argv is None else argv
    words = given if _names_command(given) else ["run", *given]
    return run_command(Request, act, prog=PROG, description=DESCRIPTION, argv=words)
