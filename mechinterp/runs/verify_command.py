"""What `python -m mechinterp.runs verify` looks at, prints, and leaves with."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from circuits.errors import InputError
from mechinterp.runs.atomic import remove_stray
from mechinterp.runs.locate import find_run, list_runs, nothing_found, places
from mechinterp.runs.lock import is_locked
from mechinterp.runs.manifest import steps_of
from mechinterp.runs.tables import cache_folder
from mechinterp.runs.verifying import leftovers, problems_of, repair, unborn

PAGES = Path("traces")
"""Where `python -m mechinterp.trace` puts its pages."""


@dataclass(frozen=True)
class Verdict:
    """What was found in one run."""

    run: str
    path: str
    checkpoints: int
    problems: list[str]
    busy: bool
    """A process is writing to it, so nothing is removed."""
    leftovers: list[str]
    """Temporary files of killed processes."""
    removed: bool
    """Whether they are gone now."""


def verify(
    name: str | None, root: Path | None, *, mend: bool, quiet: bool = False, as_json: bool = False
) -> None:
    """Compares every file of the runs with its hash, and says what was found.

    Args:
        name: name or path of a run; without it all runs, and the folders of tables and pages.
        root: folder of runs.
        mend: remove what killed processes left behind.
        quiet: print the problems alone.
        as_json: print one JSON object, the problems of each run in it.

    Raises:
        InputError: no such run, or there are problems.
    """
    unfinished = list(_unfinished(root, mend)) if name is None else []
    paths = list(list_runs(root).values()) if name is None else [find_run(name, root)]
    if not quiet and not as_json:
        for path in unfinished:
            print(f"{path} was never finished; " + ("removed" if mend else "--repair"))
        if not paths:
            print(f"no runs; {nothing_found(root)}")
    verdicts = []
    for path in paths:
        verdicts.append(_verdict(path, mend))
        if not quiet and not as_json:
            print("\n".join(_lines(verdicts[-1])))
    if as_json:
        print(json.dumps(_document(verdicts, unfinished, mend), indent=2))
    _complain([problem for verdict in verdicts for problem in verdict.problems], as_json)


def _unfinished(root: Path | None, mend: bool) -> Iterator[Path]:
    tables = cache_folder()
    for folder in (*places(root), *([tables] if tables else []), PAGES):
        for path in unborn(folder):
            if mend:
                remove_stray(path)
            yield path


def _verdict(path: Path, mend: bool) -> Verdict:
    problems = problems_of(path)
    busy = is_locked(path)
    stray = [] if busy else repair(path) if mend else leftovers(path)
    return Verdict(
        run=path.name,
        path=str(path),
        checkpoints=len(steps_of(path)),
        problems=problems,
        busy=busy,
        leftovers=[str(file.relative_to(path)) for file in stray],
        removed=mend and not busy,
    )


def _lines(verdict: Verdict) -> Iterator[str]:
    found = len(verdict.problems)
    state = f"{found} problem{'s' * (found > 1)}" if found else "every hash matches"
    yield f"{verdict.run}: {verdict.checkpoints} checkpoints, {state}"
    if verdict.busy:
        yield f"{verdict.run}: a process is writing to it; nothing is removed"
    elif verdict.removed:
        yield from (f"{verdict.run}: removed {file}" for file in verdict.leftovers)
    elif verdict.leftovers:
        n = len(verdict.leftovers)
        yield f"{verdict.run}: {n} files of a killed process; --repair removes them"


def _document(verdicts: list[Verdict], unfinished: list[Path], mend: bool) -> dict[str, object]:
    return {
        "runs": [dataclasses.asdict(verdict) for verdict in verdicts],
        "unfinished": [{"path": str(path), "removed": mend} for path in unfinished],
    }


def _complain(problems: list[str], as_json: bool) -> None:
    if len(problems) == 1:
        raise InputError(problems[0])
    if problems:
        if not as_json:
            print("\n".join(problems))
        raise InputError(f"{len(problems)} problems, listed above; restore the files from a copy")
