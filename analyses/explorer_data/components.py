"""What every component does at a checkpoint: where heads look, and who writes the answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from analyses.explorer_data.tables import Attention
from analyses.formation.measuring import drawn_pairs
from circuits.attention_by_group import attention_patterns
from circuits.direct_attribution import logit_attribution
from circuits.errors import InputError
from mechinterp.config import TaskConfig
from mechinterp.tasks import Task

FEW = 8
"""A group of at most this many positions gives its name to them."""


@dataclass(frozen=True)
class ComponentMeasure:
    """Mean attention patterns, and what every source adds to the answer's logit, directly.

    The contributions are those to the logit of the next token over the mean logit, averaged over
    the task's scored positions, with the final norm's scale as it was on the whole stream.

    Attributes:
        task: what the run was trained on.
        examples: clean sequences.
    """

    task: TaskConfig
    examples: int

    def __call__(self, model: Any) -> pd.DataFrame:
        """Measures a model.

        Returns:
            Rows of `part` "attention" (`name` of the head, `query` and `key` positions, `value`) or
            "attribution" (`name` of the source, `value` in logits, `low`, `high`). Models whose
            logits are not a sum over sources have no rows of the second kind.
        """
        task, pairs = drawn_pairs(self.task, self.examples)
        read = pairs.clean[:, : max(task.scored) + 1]
        with torch.inference_mode():
            looks = attention_patterns(model, read, {"all": tuple(range(read.shape[1]))})
            rows = [_pattern_rows(head, pattern) for head, pattern in looks.mean.items()]
            try:
                shares = logit_attribution(model, pairs.clean, scored=task.scored).table
            except InputError:
                return pd.concat(rows, ignore_index=True)
        renamed = shares.rename(columns={"source": "name", "contribution": "value"})
        return pd.concat([*rows, renamed.assign(part="attribution")], ignore_index=True)


def attention_of(rows: pd.DataFrame, labels: tuple[str, ...]) -> Attention | None:
    """Puts the attention rows of all checkpoints into one array; None where there are none.

    Args:
        rows: what `ComponentMeasure` gave, with `step`.
        labels: names of the positions.
    """
    mine = rows[rows["part"] == "attention"]
    if mine.empty:
        return None
    heads = tuple(dict.fromkeys(mine["name"]))
    n_steps, n_pos = mine["step"].nunique(), int(mine["query"].max()) + 1
    ordered = mine.assign(head=mine["name"].map({name: i for i, name in enumerate(heads)}))
    ordered = ordered.sort_values(["step", "head", "query", "key"])
    patterns = ordered["value"].to_numpy(dtype=np.float64)
    return Attention(heads, labels[:n_pos], patterns.reshape(n_steps, len(heads), n_pos, n_pos))


def attribution_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Gives `step, source, contribution, low, high`; no rows where none could be measured."""
    mine = rows[rows["part"] == "attribution"]
    columns = {"name": "source", "value": "contribution"}
    kept = pd.DataFrame(mine[["step", "name", "value", "low", "high"]]).rename(columns=columns)
    return kept.reset_index(drop=True)


def position_labels(task: Task) -> tuple[str, ...]:
    """Names every position that a model reads: its number, and the group it is in if that is small.

    Of several groups that hold a position, the first one names it.
    """
    labels = {place: str(place) for place in range(max(task.scored) + 1)}
    for name, group in reversed(task.positions.items()):
        if len(group) > FEW:
            continue
        for order, place in enumerate(group):
            if place in labels:
                labels[place] = f"{place} {name}{order + 1 if len(group) > 1 else ''}"
    return tuple(labels.values())


def _pattern_rows(head: str, pattern: torch.Tensor) -> pd.DataFrame:
    grid = pattern.double().cpu().numpy()
    query, key = np.indices(grid.shape)
    return pd.DataFrame(
        {
            "part": "attention",
            "name": head,
            "query": query.ravel(),
            "key": key.ravel(),
            "value": grid.ravel(),
        }
    )
