"""Every analysis by name: the question it answers, its options, and the module that answers it.

This file imports nothing heavy, so that the command's help is instant. An analysis is a module
`analyses/<name>.py` with a function `answer(request) -> Answer`, `request` being the dataclass of
that analysis below; the first line of the dataclass's docstring is the question.
"""

from dataclasses import dataclass
from pathlib import Path

from mechinterp.runs import DEFAULT_RUN


@dataclass(frozen=True)
class Request:
    """What every analysis can be asked."""

    run: str = DEFAULT_RUN
    """Name of a run, or a path to its directory."""
    root: Path | None = None
    """Folder to look for runs in; see `python -m mechinterp.runs --help`."""
    json: Path | None = None
    """File for the tables and the provenance."""
    html: Path | None = None
    """File for the figures, one page that opens offline."""
    quiet: bool = False
    """Print nothing; write the files only."""


def question(request: type) -> str:
    """Gives the question that an analysis answers."""
    return (request.__doc__ or "").strip().splitlines()[0]


REQUESTS: dict[str, type[Request]] = {}
"""Every analysis by the name of its module, in the order in which one would ask."""
