"""One checkpoint, traced: load it, ask `circuits`, keep every number. Printing is elsewhere."""

from dataclasses import dataclass

import torch
from transformer_lens import HookedTransformer

from mechinterp.findings import Finding, find_mechanisms
from mechinterp.memory_budget import refuse_what_does_not_fit, share_out
from mechinterp.memory_needs import Shape
from mechinterp.model import on_device
from mechinterp.runs import Run
from mechinterp.tasks import Measure, Pairs, Task
from mechinterp.trace_parts import (
    BUDGET,
    HELD_OUT,
    PRUNED_ON,
    Ablation,
    Examples,
    Options,
    Parts,
    Say,
    measure_parts,
)

__all__ = [
    "BUDGET",
    "HELD_OUT",
    "MEASURED_ON",
    "PAIR_SEED",
    "PRUNED_ON",
    "TESTED_ON",
    "Ablation",
    "Options",
    "Parts",
    "Traced",
    "load",
    "trace",
]

PAIR_SEED = 1
"""Seed of the traced pairs: the same ones for every checkpoint and every run of a task."""

MEASURED_ON = 64
"""Sequences behind the diagnostics, which score every candidate of each."""

TESTED_ON = 128
"""Sequences behind the mechanisms: with half of them no selector head can be told from the next."""


@dataclass(frozen=True)
class Traced:
    """Everything measured on one checkpoint.

    Attributes:
        run: the run it belongs to.
        step: its training step.
        options: how it was traced.
        diagnostics: the task's own measures, mean and standard error.
        reference_lines: what to read the diagnostics against.
        findings: the mechanism tests that fit the task.
        parts: heads, edges and circuit; None when a single mechanism was asked for.
    """

    run: Run
    step: int
    options: Options
    diagnostics: dict[str, Measure]
    reference_lines: dict[str, float]
    findings: list[Finding]
    parts: Parts | None


def trace(run: Run, step: int, options: Options, say: Say = lambda _: None) -> Traced:
    """Traces one checkpoint: the task's diagnostics, every head, every edge, and what is enough.

    The loss whose change is an effect is the mean next-token cross-entropy (nats) at the task's
    scored positions, on clean sequences; `patch` takes replacements from their corrupt partners.

    Args:
        run: the run.
        step: one of its steps.
        options: ablation, granularity, number of examples, device.
        say: told what is being done, before each part.

    Returns:
        All the numbers.

    Raises:
        InputError: no such step, a damaged checkpoint, too many examples, an unknown device, a
            mechanism that does not fit the task, or a memory budget that is too small.
    """
    say("loading the checkpoint")
    task = run.task()
    shape = _shape(run, task)
    refuse_what_does_not_fit(shape, options)
    model = load(run, step, options.device)
    drawn = task.pairs(options.examples, torch.Generator().manual_seed(PAIR_SEED))
    pairs = Pairs(drawn.clean.to(options.device), drawn.corrupt.to(options.device))
    say("measuring the diagnostics")
    with torch.inference_mode():
        diagnostics = task.diagnostics(model, min(options.examples, MEASURED_ON), "full")
    say("testing mechanisms")
    tested = Pairs(pairs.clean[:TESTED_ON], pairs.corrupt[:TESTED_ON])
    findings = find_mechanisms(
        model, task, tested, diagnostics, options.mechanism, options.ablation
    )
    parts = None
    if options.mechanism is None:
        partner = pairs.corrupt if options.ablation == "patch" else None
        examples = Examples(pairs.clean, partner, task.scored)
        parts = measure_parts(model, examples, options, say, share_out(shape, options))
    return Traced(run, step, options, diagnostics, task.reference_lines(), findings, parts)


def _shape(run: Run, task: Task) -> Shape:
    """What decides how much memory a trace of a run's checkpoint takes."""
    model = run.config.model
    return Shape(
        n_layers=model.n_layers,
        n_heads=model.n_heads,
        d_head=model.d_head or model.d_model // model.n_heads,
        d_model=model.d_model,
        d_mlp=0 if model.attn_only else (model.d_mlp or 4 * model.d_model),
        d_vocab=task.d_vocab,
        n_ctx=model.n_ctx,
        gated=False,
        n_pos=max(task.scored) + 1,
        n_scored=len(task.scored),
        copies=2,
        tested_on=TESTED_ON,
    )


def load(run: Run, step: int, device: str = "cpu") -> HookedTransformer:
    """Loads a checkpoint's model in evaluation mode, on a device.

    Raises:
        InputError: the checkpoint is damaged, or torch knows or has no such device.
    """
    return on_device(run.model(step).eval(), device)
