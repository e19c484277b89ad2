"""The circuit over training, once for each way of ablating that was asked for."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyses import circuit_formation
from analyses.catalogue import CircuitFormation, Explorer
from analyses.checkpoints import measure_checkpoints
from analyses.explorer_data.tables import Setting
from analyses.formation.measuring import drawn_pairs
from circuits import edge_effects, prune
from circuits.graph import Granularity
from circuits.head_ablation import head_effects
from mechinterp.config import TaskConfig
from mechinterp.runs import Run
from mechinterp.tracing import BUDGET, PRUNED_ON, Ablation

BIRTHS = ["component", "kind", "born", "died", "band_low", "band_high", "peak_step", "peak_effect"]
EFFECTS = ["effect", "low", "high"]

Tables = dict[str, pd.DataFrame]


def settings_of(run: Run, request: Explorer, steps: list[int]) -> tuple[list[Setting], Tables]:
    """Traces the checkpoints under every ablation and granularity that was asked for.

    Returns:
        The settings, the default first, and every table of the first one's circuit formation.

    Raises:
        InputError: too few checkpoints, or an option out of range.
    """
    settings, first = [], None
    for ablation in request.ablations:
        for granularity in request.granularities:
            tables = _formation(run, request, steps, ablation, granularity)
            first = tables if first is None else first
            settings.append(_setting(run, request, tables, ablation, granularity))
        if request.by_position:
            settings += _by_position(run, request, steps, ablation)
    return settings, first or {}


def _formation(
    run: Run, request: Explorer, steps: list[int], ablation: Ablation, granularity: str
) -> Tables:
    asked = CircuitFormation(
        run=str(run.path),
        steps=tuple(steps),
        examples=request.examples,
        ablation=ablation,
        granularity=granularity,  # type: ignore[arg-type]
        jobs=request.jobs,
        quiet=request.quiet,
    )
    return circuit_formation.answer(asked).tables


def _setting(
    run: Run, request: Explorer, tables: Tables, ablation: Ablation, granularity: str
) -> Setting:
    chosen = circuit_formation.chosen_granularity(run, granularity)
    births = tables["births"]
    return Setting(
        ablation=ablation,
        granularity=chosen,
        position="all",
        edges=pd.DataFrame(tables["edges"][["step", "edge", "source", "reader", *EFFECTS]]),
        heads=pd.DataFrame(tables["heads"][["step", "head", *EFFECTS]]),
        births=pd.DataFrame(births[births["kind"] != "score"][BIRTHS]).reset_index(drop=True),
        circuits=_pruned(run, request, ablation, chosen),
    )


def _pruned(
    run: Run, request: Explorer, ablation: Ablation, granularity: Granularity
) -> dict[int, tuple[str, ...]]:
    """The circuits at the steps to prune at, within the budget of `mechinterp.trace`."""
    if not request.prune:
        return {}
    steps = sorted({run.resolve_step(step) for step in request.prune})
    measure = PruningMeasure(run.config.task, request.examples, ablation, granularity)
    options = {
        "examples": request.examples,
        "ablation": ablation,
        "granularity": granularity,
        "budget": BUDGET,
        "pruned_on": PRUNED_ON,
    }
    rows = measure_checkpoints(
        run, steps, "explorer-pruning", options, measure, request.quiet, jobs=request.jobs or 1
    )
    return {step: tuple(rows[rows["step"] == step]["edge"]) for step in steps}


@dataclass(frozen=True)
class PruningMeasure:
    """Which edges are enough on one checkpoint?

    Attributes:
        task: what the run was trained on.
        examples: clean/corrupt pairs to draw, of which the first ones are pruned on.
        ablation: what replaces what is cut.
        granularity: of the edges.
    """

    task: TaskConfig
    examples: int
    ablation: Ablation
    granularity: Granularity

    def __call__(self, model: Any) -> pd.DataFrame:
        """Prunes the whole model; gives a row for each edge that is left, with its `edge`."""
        task, pairs = drawn_pairs(self.task, self.examples)
        few = slice(PRUNED_ON)
        kept = prune(
            model,
            pairs.clean[few],
            "kl",
            ablation=self.ablation,
            corrupt=pairs.corrupt[few] if self.ablation == "patch" else None,
            scored=task.scored,
            granularity=self.granularity,
            budget=BUDGET,
        )
        return pd.DataFrame({"edge": [edge.name for edge in kept]}, dtype=object)


@dataclass(frozen=True)
class PositionMeasure:
    """What does each edge carry, and each head write, at each named group of positions?

    Attributes:
        task: what the run was trained on.
        examples: clean/corrupt pairs.
        ablation: what replaces what is cut.
    """

    task: TaskConfig
    examples: int
    ablation: Ablation

    def __call__(self, model: Any) -> pd.DataFrame:
        """Measures a model; gives rows of `kind`, `name`, `position`, `effect`, `low`, `high`."""
        task, pairs = drawn_pairs(self.task, self.examples)
        options: dict[str, Any] = {
            "ablation": self.ablation,
            "corrupt": pairs.corrupt if self.ablation == "patch" else None,
            "scored": task.scored,
        }
        groups = {name: group for name, group in task.positions.items() if group}
        edges = edge_effects(model, pairs.clean, "loss", positions=groups, **options).table
        rows = [edges.rename(columns={"edge": "name"}).assign(kind="edge")]
        for name, group in groups.items():
            heads = head_effects(model, pairs.clean, "loss", positions=group, **options).table
            rows.append(heads.rename(columns={"head": "name"}).assign(kind="head", position=name))
        return pd.concat(rows, ignore_index=True)[["kind", "name", "position", *EFFECTS]]


def _by_position(
    run: Run, request: Explorer, steps: list[int], ablation: Ablation
) -> list[Setting]:
    measure = PositionMeasure(run.config.task, request.examples, ablation)
    options = {"examples": request.examples, "ablation": ablation}
    rows = measure_checkpoints(
        run, steps, "explorer-positions", options, measure, request.quiet, jobs=request.jobs or 1
    )
    return [
        Setting(
            ablation=ablation,
            granularity="head",
            position=position,
            edges=_named(rows, "edge", position),
            heads=_named(rows, "head", position),
            births=pd.DataFrame(columns=BIRTHS),
        )
        for position in dict.fromkeys(rows["position"])
    ]


def _named(rows: pd.DataFrame, kind: str, position: str) -> pd.DataFrame:
    mine = rows[(rows["kind"] == kind) & (rows["position"] == position)]
    table = pd.DataFrame(mine[["step", "name", *EFFECTS]]).rename(columns={"name": kind})
    if kind == "edge":
        ends = table["edge"].str.split("->", expand=True)
        table = table.assign(source=ends[0], reader=ends[1])
    return table.reset_index(drop=True)
