"""Which head routes the selector to the answer, on a checkpoint of the marginals task?"""

from dataclasses import asdict
from typing import Any

import pandas as pd

from circuits.errors import InputError
from circuits.figures.mechanisms import score_figure
from circuits.selector_head import SelectorEvidence, selector_evidence
from circuits.selector_signals import SIGNALS
from circuits.selector_verdict import SelectorVerdict
from mechinterp.findings.finding import Finding
from mechinterp.tasks import Marginals, Pairs


def task_selector(model: Any, task: Marginals, pairs: Pairs) -> SelectorEvidence:
    """Gathers the evidence of `selector_evidence` at the task's own positions."""
    return selector_evidence(
        model,
        pairs.clean,
        pairs.corrupt,
        selector=task.positions["z"],
        decide=task.positions["decide"],
        answer=task.scored,
        scored=task.scored,
    )


def selector_finding(model: Any, task: Marginals, pairs: Pairs) -> Finding:
    """Finds the selector head, if there is one, with the evidence of seven signals.

    The effects are on the mean cross-entropy (nats) at the scored positions; the head is judged
    from the position that predicts the first answer character.

    Raises:
        InputError: the task shows no selector that decides the answer.
    """
    if task.config.variant != "bz_to_a":
        raise InputError(
            f"variant {task.config.variant!r} has no selector that decides the answer; "
            "the selector test needs a bz_to_a run"
        )
    found = task_selector(model, task, pairs)
    verdict = found.verdict
    reason = verdict.reason.removeprefix("no selector head: ")
    lines = [f"Selector head: {verdict.head or 'none can be named'} ({reason})"]
    if verdict.runner_up is not None:
        lines.append(
            f"  reading another z at {verdict.leading} costs {verdict.effect:+.3f} nats "
            f"({verdict.effect_low:+.3f} to {verdict.effect_high:+.3f}); margin to "
            f"{verdict.runner_up} {verdict.margin:+.3f} ({verdict.margin_low:+.3f} to "
            f"{verdict.margin_high:+.3f})"
        )
    lines.append(
        "  by signal: "
        + ", ".join(f"{signal} {head}" for signal, head in verdict.agreement.items())
    )
    figure = score_figure(found.table, list(SIGNALS), title="What each head does with the selector")
    tables = {"selector": found.table, "selector_verdict": _as_row(verdict)}
    return Finding("selector", tuple(lines), tables, {"Selector signals by head": figure})


def _as_row(verdict: SelectorVerdict) -> pd.DataFrame:
    """The verdict as one row, with the head that each signal names."""
    row = asdict(verdict)
    named = {f"{signal}_names": head for signal, head in row.pop("agreement").items()}
    return pd.DataFrame([row | named])
