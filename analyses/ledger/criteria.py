"""Does a statement hold, given an interval over seeds? True, False, or None for undecided.

A statement about a number holds when the whole interval satisfies it and fails when the whole
interval violates it; in between the seeds do not decide. One about runs holds when at least 80 % of
them do it and fails when fewer than half do.
"""

import math
from collections.abc import Iterable, Sequence

from analyses.ledger.claim import Estimate, Part

MOST, FEW = 0.8, 0.5
"""Shares of runs from which a statement about runs holds, and below which it fails."""


def above(found: Estimate, bar: float) -> bool | None:
    """Is the number above a bar?"""
    if found.low >= bar:
        return True
    return False if found.high < bar else None


def below(found: Estimate, bar: float) -> bool | None:
    """Is the number below a bar?"""
    if found.high <= bar:
        return True
    return False if found.low > bar else None


def inside(found: Estimate, low: float, high: float) -> bool | None:
    """Does the number lie in a range?"""
    if found.low >= low and found.high <= high:
        return True
    return False if found.high < low or found.low > high else None


def contains(found: Estimate, value: float) -> bool | None:
    """Does the interval hold a value that is claimed? None without an interval."""
    if math.isnan(found.low) or math.isnan(found.high):
        return None
    return bool(found.low <= value <= found.high)


def most(flags: Sequence[bool]) -> bool | None:
    """Do most runs do it? None for no runs, or where neither most nor few do."""
    if len(flags) == 0:
        return None
    part = sum(map(bool, flags)) / len(flags)
    if part >= MOST - 1e-9:
        return True
    return False if part < FEW - 1e-9 else None


def every(held: Iterable[bool | None]) -> bool | None:
    """Do all of several statements hold? One that fails settles it."""
    known = list(held)
    if any(one is False for one in known):
        return False
    return None if not known or any(one is None for one in known) else True


def most_part(statement: str, flags: Sequence[bool]) -> Part:
    """A statement that most runs have to satisfy, with how many do."""
    return Part(statement, most(flags), f"{sum(map(bool, flags))} of {len(flags)}")


def every_part(statement: str, flags: Sequence[bool]) -> Part:
    """A statement that has to hold everywhere, with where it does."""
    return Part(statement, all(flags) and bool(flags), f"{sum(map(bool, flags))} of {len(flags)}")


def shown(found: Estimate, digits: int = 3) -> str:
    """Writes a number with its interval: 1.19 (1.12 to 1.26)."""
    if math.isnan(found.value):
        return "unknown"
    text = number(found.value, digits)
    if math.isnan(found.low):
        return text
    return f"{text} ({number(found.low, digits)} to {number(found.high, digits)})"


def number(value: float, digits: int = 3) -> str:
    """Writes a number to so many digits, large whole ones in full."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
