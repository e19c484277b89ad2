"""What is on the plateau: its height, what the model knows there, and when it begins to use z."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd

from analyses.rows import Row, kept, keyed, numbers
from analyses.waiting.crossings import Times, first_below, held_below, shifted

Rule = Callable[[np.ndarray, np.ndarray, float], np.ndarray]

Z_GAP_ONSET = 0.1
"""Nats of z-gap that count as using z, the paper's threshold."""

Z_GAP_FLAT = 0.05
"""Nats of z-gap below which the paper speaks of a plateau."""

PAPER_WINDOW = (100, 500)
"""Steps over which the paper averages the candidate loss for the height."""

MARGINAL_SHARE, IGNORANT_SHARE = 0.9, 0.1
"""Share of the way from ignorance to the marginal from which, or up to which, we say so."""

Verdict = Literal["marginal", "between", "ignorance", "undefined"]


def onset_table(series: pd.DataFrame, ln_k: float) -> pd.DataFrame:
    """When does the z-gap rise, and how long before the loss falls?

    The z-gap is that of the answer's first character, as in the paper.
    The paper's lead compares a z-gap of 0.1 nat (under 1 % of its final size) with a first-token
    loss of 0.9 ln K (a tenth of its range), so that some lead is built in. The sound one compares
    equal amounts: 0.1 nat gained on the candidate loss.

    Args:
        series: rows with `step`, `z_gap`, `candidate_loss`, `first_token_ce` and their `..._se`.
        ln_k: ln K in nats.

    Returns:
        Two rows, `reading` paper and sound: `onset` of the z-gap, `falls` (when the loss it is
        compared with falls), both in steps, `lead` in steps and `lead_share` of the tau of the same
        reading (the paper's c; the sound a), each with `_low` and `_high` from evaluation noise.
        Infinite is later than the end of the run; a lead of two such times is NaN.
    """
    steps = numbers(series, "step")

    def times(rule: Rule, column: str, sign: float, threshold: float) -> Times:
        moved = shifted(numbers(series, column), numbers(series, f"{column}_se"))
        return rule(steps, sign * moved, sign * threshold)

    rows = []
    for reading, rule in (("paper", first_below), ("sound", held_below)):
        onset = times(rule, "z_gap", -1.0, Z_GAP_ONSET)
        if reading == "paper":
            falls = tau = times(rule, "first_token_ce", 1.0, 0.9 * ln_k)
        else:
            falls = times(rule, "candidate_loss", 1.0, ln_k - Z_GAP_ONSET)
            tau = times(rule, "candidate_loss", 1.0, 0.5 * ln_k)
        rows.append({"reading": reading, **_lead(onset, falls, tau)})
    return pd.DataFrame(rows)


def _lead(onset: Times, falls: Times, tau: Times) -> dict[str, float]:
    """Middle values, and the widest range that shifts of the series against each other allow."""
    row: dict[str, float] = {}
    for name, drawn in (("onset", onset), ("falls", falls)):
        row[name] = drawn[len(drawn) // 2]
        row[f"{name}_low"], row[f"{name}_high"] = drawn.min(), drawn.max()
    middle = len(tau) // 2
    lead = _difference(falls[middle], onset[middle])
    low = _difference(falls.min(), onset.max())
    high = _difference(falls.max(), onset.min())
    row |= {"lead": lead, "lead_low": low, "lead_high": high}
    for end, value in (("", lead), ("_low", low), ("_high", high)):
        row[f"lead_share{end}"] = value / tau[middle] if np.isfinite(tau[middle]) else np.nan
    return row


def _difference(later: float, earlier: float) -> float:
    return later - earlier if np.isfinite(earlier) or np.isfinite(later) else np.nan


def plateau_end(onset: pd.DataFrame) -> float:
    """At which step does the plateau end?

    When z is used or when the candidate loss has fallen by 0.1 nat for good, whichever comes first
    in the sound reading of `onset_table`: at large K later characters are learned before the first
    one, which is all that the z-gap looks at.
    """
    sound = keyed(onset, "reading")["sound"]
    return float(min(sound["onset"], sound["falls"]))


def level_table(series: pd.DataFrame, lines: dict[str, float], end: float) -> pd.DataFrame:
    """How high is the plateau, and what does the model know while it is on it?

    Rows up to `end` are the plateau, whatever the loss is there: keeping only those with a loss
    within 5 % of ln K would make the height come out right by construction.
    Every model that ignores z scores ln K, so the height says nothing of what it knows; the shares
    do, 0 being ignorance and 1 knowledge of P(A | B).

    Args:
        series: rows with `step`, and with their `..._se`: `candidate_loss`, `candidate_mass`,
            `target_ce` and `first_token_ce`.
        lines: the task's reference lines.
        end: step at which the plateau ends; infinite if it never does.

    Returns:
        One row a quantity: `quantity`, `unit`, `paper` (mean over steps 100 to 500; NaN without
        such rows), `value` with `low` and `high` (mean over the plateau), `at_end` (its last row),
        `ignorant` and `marginal` (where one who knows nothing, or just P(A | B), would be).
    """
    steps = numbers(series, "step")
    # A model that learns at once has no row on the plateau but its first.
    on = kept(series, (steps > 0) & (steps <= max(end, steps[steps > 0].min())))
    window = kept(series, (steps >= PAPER_WINDOW[0]) & (steps <= PAPER_WINDOW[1]))
    ln_k = lines["ln_k"]
    specs = (
        ("height", "ln K", "candidate_loss", lambda loss: loss / ln_k, 1.0, 1.0),
        ("candidate_mass", "probability", "candidate_mass", lambda mass: mass,
         lines["ignorant_candidate_mass"], 1.0),
        ("target_ce", "nats", "target_ce", lambda ce: ce,
         lines["ignorant_target_ce"], lines["marginal_target_ce"]),
        ("first_token_ce", "nats", "first_token_ce", lambda ce: ce,
         lines["ln_36"], lines["marginal_first_token_ce"]),
    )  # fmt: skip
    rows = []
    for name, unit, column, convert, ignorant, marginal in specs:
        measured = numbers(on, column)
        mean, half = float(measured.mean()), 1.96 * float(numbers(on, f"{column}_se").mean())
        row = {
            "quantity": name,
            "unit": unit,
            "paper": convert(float(np.mean(window[column])) if len(window) else math.nan),
            "value": convert(mean),
            "low": convert(mean - half),
            "high": convert(mean + half),
            "at_end": convert(measured[-1]),
            "ignorant": ignorant,
            "marginal": marginal,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def knowledge_share(level: Row, column: str = "value") -> float:
    """How far from ignorance (0) to the marginal (1) is a quantity? NaN where the two coincide."""
    way = level["marginal"] - level["ignorant"]
    return (level[column] - level["ignorant"]) / way if abs(way) > 0.05 else math.nan


def verdict(share: float) -> Verdict:
    """What is the plateau, given the share of the way from ignorance to the marginal?"""
    if np.isnan(share):
        return "undefined"
    if share >= MARGINAL_SHARE:
        return "marginal"
    return "ignorance" if share <= IGNORANT_SHARE else "between"
