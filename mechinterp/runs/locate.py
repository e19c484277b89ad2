"""Where runs are looked for, and where a new one goes."""

import os
import re
from pathlib import Path

import mechinterp
from circuits.errors import InputError, near_matches
from mechinterp.runs.atomic import plain_errors

DEFAULT_RUN = "marginals-k20"
"""The run that commands read when none is named; it is committed under checkpoints/reference."""

VARIABLE = "MECHINTERP_RUNS"
"""Environment variable that names the folder of runs."""

RECORD = "run.json"
"""The file that makes a directory a run."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=,@-]{0,127}")
_RESERVED = ("reference",)


def check_name(name: str) -> str:
    """Gives a run's name back if it is one: no separators, no leading dot, nothing to escape.

    Raises:
        InputError: it is not; says what is allowed.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InputError(
            f"{name[:80]!r} cannot be the name of a run; a name has 1 to 128 of the characters "
            "A-Z a-z 0-9 . _ + = , @ -, begins with a letter or digit, and is not 'reference'"
        )
    return name


def places(root: Path | None = None) -> list[Path]:
    """Lists the folders that are searched for runs, in order.

    Args:
        root: the folder given with --root; nothing else is searched then.

    Returns:
        `root`, else MECHINTERP_RUNS, else `./checkpoints` and then the checkpoints of the checkout
        that the package was installed from; each followed by its `reference` folder. They need not
        exist.
    """
    if root is not None:
        bases = [root]
    elif os.environ.get(VARIABLE):
        bases = [Path(os.environ[VARIABLE])]
    else:
        bases = [Path("checkpoints")]
        if (checkout := _checkout()) is not None:
            bases.append(checkout / "checkpoints")
    unique = dict.fromkeys(_absolute(base) for base in bases)
    return [folder for base in unique for folder in (base, base / "reference")]


def _checkout() -> Path | None:
    """The checkout this package was installed from, or runs in; None for a wheel."""
    home = Path(mechinterp.__file__).parents[1]
    if (home / "pyproject.toml").is_file():
        return home
    # pip notes the source folder of an installation that is not editable (PEP 610).
    import importlib.metadata
    import json
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = importlib.metadata.distribution("mechinterp-toolkit").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    folder = Path(url2pathname(url.path))
    return folder if url.scheme == "file" and folder.is_dir() else None


def _absolute(path: Path) -> Path:
    with plain_errors("find", path):
        return Path(os.path.abspath(os.path.expanduser(path)))


def is_run(path: Path) -> bool:
    """Whether a directory is a run; never raises, whatever the path is."""
    return os.path.isfile(path / RECORD)


def list_runs(root: Path | None = None) -> dict[str, Path]:
    """Lists every run by name; a name found in an earlier folder hides the same in a later one.

    Raises:
        InputError: a folder cannot be read.
    """
    found: dict[str, Path] = {}
    for folder in places(root):
        if folder.is_dir():
            with plain_errors("read", folder):
                entries = sorted(folder.iterdir())
            for entry in entries:
                if _NAME.fullmatch(entry.name) and is_run(entry):
                    found.setdefault(entry.name, entry)
    return found


def find_run(name_or_path: str | Path, root: Path | None = None) -> Path:
    """Finds a run that exists.

    A name is looked for in `places(root)`; anything with a separator is a path, taken as it is.

    Raises:
        InputError: there is none; lists the runs there are, or says where was looked.
    """
    text = os.fspath(name_or_path)
    if not text or not text.isprintable():
        raise InputError(f"{text[:80]!r} is neither the name of a run nor a path")
    if _NAME.fullmatch(text):
        for folder in places(root):
            if is_run(folder / text):
                return folder / text
    path = _absolute(Path(text))
    if is_run(path):
        return path
    raise InputError(_unknown(text, path, root))


def _unknown(text: str, path: Path, root: Path | None) -> str:
    if is_run(path.parent) and path.name.startswith("step_"):
        return f"{text} is a checkpoint, not a run; give its run, {path.parent}"
    if not _NAME.fullmatch(text):
        state = "has no run.json" if os.path.isdir(path) else "does not exist"
        return f"no run at {text}: {path} {state}; `python -m mechinterp.runs list` lists the runs"
    runs = list_runs(root)
    if runs:
        known = near_matches(text, runs, n=8)
        more = len(runs) - len(known.split(", "))
        known += f" and {more} more" if more else ""
        return f"no run {text!r}; there are: {known} (looked in {where(root)})"
    return f"no run {text!r}, nor any other; {nothing_found(root)}"


def nothing_found(root: Path | None = None) -> str:
    """Says, in one line, where was looked and what to do when no run was found anywhere."""
    return (
        f"looked in {where(root)}; train one with `python -m mechinterp.train`, or say where your "
        f"runs are with --root or {VARIABLE}"
    )


def where(root: Path | None = None) -> str:
    """Says where runs are looked for, and which of the folders do not exist."""
    shown = [
        f"{folder}{'' if folder.is_dir() else ' (does not exist)'}"
        for folder in places(root)
        if folder.name != "reference" or folder.is_dir()
    ]
    if root is None and os.environ.get(VARIABLE):
        return f"{', '.join(shown)} (from {VARIABLE})"
    if root is None and _checkout() is None:
        shown.append("no checkout, as this package was installed from a wheel")
    return ", ".join(shown)


def new_run_path(name_or_path: str | Path, root: Path | None = None) -> Path:
    """Says where a run of this name goes; nothing is created.

    Args:
        name_or_path: a name goes under `root`, else MECHINTERP_RUNS, else `./checkpoints`;
            anything with a separator is a path, which may not climb with `..`.
        root: the folder given with --root.

    Raises:
        InputError: the name is not allowed.
    """
    text = os.fspath(name_or_path)
    separators = [s for s in (os.sep, os.altsep) if s]
    if any(s in text for s in separators):
        path = Path(text)
        if ".." in path.parts:
            raise InputError(f"{text[:80]!r} climbs with '..'; give a name or a plain path")
        check_name(path.name)
        return _absolute(path)
    base = root if root is not None else Path(os.environ.get(VARIABLE) or "checkpoints")
    return _absolute(base) / check_name(text)
