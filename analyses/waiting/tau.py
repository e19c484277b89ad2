"""How long is the plateau? The five definitions of tau in use, and for each one that noise spares.

The definitions are those of "Marginals Before Conditionals" (arXiv 2603.10074) and of its code.
They differ in the loss, in the threshold and in the rule,
and by a factor of up to four on the same run, so none is "the" tau.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from analyses.rows import numbers
from analyses.waiting.crossings import (
    Steps,
    Times,
    Values,
    first_below,
    held_below,
    redrawn,
    shifted,
)

Name = Literal["a", "b", "c", "d", "e"]

SUSTAINED = 500.0
"""Steps for which definition e asks the loss to stay low."""

PAPER_EXAMPLES = 32
"""Evaluation examples of the paper, drawn afresh for every evaluation."""

_REDRAWS = 1000
_SEED = 0


@dataclass(frozen=True)
class Definition:
    """One definition of tau: which loss, which rule, and its counterpart that noise spares."""

    name: Name
    loss: Literal["candidate_loss", "first_token_ce"]
    rule: str
    paper: Callable[[Steps, Values, float], Times]
    sound: Callable[[Steps, Values, float], Times]
    """Both take steps, the losses (nats) and the level of the plateau (nats)."""


def _first(fraction: float) -> Callable[[Steps, Values, float], Times]:
    return lambda steps, values, level: first_below(steps, values, fraction * level)


def _held(fraction: float) -> Callable[[Steps, Values, float], Times]:
    return lambda steps, values, level: held_below(steps, values, fraction * level)


def _width(crossing: Callable[..., Times]) -> Callable[[Steps, Values, float], Times]:
    def width(steps: Steps, values: Values, level: float) -> Times:
        start = crossing(steps, values, 0.95 * level)
        end = crossing(steps, values, 0.05 * level)
        return np.where(np.isfinite(end), end - np.where(np.isfinite(start), start, 0), np.inf)

    return width


def _sustained(steps: Steps, values: Values, level: float) -> Times:
    return held_below(steps, values, 0.3 * level, SUSTAINED, interpolate=False)


DEFINITIONS: tuple[Definition, ...] = (
    Definition("a", "candidate_loss", "first below 0.5 ln K", _first(0.5), _held(0.5)),
    Definition("b", "first_token_ce", "first below 0.5 ln K", _first(0.5), _held(0.5)),
    Definition("c", "first_token_ce", "first below 0.9 ln K", _first(0.9), _held(0.9)),
    Definition(
        "d", "candidate_loss", "from 0.95 to 0.05 ln K", _width(first_below), _width(held_below)
    ),
    Definition("e", "candidate_loss", "below 0.3 ln K for 500 steps", _sustained, _held(0.3)),
)


def tau_table(
    series: pd.DataFrame,
    ln_k: float,
    marginal_first: float | None = None,
    n_examples: int | None = None,
) -> pd.DataFrame:
    """How long is the plateau under each definition, and how sure is that?

    Args:
        series: rows with `step`, and `candidate_loss` and `first_token_ce` (nats) with their
            standard errors in `..._se`.
        ln_k: ln K in nats, the level that the paper measures both losses against.
        marginal_first: first-token loss of one who knows P(A | B), the level of the sound b and c;
            ln K when not given, which it is where first characters differ inside a fibre.
        n_examples: evaluation examples behind a row, so that the paper's noise can be imitated.

    Returns:
        One row a definition, times in steps and infinite where the run is too short:
        `definition`, `loss`, `rule`;
        `paper`, the definition to the letter, with `paper_low` and `paper_high`, its range when the
        whole series moves by 1.96 standard errors (a fixed evaluation set errs alike at each row);
        `fresh_low` and `fresh_high`, where 95 % of the answers would lie if each row were measured
        on 32 fresh examples, as in the paper (NaN without `n_examples`);
        `sound`, `sound_low`, `sound_high`: the same threshold, crossed for at least five rows and
        interpolated between rows.
    """
    steps = numbers(series, "step")
    rows = []
    for each in DEFINITIONS:
        values, se = numbers(series, each.loss), numbers(series, f"{each.loss}_se")
        level = ln_k
        if each.loss == "first_token_ce" and marginal_first is not None:
            level = marginal_first
        row: dict[str, object] = {"definition": each.name, "loss": each.loss, "rule": each.rule}
        moved = shifted(values, se)
        for kind, rule, height in (("paper", each.paper, ln_k), ("sound", each.sound, level)):
            times = rule(steps, moved, height)
            row[kind] = times[len(times) // 2]
            row[f"{kind}_low"], row[f"{kind}_high"] = times.min(), times.max()
            if kind == "paper":
                fresh = _fresh(values, se, n_examples)
                bounds = _quantiles(each.paper(steps, fresh, ln_k)) if n_examples else (np.nan,) * 2
                row["fresh_low"], row["fresh_high"] = bounds
        rows.append(row)
    return pd.DataFrame(rows)


def _fresh(
    values: Float[np.ndarray, " row"], se: Float[np.ndarray, " row"], n_examples: int | None
) -> Values:
    return redrawn(values, se * ((n_examples or 1) / PAPER_EXAMPLES) ** 0.5, _REDRAWS, _SEED)


def _quantiles(times: Times) -> tuple[float, float]:
    """The middle 95 % of the draws; order statistics, since some may be infinite."""
    ordered = np.sort(times)
    cut = round(0.025 * (len(ordered) - 1))
    return float(ordered[cut]), float(ordered[len(ordered) - 1 - cut])
