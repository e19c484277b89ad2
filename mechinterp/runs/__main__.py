"""`python -m mechinterp.runs`: list, show, verify, import and export runs."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from circuits.errors import InputError
from mechinterp.command import run_command
from mechinterp.runs.locate import (
    DEFAULT_RUN,
    find_run,
    list_runs,
    new_run_path,
    nothing_found,
    places,
)

PROG = "python -m mechinterp.runs"

PAGES = Path("traces")
"""Where `python -m mechinterp.trace` puts its pages."""

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
    from mechinterp.runs.lock import is_locked
    from mechinterp.runs.manifest import steps_of
    from mechinterp.runs.verifying import leftovers, problems_of, repair

    if request.run is None:
        runs = list(list_runs(request.root).values())
        _verify_folders(request)
    else:
        runs = [find_run(request.run, request.root)]
    if not runs:
        print(f"no runs; {nothing_found(request.root)}")
    problems: list[str] = []
    for path in runs:
        found = problems_of(path)
        problems += found
        state = f"{len(found)} problems" if found else "every hash matches"
        print(f"{path.name}: {len(steps_of(path))} checkpoints, {state}")
        if is_locked(path):
            print(f"{path.name}: a process is writing to it; nothing is removed")
        elif request.repair:
            for gone in repair(path):
                print(f"{path.name}: removed {gone.relative_to(path)}")
        elif stray := leftovers(path):
            print(f"{path.name}: {len(stray)} files of a killed process; --repair removes them")
    _complain(problems)


def _verify_folders(request: VerifyRuns) -> None:
    from mechinterp.runs.atomic import remove_stray
    from mechinterp.runs.tables import cache_folder
    from mechinterp.runs.verifying import unborn

    tables = cache_folder()
    for folder in (*places(request.root), *([tables] if tables else []), PAGES):
        for path in unborn(folder):
            if request.repair:
                remove_stray(path)
            print(f"{path} was never finished; " + ("removed" if request.repair else "--repair"))


def _complain(problems: list[str]) -> None:
    if len(problems) == 1:
        raise InputError(problems[0])
    if problems:
        print("\n".join(problems))
        raise InputError(f"{len(problems)} problems, listed above; restore the files from a copy")


def _import(request: ImportRun) -> None:
    target = new_run_path(request.run, request.root)
    from mechinterp.runs.importing import import_run

    command = f"{PROG} {shlex.join(sys.argv[1:])}"
    config = request.config or request.directory / "config.json"
    steps = import_run(request.directory, config, target, command)
    print(f"{target}: {len(steps)} checkpoints, step {steps[0]} to {steps[-1]}")


def _export(request: ExportRun) -> None:
    from mechinterp.runs.exporting import export_run
    from mechinterp.runs.reader import Run

    run = Run.open(request.run, request.root)
    steps = run.steps if request.ckpt == "all" else [run.resolve_step(request.ckpt)]
    for path in export_run(run, steps, request.form, request.to):
        print(f"wrote {path}")


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Request, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
