"""`python -m mechinterp.runs`: list, show, verify and import runs."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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

DESCRIPTION = """Look at the runs on disk, check their hashes, or make a run of other checkpoints.

Examples:
  python -m mechinterp.runs list
  python -m mechinterp.runs show my-run
  python -m mechinterp.runs verify my-run --repair
  python -m mechinterp.runs import old/checkpoints --config run-config.json --run my-run"""


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
    """Compare every file with its hash."""

    run: tyro.conf.Positional[str | None] = None
    """Name or path of the run; all runs when not given."""
    repair: bool = False
    """Remove temporary files that killed processes left behind."""


@dataclass(frozen=True)
class ImportRun:
    """Make a run of torch.save'd HookedTransformer state dicts."""

    directory: tyro.conf.Positional[Path]
    """Holds step_004000/model.pt or model_step_0004000.pt."""
    config: Path
    """JSON file with the run's configuration, as `show --config` prints it."""
    run: str
    """Name or path of the new run."""
    root: Path | None = None
    """Folder for the new run: MECHINTERP_RUNS when not given, else ./checkpoints."""


Request = (
    Annotated[ListRuns, tyro.conf.subcommand("list")]
    | Annotated[ShowRun, tyro.conf.subcommand("show")]
    | Annotated[VerifyRuns, tyro.conf.subcommand("verify")]
    | Annotated[ImportRun, tyro.conf.subcommand("import")]
)


def act(request: ListRuns | ShowRun | VerifyRuns | ImportRun) -> None:
    """Does what was asked for and prints the answer."""
    if isinstance(request, ListRuns):
        _list(request)
    elif isinstance(request, ShowRun):
        _show(request)
    elif isinstance(request, VerifyRuns):
        _verify(request)
    else:
        _import(request)


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
        if request.repair:
            for gone in repair(path):
                print(f"{path.name}: removed {gone.relative_to(path)}")
        elif stray := leftovers(path):
            print(f"{path.name}: {len(stray)} files of a killed process; --repair removes them")
    _complain(problems)


def _verify_folders(request: VerifyRuns) -> None:
    from mechinterp.runs.atomic import remove_stray
    from mechinterp.runs.verifying import unborn

    for folder in places(request.root):
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
    steps = import_run(request.directory, request.config, target, command)
    print(f"{target}: {len(steps)} checkpoints, step {steps[0]} to {steps[-1]}")


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Request, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
