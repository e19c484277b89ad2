"""One checkpoint, traced: load it, ask `circuits`, keep every number. Printing is elsewhere."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformer_lens import HookedTransformer

from circuits import Circuit, EdgeEffects, Graph, edge_effects, prune
from circuits.errors import InputError
from circuits.head_ablation import HeadEffects, head_effects
from circuits.provenance import provenance
from mechinterp.config import to_json
from mechinterp.runs import Run
from mechinterp.tasks import Measure, Pairs, Task

PAIR_SEED = 1
"""Seed of the traced pairs: the same ones for every checkpoint and every run of a task."""

SCHEMA = 1
"""Version of the JSON's layout; it changes when a field is renamed or removed."""

Ablation = Literal["zero", "mean", "resample", "patch"]


@dataclass(frozen=True)
class Traced:
    """Everything measured on one checkpoint.

    Attributes:
        run: the run it belongs to.
        step: its training step.
        options: ablation, granularity and examples, as asked for.
        diagnostics: the task's own measures, mean and standard error.
        reference_lines: what to read the diagnostics against.
        heads: effect of ablating each head on the loss at the scored positions (nats).
        edges: effect of cutting each edge, likewise.
        circuit: the edges that remain when all that can go has gone.
        provenance: versions, hashes and seeds behind the numbers.
    """

    run: Run
    step: int
    options: dict[str, Any]
    diagnostics: dict[str, Measure]
    reference_lines: dict[str, float]
    heads: HeadEffects
    edges: EdgeEffects
    circuit: Any
    provenance: dict[str, Any]
