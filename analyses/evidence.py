"""Evidence: the runs of a sweep as tables that are small enough to commit."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import Evidence
from analyses.ledger.answer_tables import KEPT, Tables, analysis_of, read_answer, tables_of
from analyses.ledger.gathering import Gathered, gather, with_run
from analyses.ledger.made_by import EVIDENCE, commands_of
from analyses.ledger.writing import plain, write_study
from circuits.errors import InputError
from mechinterp.runs.locate import check_name

SPEC = "spec.toml"


def answer(request: Evidence) -> Answer:
    """Gathers a study and writes its folder.

    Raises:
        InputError: no name, no or two sources, nothing complete to gather, or too much of it.
    """
    if not request.study:
        raise InputError("--study is missing; give the name of the study, such as marginals-size")
    check_name(request.study)
    if (request.sweep is None) == (not request.answers):
        raise InputError("give --sweep FOLDER, or --answers FILE ..., and not both")
    folder = (request.evidence or Path(__file__).resolve().parents[1] / EVIDENCE) / request.study
    if request.sweep is not None:
        found = gather(request.sweep)
        tables, made, lines = found.tables, _made(found), _lines(request.sweep, found)
        spec = _spec(request.sweep, folder)
    else:
        tables, versions = from_answers(request.answers)
        made, spec = {"answers": [path.name for path in request.answers]}, None
        made |= {"versions": versions}
        lines = [f"{len(request.answers)} answers"]
    made = {"study": request.study, "commit": commit(), **made}
    made["commands"] = commands_of(request.study).here.split("; ")
    sizes = write_study(folder, tables, made, spec)
    lines += [f"  {name}: {size} bytes" for name, size in sorted(sizes.items())]
    lines.append(f"{request.study}: {len(tables)} tables, {sum(sizes.values()) / 1e3:.0f} kB")
    return Answer(tuple(lines), {"files": _files(sizes)}, provenance=made)


def from_answers(paths: Sequence[Path]) -> tuple[Tables, dict[str, str]]:
    """Gives the tables of several answers that belong to no run; `run` is the file's name.

    Raises:
        InputError: a file cannot be read, or is of an analysis of which nothing is kept.
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    versions: dict[str, str] = {}
    for path in paths:
        name = analysis_of(path)
        if name not in KEPT:
            raise InputError(
                f"{path.name} is of no analysis that the ledger reads; its name has to begin with "
                f"one of {', '.join(KEPT)}"
            )
        versions |= read_answer(path).get("provenance", {}).get("versions", {})
        for table_name, table in tables_of(path, name).items():
            parts.setdefault(table_name, []).append(with_run(table, path.stem))
    joined = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
    return joined, versions


def commit() -> str:
    """Gives the commit of the code that is running, `-dirty` if it was changed since; "unknown"
    outside a repository."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    where = Path(__file__).resolve().parents[1]
    said = subprocess.run(
        [git, "-C", str(where), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"


def _made(found: Gathered) -> dict[str, Any]:
    return {
        "runs": len(found.tables["runs"]),
        "seconds": plain(round(found.seconds, 1)),
        "after": list(found.after),
        "versions": found.versions,
        "settings": found.settings,
        "varies": list(found.varies),
    }


def _lines(sweep: Path, found: Gathered) -> list[str]:
    runs = found.tables["runs"]
    counts = ", ".join(f"{n} {kind}" for kind, n in runs["outcome"].value_counts().items())
    hours = f", {found.seconds / 3600:.2f} hours in all" if found.seconds == found.seconds else ""
    lines = [
        f"{sweep.name}: {len(runs)} runs ({counts}){hours}; "
        f"besides seeds {', '.join(found.varies) or 'nothing'} varies"
    ]
    if found.left_out:
        lines.append(f"left out, not complete: {_some(found.left_out)}")
    if found.unasked:
        lines.append(f"not all of the sweep's commands have run yet: {_some(found.unasked)}")
    return lines


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")


def _spec(sweep: Path, folder: Path) -> bytes | None:
    """The sweep's description; the one that the study has already where the sweep keeps none."""
    for path in (sweep / SPEC, folder / SPEC):
        if path.is_file():
            return path.read_bytes()
    return None


def _files(sizes: dict[str, int]) -> pd.DataFrame:
    return pd.DataFrame({"file": list(sizes), "bytes": list(sizes.values())})
