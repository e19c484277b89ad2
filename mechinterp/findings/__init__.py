"""Mechanism tests on one checkpoint, by name, for the tasks that they make sense for."""

from collections.abc import Callable
from typing import Any

from circuits.errors import InputError
from mechinterp.findings.finding import Finding
from mechinterp.findings.induction import induction_finding
from mechinterp.findings.phase import phase_finding
from mechinterp.findings.selector import selector_finding
from mechinterp.findings.task_vectors import task_vector_finding
from mechinterp.tasks import Marginals, MarkovChains, Measure, Pairs, Task

__all__ = ["Finding", "find_mechanisms", "mechanisms_of"]

Finder = Callable[[Any, Any, Pairs, dict[str, Measure]], Finding]

_MARGINALS: dict[str, Finder] = {
    "selector": lambda m, task, pairs, _: selector_finding(m, task, pairs)
}
_CHAINS: dict[str, Finder] = {
    "phase": phase_finding,
    "induction": lambda m, task, pairs, _: induction_finding(m, task, pairs),
    "task-vector": lambda m, task, _, __: task_vector_finding(m, task),
}


def mechanisms_of(task: Task) -> dict[str, Finder]:
    """Gives the mechanism tests that make sense for a task, by name."""
    if isinstance(task, Marginals):
        return _MARGINALS if task.config.variant == "bz_to_a" and task.config.k > 1 else {}
    return _CHAINS if isinstance(task, MarkovChains) else {}


def find_mechanisms(
    model: Any,
    task: Task,
    pairs: Pairs,
    diagnostics: dict[str, Measure],
    only: str | None = None,
) -> list[Finding]:
    """Runs the mechanism tests that fit a task, or one of them.

    Args:
        model: the checkpoint's model.
        task: the run's task.
        pairs: clean and corrupt sequences.
        diagnostics: what `task.diagnostics` gave for this checkpoint.
        only: the name of one test; all that fit the task if not given.

    Raises:
        InputError: `only` names no test that fits the task, or the one it names cannot be run.
    """
    known = mechanisms_of(task)
    if only is not None and only not in known:
        fitting = ", ".join(known) or "none"
        raise InputError(f"mechanism {only!r} does not fit this run; those that do: {fitting}")
    if only is not None:
        return [known[only](model, task, pairs, diagnostics)]
    found = []
    for name, finder in known.items():
        try:
            found.append(finder(model, task, pairs, diagnostics))
        except InputError as error:
            found.append(Finding(name, (f"{name}: not tested: {error}",), {}))
    return found
