"""The command behind `python -m analyses`: parse, ask, print, write."""

import functools
import json
import operator
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from analyses.catalogue import REQUESTS, Output, question
from mechinterp.command import heavy_imports, run_command
from mechinterp.runs.atomic import make_room

if TYPE_CHECKING:
    from analyses.answer import Answer

PROG = "python -m analyses"

DESCRIPTION = """Ask one question of one run, or of several, over all checkpoints.

Examples:
  python -m analyses list
  python -m analyses plateau --run marginals-k20
  python -m analyses phases --run markov-k4 --json phases.json --html phases.html
  python -m analyses explorer --run marginals-k20 --out explorer.html"""


@dataclass(frozen=True)
class ListQuestions:
    """Name every analysis with the question it answers."""

    json: bool = False
    """Print JSON, the question by the name, instead of lines."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    kinds = {"list": ListQuestions, **{_spelled(name): kind for name, kind in REQUESTS.items()}}
    options = [
        Annotated[kind, tyro.conf.subcommand(name, description=_description(kind))]
        for name, kind in kinds.items()
    ]
    union = functools.reduce(operator.or_, options)
    return run_command(union, act, prog=PROG, description=DESCRIPTION, argv=argv)


def act(request: Any) -> None:
    """Answers, prints and writes."""
    if isinstance(request, ListQuestions):
        _list(request.json)
        return
    for path in (request.json, request.html, getattr(request, "out", None)):
        if path:
            make_room(path)
    name = next(name for name, kind in REQUESTS.items() if type(request) is kind)
    with heavy_imports():
        module = import_module(f"analyses.{name}")
    answer = module.answer(request)
    _write(answer, request, title=f"{_spelled(name)}: {question(type(request))}")


def _list(as_json: bool) -> None:
    questions = {_spelled(name): question(kind) for name, kind in REQUESTS.items()}
    if as_json:
        print(json.dumps(questions, indent=2))
        return
    width = max(map(len, questions))
    for name, asked in questions.items():
        print(f"{name:<{width}}  {asked}")


def _write(answer: "Answer", request: Output, title: str) -> None:
    from circuits.figures import write_html
    from mechinterp.runs.atomic import replace_file

    if request.json:
        replace_file(request.json, answer.to_json().encode())
    for path, page in answer.pages.items():
        replace_file(path, page.encode())
    if request.html and not answer.pages:
        write_html(answer.figures, request.html, title, notes="\n".join(answer.summary))
    if not request.quiet:
        for line in answer.summary:
            print(line)
        for path in dict.fromkeys((request.json, request.html, *answer.pages)):
            if path:
                print(f"wrote {path}", file=sys.stderr)


def _description(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _spelled(name: str) -> str:
    return name.replace("_", "-")
