"""Pairs of prompts as they stand in a JSONL file, one object a line."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.errors import InputError, near_matches
from mechinterp.runs.atomic import plain_errors

FIELDS = ("clean", "corrupt", "answer", "wrong")


@dataclass(frozen=True)
class Prompt:
    """One line of the file, as it was written.

    Attributes:
        where: file and line, for messages.
        fields: text or token ids by the names in `FIELDS`; a single id for an answer.
    """

    where: str
    fields: dict[str, str | list[int]]


def read_prompts(path: Path) -> list[Prompt]:
    """Reads the pairs of a file, one JSON object a line; empty lines are passed over.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or holds no pair; or a line is not JSON,
            no object, or holds a field that is unknown or neither text nor token ids.
    """
    with plain_errors("read", path):
        data = path.read_bytes()
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from None
    prompts = [
        _parse(f"line {number} of {path}", line)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not prompts:
        raise InputError(
            f'{path} holds no pairs: give one object a line, {{"clean": "text" or [ids], '
            '"corrupt": ..., "answer": ..., "wrong": ...}'
        )
    return prompts


def _parse(where: str, line: str) -> Prompt:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "it is nested too deeply or a number is too long")
        raise InputError(f"{where} is not JSON: {reason}") from None
    if not isinstance(body, dict):
        raise InputError(f"{where} is a {type(body).__name__}: give an object with {_fields()}")
    for name in body:
        if name not in FIELDS:
            raise InputError(
                f"{where} has the field {name[:40]!r}; near matches: {near_matches(name, FIELDS)}"
            )
    if "clean" not in body:
        raise InputError(f"{where} has no clean prompt: the fields are {_fields()}")
    return Prompt(where, {name: _checked(where, name, value) for name, value in body.items()})


def _checked(where: str, name: str, value: Any) -> str | list[int]:
    single = name in ("answer", "wrong") and type(value) is int
    ids = [value] if single else value
    if isinstance(ids, str) and ids:
        return ids
    if isinstance(ids, list) and ids and all(type(token) is int for token in ids):
        return ids
    raise InputError(
        f"{where}: {name} is {json.dumps(value)[:40]}: give text or a list of token ids, not empty"
    )


def _fields() -> str:
    return "clean, corrupt, answer and wrong"
