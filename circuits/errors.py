"""The one exception for a mistake in what was asked, and the suggestion that goes with it."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in what the caller asked for.

    The message is one line that says what was given, what is allowed and what to do next.
    Commands print it on stderr and leave with exit code 2; no traceback is shown.
    """


def near_matches(name: str, allowed: Iterable[str], n: int = 5) -> str:
    """Lists the allowed names closest to a mistyped one.

    Args:
        name: what was given.
        allowed: every valid name.
        n: how many to list at most.

    Returns:
        The closest names joined by commas, or the first `n` names when nothing is close.
    """
    names = list(allowed)
    close = difflib.get_close_matches(name, names, n=n, cutoff=0.5)
    return ", ".join(close or names[:n])
