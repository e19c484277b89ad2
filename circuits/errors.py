"""The one exception for a mistake in what was asked, and the suggestion that goes with it."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeGuard, cast


class InputError(ValueError):
    """A mistake in what the caller asked for.

    The message is one line that says what was given, what is allowed and what to do next.
    Commands print it on stderr and leave with exit code 2; no traceback is shown.
    """


def near_matches(name: object, allowed: Iterable[str], n: int = 5) -> str:
    """Lists the allowed names closest to a mistyped one.

    Args:
        name: what was given; anything but a string is close to nothing.
        allowed: every valid name.
        n: how many to list at most.

    Returns:
        The closest names joined by commas, or the first `n` names when nothing is close.
    """
    names = list(allowed)
    return ", ".join(closest(name, names, n) or names[:n])


def closest(name: object, allowed: Iterable[str], n: int = 5) -> list[str]:
    """Gives the allowed names closest to a mistyped one, none where nothing is close."""
    return difflib.get_close_matches(str(name), list(allowed), n=n, cutoff=0.5)


def refuse_other_kinds(name: str, value: object, kind: type, give: str) -> None:
    """Refuses an argument of another type, before anything is asked of it.

    Args:
        name: of the argument, for the message.
        value: what was given.
        kind: the type that it has to be of.
        give: what to give instead, in words.

    Raises:
        InputError: it is of another type.
    """
    if not isinstance(value, kind):
        raise InputError(f"{name} is {type(value).__name__}: give {give}")


def has_entries(value: object) -> TypeGuard[Iterable[Any]]:
    """Says whether a value can be gone through; a tensor without an axis only calls itself so."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def whole_number(name: str, value: object) -> int:
    """Gives an integer that the caller passed, of whatever integer type.

    Args:
        name: of the argument, for the message.
        value: what was given.

    Raises:
        InputError: anything but an integer; 2.0 and True too, which are slips.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise InputError(f"{name}={value!r} is {type(value).__name__}: give an integer") from None


def whole_numbers(name: str, values: object) -> tuple[int, ...]:
    """Gives the integers of a list, a range or a tensor.

    Raises:
        InputError: anything but a collection of integers.
    """
    if isinstance(values, str) or not has_entries(values):
        raise InputError(f"{name}={values!r} is {type(values).__name__}: give a list of integers")
    return tuple(whole_number(f"an entry of {name}", value) for value in values)
