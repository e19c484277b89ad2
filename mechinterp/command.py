"""Manners every command shares: typed arguments in, one plain line for a mistake, exit codes."""

import contextlib
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args

import tyro

from circuits.errors import InputError, closest
from mechinterp.early_interrupt import interruptible, leaving_quietly

_FRAME = re.compile("[╭╮╰╯│]")
_RULE = re.compile("─{4,}")


def run_command(
    kind: Any,
    act: Callable[[Any], int | None],
    *,
    prog: str,
    description: str,
    argv: list[str] | None = None,
) -> int:
    """Parses arguments into a dataclass, acts on it, and turns mistakes into one line.

    Args:
        kind: the dataclass, or a union of them for subcommands.
        act: what to do; its result is the exit code, None meaning 0.
        prog: how the command is called, for its help.
        description: shown by `--help`, examples included.
        argv: the arguments; those of the process when not given.

    Returns:
        0 for success, 2 for a user's mistake, 130 after Ctrl-C.
    """
    try:
        interruptible()
        _refuse_unknown_word(kind, sys.argv[1:] if argv is None else argv)
        return act(_parse(kind, prog, description, argv)) or 0
    except InputError as error:
        print(f"{prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{prog}: interrupted; what was finished is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; leave without a complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextlib.contextmanager
def heavy_imports() -> Iterator[None]:
    """Imports torch and TransformerLens without looking for garbage among them, then or ever.

    What they build on import stays until the end. Left to itself, Python's collector goes through
    all of it again and again, for a second while importing and for two at exit.
    """
    gc.disable()
    try:
        with leaving_quietly(_prog()):
            yield
    finally:
        gc.enable()
        gc.freeze()


def _prog() -> str:
    """The command that runs, as `python -m` was given it; its file where it was not."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else sys.argv[0]


def _refuse_unknown_word(kind: Any, argv: list[str]) -> None:
    """A mistyped subcommand, which tyro would call one unrecognised option among others."""
    known = [
        word.name for part in get_args(kind) for word in get_args(part)[1:] if hasattr(word, "name")
    ]
    if known and argv and not argv[0].startswith("-") and argv[0] not in known:
        near = ", ".join(closest(argv[0], known))
        hint = f"near matches: {near}; --help lists" if near else "--help lists"
        raise InputError(f"there is no {argv[0]!r}; {hint} what is allowed")


def _parse(kind: Any, prog: str, description: str, argv: list[str] | None) -> Any:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=prog,
                description=description,
                args=argv,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as leave:
        if leave.code in (0, None):
            raise
    raise InputError(_one_line(complaint.getvalue()))


def _one_line(box: str) -> str:
    """Reduces a framed, wrapped complaint to one line, without its title and its help hint."""
    lines = [_FRAME.sub(" ", line).strip() for line in box.splitlines()[1:]]
    said: list[str] = []
    near: list[str] = []
    for line in lines:
        if line.startswith(("For full helptext", "Argument helptext", "Perhaps you meant")):
            break
        if line and not _RULE.search(line):
            said.append(line)
    complaint = " ".join(said).partition(" Arguments are applied to")[0].rstrip(".")
    for line in lines[len(said) :]:  # Of what may have been meant, the names of the options.
        if line.startswith("--") and (name := line.split()[0]) not in complaint:
            near.append(name)
    hint = f"; near matches: {', '.join(dict.fromkeys(near))}" if near else ""
    return f"{complaint}{hint}; --help lists what is allowed"
