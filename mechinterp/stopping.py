"""When a run ends before its last step: it has converged, or it has exploded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, TaskConfig

Reason = Literal["budget", "converged", "diverged"]

SOLVED = 0.01
"""Share of ln K below which the candidate loss counts as solved, as in the paper's runs."""


class Diverged(InputError):
    """Training that cannot go on: its loss is no longer finite, or it exploded."""


@dataclass(frozen=True)
class StopRule:
    """What ends a run early; it decides how far a run goes, and no number on the way."""

    converged: int = 0
    """Evaluations in a row with a candidate loss below 1 % of ln K; 0 never stops."""
    exploded: float = 0.0
    """Training loss over that of the first evaluation; above this the run counts as diverged. 0
    leaves it to a loss that is not finite."""


class Stopper:
    """Follows the rows of metrics of one run and says when its rule applies."""

    def __init__(self, rule: StopRule, task: TaskConfig) -> None:
        """Refuses a rule that the task cannot follow.

        Raises:
            InputError: a negative setting, or convergence asked of a task without candidates.
        """
        if rule.converged < 0 or not 0 <= rule.exploded < math.inf:
            raise InputError(f"{rule} is no rule to stop by; its settings are 0 or more")
        k = task.k if isinstance(task, MarginalsConfig) else 1
        if rule.converged and k < 2:
            raise InputError(
                "stop.converged watches the candidate loss, which only the marginals task with "
                "K > 1 has; leave it out"
            )
        self._rule = rule
        self._solved = SOLVED * math.log(max(k, 1))
        self._in_a_row = 0
        self._first: float | None = None

    def see(self, row: Mapping[str, Any]) -> None:
        """Takes the next row of metrics into account.

        Raises:
            Diverged: the loss exploded.
        """
        loss = row.get("train_loss")
        if loss is not None:
            first = self._first = loss if self._first is None else self._first
            if self._rule.exploded and loss > self._rule.exploded * first:
                raise Diverged(
                    f"training diverged at step {row['step']}: the loss is {loss:.3g}, "
                    f"{loss / first:.3g} times the first one"
                )
        below = row.get("candidate_loss", math.inf) < self._solved
        self._in_a_row = self._in_a_row + 1 if below else 0

    @property
    def converged(self) -> bool:
        """Whether the run has been solved for long enough."""
        return 0 < self._rule.converged <= self._in_a_row
