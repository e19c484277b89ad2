"""`python -m mechinterp.runs`: list, show, verify, import and export runs."""

if __name__ == "__main__":
    # Ahead of the other imports, which take a moment.
    from mechinterp.early_interrupt import leave_quietly

    leave_quietly("python -m mechinterp.runs")

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from circuits.errors import InputError
from mechinterp.command import heavy_imports, run_command
from mechinterp.runs.locate import (
    DEFAULT_RUN,
    find_run,
    list_runs,
    new_run_path,
    nothing_found,
)

PROG = "python -m mechinterp.runs"

DESCRIPTION = """Look at the runs on disk, check their hashes, or make a run of other checkpoints.

Examples:
  python -m mechinterp.runs list
  python -m mechinterp.runs show my-run
  python -m mechinterp.runs verify my-run --repair
  python -m mechinterp.runs import old/checkpoints --config run-config.json --run my-run
  python -m mechinterp.runs export my-run --to exported --form native-bridge"""


@dataclass(frozen=True)
class _Options:
    root: Path | None = None
    """Folder of runs: MECHINTERP_RUNS when not given, else ./checkpoints, else the checkout's."""


@dataclass(frozen=True)
class ListRuns(_Options):
    """List the runs there are."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class ShowRun(_Options):
    """Show a run's configuration, versions, checkpoints and last metrics."""

    run: tyro.conf.Positional[str] = DEFAULT_RUN
    """Name or path of the run."""
    json: bool = False
    """Print JSON instead of lines."""
    config: bool = False
    """Print the configuration alone, as `import --config` reads it."""


@dataclass(frozen=True)
class VerifyRuns(_Options):
    """Compare every file with its hash; without a name, look at cached tables and pages as well."""

    run: tyro.conf.Positional[str | None] = None
    """Name or path of the run; all runs when not given."""
    repair: bool = False
    """Remove temporary files that killed processes left behind."""
    json: bool = False
    """Print one JSON object, with the problems of each run, instead of lines."""
    quiet: bool = False
    """Print nothing but the problems; the exit code is 2 when there are any."""


@dataclass(frozen=True)
class ImportRun:
    """Make a run of state dicts of HookedTransformer, or of TransformerLens 4's native bridge."""

    directory: tyro.conf.Positional[Path]
    """Holds step_004000/model.pt or model_step_0004000.pt, or .safetensors files of these names."""
    run: str
    """Name or path of the new run."""
    config: Path | None = None
    """JSON file with the run's configuration, as `show --config` prints it; config.json in the
    directory when not given, where `export` puts it."""
    root: Path | None = None
    """Folder for the new run: MECHINTERP_RUNS when not given, else ./checkpoints."""
    json: bool = False
    """Print one JSON object: the run, its path and its steps."""
    quiet: bool = False
    """Print nothing."""


@dataclass(frozen=True)
class ExportRun:
    """Write checkpoints in a form that other tools read."""

    run: tyro.conf.Positional[str]
    """Name or path of the run."""
    to: Path
    """Directory to make; it gets the weights, config.json (the run's configuration) and
    transformer_lens.json (the architecture)."""
    ckpt: str = "last"
    """Which checkpoint: step_4000, 4000, first, last, or all."""
    form: Literal["safetensors", "state-dict", "native-bridge"] = "safetensors"
    """Plain names in safetensors; HookedTransformer.state_dict() from torch.save; or the same as
    TransformerLens 4's convert_tl_checkpoint reads it."""
    root: Path | None = None
    """Folder of runs: MECHINTERP_RUNS when not given, else ./checkpoints, else the checkout's."""
    json: bool = False
    """Print one JSON object: the run, its steps and the weight files."""
    quiet: bool = False
    """Print nothing."""


Request = (
    Annotated[ListRuns, tyro.conf.subcommand("list")]
    | Annotated[ShowRun, tyro.conf.subcommand("show")]
    | Annotated[VerifyRuns, tyro.conf.subcommand("verify")]
    | Annotated[ImportRun, tyro.conf.subcommand("import")]
    | Annotated[ExportRun, tyro.conf.subcommand("export")]
)


def act(request: ListRuns | ShowRun | VerifyRuns | ImportRun | ExportRun) -> None:
    """Does what was asked for and prints the answer."""
    if isinstance(request, ListRuns):
        _list(request)
    elif isinstance(request, ShowRun):
        _show(request)
    elif isinstance(request, VerifyRuns):
        _verify(request)
    elif isinstance(request, ImportRun):
        _import(request)
    else:
        _export(request)


def _list(request: ListRuns) -> None:
    from mechinterp.runs.describe import table

    runs = list_runs(request.root)
    if request.json:
        print(json.dumps({name: str(path) for name, path in runs.items()}, indent=2))
    else:
        print(table(runs) if runs else f"no runs; {nothing_found(request.root)}")


def _show(request: ShowRun) -> None:
    from mechinterp.runs.describe import as_json, config_text, text

    path = find_run(request.run, request.root)
    if request.config:
        print(config_text(path))
    else:
        print(json.dumps(as_json(path), indent=2) if request.json else text(path))


def _verify(request: VerifyRuns) -> None:
    from mechinterp.runs.verify_command import verify

    verify(
        request.run,
        request.root,
        mend=request.repair,
        quiet=request.quiet,
        as_json=request.json,
    )


def _import(request: ImportRun) -> None:
    target = new_run_path(request.run, request.root)
    if not request.directory.is_dir():
        raise InputError(f"{request.directory} is no directory; give one that holds state dicts")
    with heavy_imports():
        from mechinterp.runs.importing import import_run

    command = f"{PROG} {shlex.join(sys.argv[1:])}"
    config = request.config or request.directory / "config.json"
    steps = import_run(request.directory, config, target, command)
    if request.json:
        print(json.dumps({"run": target.name, "path": str(target), "steps": steps}, indent=2))
    elif not request.quiet:
        print(f"{target}: {len(steps)} checkpoints, step {steps[0]} to {steps[-1]}")


def _export(request: ExportRun) -> None:
    find_run(request.run, request.root)
    if request.to.exists():
        raise InputError(f"{request.to} exists already; choose another --to")
    with heavy_imports():
        from mechinterp.runs.exporting import export_run
        from mechinterp.runs.reader import Run

    run = Run.open(request.run, request.root)
    steps = run.steps if request.ckpt == "all" else [run.resolve_step(request.ckpt)]
    files = [str(path) for path in export_run(run, steps, request.form, request.to)]
    if request.json:
        print(json.dumps({"run": run.name, "steps": steps, "files": files}, indent=2))
    elif not request.quiet:
        print("\n".join(f"wrote {file}" for file in files))


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Request, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
