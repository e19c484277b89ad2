"""Mechanism tests on one checkpoint, by name, for the tasks that they make sense for."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from circuits.errors import InputError
from circuits.side_by_side import side_by_side, workers_on
from mechinterp.findings.finding import Finding
from mechinterp.findings.heads import heads_finding
from mechinterp.findings.induction import induction_finding
from mechinterp.findings.lenses import attention_finding, lens_finding, patching_finding
from mechinterp.findings.phase import phase_finding
from mechinterp.findings.selector import selector_finding
from mechinterp.findings.task_vectors import task_vector_finding
from mechinterp.tasks import Marginals, MarkovChains, Measure, Pairs, Task

__all__ = ["Finding", "find_mechanisms", "mechanisms_of"]


@dataclass(frozen=True)
class Checkpoint:
    """What a mechanism test is given: one checkpoint, and what was measured on it before.

    Attributes:
        model: the checkpoint's model.
        task: the run's task.
        pairs: clean and corrupt sequences.
        diagnostics: what `task.diagnostics` gave for this checkpoint.
        ablation: what an ablated head carries, for the tests that ablate heads.
    """

    model: Any
    task: Any
    pairs: Pairs
    diagnostics: dict[str, Measure]
    ablation: str = "zero"


Finder = Callable[[Checkpoint], Finding]

_MARGINALS: dict[str, Finder] = {
    "selector": lambda c: selector_finding(c.model, c.task, c.pairs),
    "heads": lambda c: heads_finding(c.model, c.task, c.pairs, c.ablation),
    "patching": lambda c: patching_finding(c.model, c.task, c.pairs),
}
_CHAINS: dict[str, Finder] = {
    "phase": lambda c: phase_finding(c.model, c.task, c.pairs, c.diagnostics),
    "induction": lambda c: induction_finding(c.model, c.task, c.pairs),
    "task-vector": lambda c: task_vector_finding(c.model, c.task),
}
_ANY: dict[str, Finder] = {
    "lens": lambda c: lens_finding(c.model, c.task, c.pairs),
    "attention": lambda c: attention_finding(c.model, c.task, c.pairs),
}


def mechanisms_of(task: Task) -> dict[str, Finder]:
    """Gives the mechanism tests that make sense for a task, by name."""
    if isinstance(task, Marginals):
        routed = task.config.variant == "bz_to_a" and task.config.k > 1
        return (_MARGINALS if routed else {}) | _ANY
    return _CHAINS | _ANY if isinstance(task, MarkovChains) else {}


def find_mechanisms(
    model: Any,
    task: Task,
    pairs: Pairs,
    diagnostics: dict[str, Measure],
    only: str | None = None,
    ablation: str = "zero",
) -> list[Finding]:
    """Runs the mechanism tests that fit a task, or one of them.

    Args:
        model: the checkpoint's model.
        task: the run's task.
        pairs: clean and corrupt sequences.
        diagnostics: what `task.diagnostics` gave for this checkpoint.
        only: the name of one test; all that fit the task if not given.
        ablation: what an ablated head carries, for the tests that ablate heads.

    Raises:
        InputError: `only` names no test that fits the task, or the one it names cannot be run.
    """
    known = mechanisms_of(task)
    if only is not None and only not in known:
        fitting = ", ".join(known) or "none"
        why = " (its task shows no selector that decides the answer)" if only in _MARGINALS else ""
        raise InputError(f"mechanism {only!r} does not fit this run; those that do: {fitting}{why}")
    checkpoint = Checkpoint(model, task, pairs, diagnostics, ablation)
    if only is not None:
        return [known[only](checkpoint)]
    return _all_of(known, checkpoint)


def _all_of(known: dict[str, Finder], checkpoint: Checkpoint) -> list[Finding]:
    """Runs every test, several at a time; each has a copy of the model, as hooks belong to one."""
    workers = min(workers_on(checkpoint.pairs.clean.device), len(known))
    spare: SimpleQueue[Checkpoint] = SimpleQueue()
    for _ in range(workers - 1):
        spare.put(replace(checkpoint, model=copy.deepcopy(checkpoint.model)))
    spare.put(checkpoint)
    found: dict[str, Finding] = {}

    def test(name: str) -> None:
        own = spare.get()
        try:
            found[name] = known[name](own)
        except InputError as error:
            found[name] = Finding(name, (f"{name}: not tested: {error}",), {})
        finally:
            spare.put(own)

    side_by_side(test, known, max(workers, 1))
    return [found[name] for name in known]
