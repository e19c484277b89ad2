"""A claim of a paper, what was measured for it, and the rule that makes a verdict of the two."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import pandas as pd

from analyses.ledger.store import EvidenceStore, NoEvidence
from circuits.errors import InputError

Verdict = Literal["reproduced", "in part", "not reproduced", "not testable at this scale"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

MIN_SEEDS = 3
"""Seeds, of initial weights and of data alike, below which a number gets no verdict."""


class Estimate(NamedTuple):
    """A number with its 95 % interval over seeds; NaN where it is not known."""

    value: float
    low: float = math.nan
    high: float = math.nan


UNKNOWN = Estimate(math.nan)


@dataclass(frozen=True)
class Part:
    """One statement of a criterion.

    Attributes:
        statement: what has to hold, with its numbers.
        held: whether it does; None where the evidence cannot tell.
        seen: what was seen, in words.
    """

    statement: str
    held: bool | None
    seen: str = ""


@dataclass(frozen=True)
class Measured:
    """What the evidence says of one claim.

    Attributes:
        parts: the statements of the criterion, each with whether it holds.
        estimate: the number to compare with the paper's.
        unit: of the estimate.
        n_seeds: least number of seeds behind any number that counts.
        scale: what it was measured on.
        table: the evidence, for the figure: `label`, `value`, `low`, `high`; or `x`, `time`,
            `label` for a law.
        marks: reference values by name, in the unit of the table.
        note: what a reader should know besides.
        missing: why there is nothing to judge; empty where there is.
        axis: what the table's values are, with their unit, where it is not `unit`.
    """

    parts: tuple[Part, ...] = ()
    estimate: Estimate = UNKNOWN
    unit: str = ""
    n_seeds: int = 0
    scale: str = ""
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    marks: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    missing: str = ""
    axis: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        id: its name in the ledger.
        paper: "marginals" (arXiv 2603.10074) or "markov" (arXiv 2604.12151).
        sentence: the claim in our words.
        paper_value: the paper's number, as text.
        source: where that number comes from, and how far it can be trusted.
        criterion: what has to hold for it to count as reproduced.
        studies: folders of evidence that it needs.
        measure: reads the evidence.
        min_seeds: seeds that it needs.
    """

    id: str
    paper: Literal["marginals", "markov"]
    sentence: str
    paper_value: str
    source: str
    criterion: str
    studies: tuple[str, ...]
    measure: Callable[[EvidenceStore], Measured]
    min_seeds: int = MIN_SEEDS


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured and the verdict that follows."""

    claim: Claim
    measured: Measured
    verdict: Verdict
    reason: str
    """Why it is not testable; empty for the other verdicts."""


def judge(claim: Claim, store: EvidenceStore) -> Judged:
    """Weighs one claim against the evidence.

    Evidence that is missing makes the claim not testable; a table that is damaged does not pass for
    missing.

    Raises:
        InputError: a table is damaged, lacks a column, or has no values in it.
    """
    try:
        measured = claim.measure(store)
    except NoEvidence as lack:
        measured = Measured(missing=str(lack))
    except InputError:
        raise
    except (KeyError, ValueError, IndexError) as error:
        # Tables are read from disk: one that a measurement cannot digest is a damaged one.
        if not isinstance(error, KeyError):
            raise InputError(
                f"the evidence for {claim.id} cannot be weighed ({_first_line(error)}): gather "
                f"{' and '.join(claim.studies)} anew"
            ) from error
        raise InputError(
            f"the evidence for {claim.id} lacks {error}: gather {' and '.join(claim.studies)} anew"
        ) from error
    reason = why_not_testable(measured, claim.min_seeds)
    verdict = "not testable at this scale" if reason else verdict_of(measured.parts)
    return Judged(claim, measured, verdict, reason)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def verdict_of(parts: Sequence[Part]) -> Verdict:
    """Makes a verdict of the statements of a criterion.

    Reproduced: all hold. Not reproduced: none holds and at least one fails. In part: some hold.
    Not testable: the evidence decides none of them.
    """
    held = [part.held for part in parts]
    if not held or all(one is None for one in held):
        return "not testable at this scale"
    if all(held):
        return "reproduced"
    return "in part" if any(held) else "not reproduced"


def _seeds(n: int) -> str:
    return f"{n} seed" if n == 1 else f"{n} seeds"


def why_not_testable(measured: Measured, min_seeds: int) -> str:
    """Gives the reason that a claim has no verdict; empty if it has one."""
    if measured.missing:
        return measured.missing
    if measured.n_seeds < min_seeds:
        return f"{_seeds(measured.n_seeds)}; a verdict needs at least {min_seeds}"
    if verdict_of(measured.parts) == "not testable at this scale":
        return "the intervals over seeds are too wide to decide any part of the criterion"
    return ""
