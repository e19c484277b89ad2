"""Everything that is measured on one checkpoint to see a circuit form, as rows of one table."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd
import torch

from analyses.formation.scores import TESTS, score_rows
from analyses.formation.simultaneous import largest_deviations, standard_errors
from circuits import edge_effects, edge_gradients
from circuits.agreement import agreement
from circuits.edge_ablation import EdgeEffects
from circuits.edge_attribution import Method
from circuits.errors import InputError
from circuits.head_ablation import head_effects
from circuits.intervals import mean_interval
from mechinterp.config import TaskConfig
from mechinterp.findings import Finding, find_mechanisms, mechanisms_of
from mechinterp.tasks import Measure, Pairs, Task, make_task
from mechinterp.tracing import PAIR_SEED, TESTED_ON, Ablation

GRADIENT_STEPS = 5
"""Points on the path of the gradient methods that have one."""

TRACED_LOSS = "traced_loss"
"""Name among the diagnostics of the loss that effects are changes of."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class FormationMeasure:
    """What forms on one checkpoint: edges, heads, mechanisms, diagnostics, and gradients' guesses.

    The loss whose change is an effect is the mean next-token cross-entropy (nats) at the task's
    scored positions, on the pairs that `mechinterp.trace` measures on too.

    Attributes:
        task: what the run was trained on.
        examples: clean/corrupt pairs.
        ablation: what replaces what is cut.
        granularity: of the edges.
        methods: gradient methods to compare with the exact effects.
    """

    task: TaskConfig
    examples: int
    ablation: Ablation
    granularity: str
    methods: tuple[Method, ...]

    def __call__(self, model: Any) -> pd.DataFrame:
        """Measures a model.

        Returns:
            Rows of `part` ("edge", "head", "score", "diagnostic", "agreement", and "edge draw" and
            "head draw", see `largest_deviations`), `name`, `component`, `value`, `low`, `high`,
            `se`; of gradient methods `value` is the measure that `component` names, with `chance`
            and `ceiling` as `circuits.agreement` defines them.
        """
        task, pairs = drawn_pairs(self.task, self.examples)
        tested = Pairs(pairs.clean[:TESTED_ON], pairs.corrupt[:TESTED_ON])
        with torch.inference_mode():
            diagnostics = task.diagnostics(model, min(self.examples, TESTED_ON), "full")
        findings = _findings(model, task, tested, diagnostics)
        options: dict[str, Any] = {
            "ablation": self.ablation,
            "corrupt": pairs.corrupt if self.ablation == "patch" else None,
            "scored": task.scored,
        }
        heads = head_effects(model, pairs.clean, "loss", **options)
        options["granularity"] = self.granularity
        edges = edge_effects(model, pairs.clean, "loss", **options)
        gradients = {
            method: edge_gradients(
                model, pairs.clean, "loss", method=method, steps=GRADIENT_STEPS, **options
            )
            for method in self.methods
        }
        return pd.DataFrame(
            _effect_rows("edge", list(edges.table["edge"]), edges)
            + _effect_rows("head", list(heads.table["head"]), heads)
            + [{"part": "score", **row} for row in score_rows(findings)]
            + _diagnostic_rows(diagnostics, edges)
            + [row for m, found in gradients.items() for row in _agreement_rows(m, edges, found)],
            columns=[
                "part",
                "name",
                "component",
                "value",
                "low",
                "high",
                "se",
                "chance",
                "ceiling",
            ],
        )


def _findings(
    model: Any, task: Task, pairs: Pairs, diagnostics: dict[str, Measure]
) -> list[Finding]:
    """The tests that fit the task and the model."""
    found = []
    for name in TESTS:
        if name in mechanisms_of(task):
            with contextlib.suppress(InputError):  # The model has no such part.
                found += find_mechanisms(model, task, pairs, diagnostics, name)
    return found


def _effect_rows(part: str, names: Sequence[str], effects: Any) -> Rows:
    """Effects with intervals and standard errors, and the draws that bands are made from."""
    table, se = effects.table, standard_errors(effects.per_example)
    values = zip(names, table["effect"], table["low"], table["high"], se.tolist(), strict=True)
    rows: Rows = [
        {"part": part, "name": name, "value": value, "low": low, "high": high, "se": spread}
        for name, value, low, high, spread in values
    ]
    draws = largest_deviations(effects.per_example)
    return rows + [{"part": f"{part} draw", "value": draw} for draw in draws.tolist()]


def _diagnostic_rows(diagnostics: dict[str, Measure], edges: EdgeEffects) -> Rows:
    baseline = edges.baseline[None]
    loss, _, _ = mean_interval(baseline)
    measures = diagnostics | {TRACED_LOSS: Measure(loss.item(), standard_errors(baseline).item())}
    return [
        {"part": "diagnostic", "name": name, "value": found.value, "se": found.se}
        for name, found in measures.items()
    ]


def _agreement_rows(method: str, edges: EdgeEffects, gradients: Any) -> Rows:
    found = agreement(edges, gradients, top=[top_count(len(edges.table))])
    return [
        {
            "part": "agreement",
            "name": method,
            "component": row["measure"],
            "value": row["value"],
            "chance": row["chance_high"],
            "ceiling": row["ceiling"],
        }
        for row in found.table.to_dict("records")
    ]


def top_count(n_edges: int) -> int:
    """How many edges make the top set: 50, or a quarter of a small graph's."""
    return min(50, max(1, n_edges // 4))


@lru_cache(maxsize=2)
def drawn_pairs(config: TaskConfig, examples: int) -> tuple[Task, Pairs]:
    """Makes a task and the pairs that all its checkpoints are traced on, once in each process."""
    task = make_task(config)
    return task, task.pairs(examples, torch.Generator().manual_seed(PAIR_SEED))
