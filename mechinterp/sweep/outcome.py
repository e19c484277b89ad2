"""outcome.json: how a run of a sweep ended, so that it is never repeated."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from circuits.errors import InputError
from mechinterp.runs.atomic import replace_file
from mechinterp.runs.sealed_json import read_json
from mechinterp.stopping import Reason, StopRule

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        reason: its last step ("budget"), "converged" or "diverged".
        step: the last step with a row of metrics.
        detail: why it diverged.
        stop: the rule it was run with.
        seconds: wall time of the process that ended it.
        after: commands that have been run since, in order.
    """

    reason: Reason
    step: int
    detail: str
    stop: StopRule
    seconds: float
    after: tuple[str, ...] = ()


def write_outcome(run: Path, outcome: Outcome) -> None:
    """Records how a run ended.

    Raises:
        InputError: the disk refuses.
    """
    replace_file(run / OUTCOME, (json.dumps(dataclasses.asdict(outcome), indent=1) + "\n").encode())


def read_outcome(run: Path, stop: StopRule) -> Outcome | None:
    """Says how a run ended, if it is complete under a rule.

    Args:
        run: the run's directory; it need not exist.
        stop: the rule it should have been run with; one that stopped by another goes on.

    Returns:
        None for a run that is not complete, and for a file that is damaged: such a run is taken up
        again at its last checkpoint, which costs little.
    """
    try:
        body = read_json(run / OUTCOME)
        rule = StopRule(**body.pop("stop"))
        outcome = Outcome(stop=rule, **{**body, "after": tuple(body["after"])})
        well_formed = (
            outcome.reason in get_args(Reason)
            and type(outcome.step) is int
            and isinstance(outcome.seconds, int | float)
            and all(isinstance(line, str) for line in (outcome.detail, *outcome.after))
        )
    except (InputError, TypeError, KeyError):
        return None
    if not well_formed:
        return None
    return outcome if outcome.reason == "budget" or outcome.stop == stop else None
