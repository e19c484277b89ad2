"""What the explorer shows, as plain tables: everything measured on one run, or on two."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Setting:
    """One way of ablating, with all that was measured in this way.

    Attributes:
        ablation: what an ablated output is replaced by.
        granularity: whether the heads of a layer are nodes of their own.
        position: name of the group of source positions that is ablated, or "all".
        edges: `step, edge, source, reader, effect, low, high`.
        heads: `step, head, effect, low, high`; may have no rows.
        births: `component, kind, born, died, band_low, band_high, peak_step, peak_effect`.
        circuits: edges of the pruned circuit at the steps where one was computed.
    """

    ablation: str
    granularity: str
    position: str
    edges: pd.DataFrame
    heads: pd.DataFrame
    births: pd.DataFrame
    circuits: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attention:
    """Mean attention patterns over training.

    Attributes:
        heads: names of the heads.
        labels: name of every position.
        patterns: float array `[step, head, query, key]`, in the order of the run's steps.
    """

    heads: tuple[str, ...]
    labels: tuple[str, ...]
    patterns: np.ndarray


@dataclass(frozen=True)
class RunData:
    """Everything the page shows of one run.

    Attributes:
        name: of the run; shown as it is, whatever characters it holds.
        task: name of the task.
        steps: checkpoints, in order.
        settings: at least one.
        log: the run's own log of metrics: `step` and a column for each quantity and its `_se`.
        reference_lines: values to read the log against, by name.
        compared: which of those lines each quantity is read against.
        tables: further tables by name; see `TABLES`. Any of them may be missing.
        absent: why a table is missing, by its name.
        notes: what to say under a panel, by its name.
        attention: mean attention patterns, if there are any.
        provenance: what decided the numbers; plain JSON values.
    """

    name: str
    task: str
    steps: tuple[int, ...]
    settings: tuple[Setting, ...]
    log: pd.DataFrame
    reference_lines: dict[str, float] = field(default_factory=dict)
    compared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    attention: Attention | None = None
    provenance: dict[str, Any] = field(default_factory=dict)


TABLES = {
    "phases": "phase, start, end",
    "scores": "step, score, component, value, low, high",
    "diagnostics": "step, name, value, se",
    "attribution": "step, source, contribution, low, high",
    "cosines": "step, lag, group, cosine, sign_band",
    "momentum": "lag, momentum",
    "curvature": "step, lambda_max, lambda_min, trace and their errors",
    "agreement": "step, method, spearman, top_k, overlap",
    "overlap": "step_a, step_b, jaccard, null_low, null_high, spearman",
    "hands": "reader, step, before, after",
}
"""The further tables of a run and their columns."""


@dataclass(frozen=True)
class ExplorerData:
    """Content of one page.

    Attributes:
        runs: the run, and one to compare it with if that was asked for.
        command: the command line that rebuilds the page.
    """

    runs: tuple[RunData, ...]
    command: str
