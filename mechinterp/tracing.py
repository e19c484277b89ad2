"""One checkpoint, traced: load it, ask `circuits`, keep every number. Printing is elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from transformer_lens import HookedTransformer

from circuits import EdgeEffects, edge_effects, edge_gradients, faithfulness, prune
from circuits.agreement import Agreement, agreement
from circuits.circuit_faithfulness import Faithfulness
from circuits.errors import InputError
from circuits.head_ablation import HeadEffects, head_effects
from circuits.pruning import PrunedCircuit
from mechinterp.findings import Finding, find_mechanisms
from mechinterp.runs import Run
from mechinterp.tasks import Measure, Pairs, Task

PAIR_SEED = 1
"""Seed of the traced pairs: the same ones for every checkpoint and every run of a task."""

BUDGET = 0.05
"""KL (nats) that the pruned circuit may lose at the scored positions, the paper's procedure."""

MEASURED_ON = 64
"""Sequences behind the diagnostics, which score every candidate of each."""

TESTED_ON = 128
"""Sequences behind the mechanisms: with half of them no selector head can be told from the next."""

PRUNED_ON = 32
"""Examples that pruning runs on: it measures whole circuits hundreds of times."""

PRUNING_ROUNDS = 2
"""Measurements of all edges while pruning: 479 fell to 300, and 5 more took 22 edges in a trial."""

HELD_OUT = 96
"""Further examples, at most, that the pruned circuit and the random ones are tried on."""

RANDOM_CIRCUITS = 4
"""Random circuits of the same size that the pruned one is compared with."""

GRADIENT_METHODS = ("eap", "eap-ig-inputs", "eap-ig-activations")
GRADIENT_STEPS = 5
"""Points on the path of the integrated methods, as their authors use."""

Ablation = Literal["zero", "mean", "resample", "patch"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How a checkpoint is traced."""

    ablation: Ablation = "zero"
    granularity: Literal["head", "layer"] = "head"
    examples: int = 256
    device: str = "cpu"
    gradients: bool = False
    """Whether to compare gradient methods with the exact effects."""
    mechanism: str | None = None
    """The only mechanism test to run, in place of everything else."""


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
    parts: "Parts | None"


@dataclass(frozen=True)
class Parts:
    """Which components and connections matter on one checkpoint.

    Attributes:
        heads: effect of ablating each head on the loss at the scored positions (nats).
        edges: effect of cutting each edge, likewise.
        circuit: the edges that are left when all has gone that can go within `BUDGET`, on the
            first `PRUNED_ON` examples.
        faithfulness: what that circuit alone does on the others, beside random circuits; None when
            there are no others.
        gradients: agreement with the exact effects of each gradient method that was asked for.
    """

    heads: HeadEffects
    edges: EdgeEffects
    circuit: PrunedCircuit
    faithfulness: Faithfulness | None
    gradients: dict[str, Agreement]


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
        InputError: no such step, a damaged checkpoint, too many examples, an unknown device, or a
            mechanism that does not fit the task.
    """
    say("loading the checkpoint")
    model, task = load(run, step, options.device), run.task()
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
    parts = None if options.mechanism else _parts(model, task, pairs, options, say)
    return Traced(run, step, options, diagnostics, task.reference_lines(), findings, parts)


def _parts(model: HookedTransformer, task: Task, pairs: Pairs, options: Options, say: Say) -> Parts:
    partner = pairs.corrupt if options.ablation == "patch" else None
    say("ablating heads")
    heads = head_effects(
        model, pairs.clean, "loss", options.ablation, corrupt=partner, scored=task.scored
    )
    say("cutting edges")
    edges = edge_effects(
        model,
        pairs.clean,
        "loss",
        ablation=options.ablation,
        corrupt=partner,
        scored=task.scored,
        granularity=options.granularity,
    )
    agreed = _gradients(model, task, pairs, options, edges, say) if options.gradients else {}
    say("pruning the circuit")
    few, others = slice(PRUNED_ON), slice(PRUNED_ON, PRUNED_ON + HELD_OUT)
    circuit = prune(
        model,
        pairs.clean[few],
        "kl",
        ablation=options.ablation,
        corrupt=None if partner is None else partner[few],
        scored=task.scored,
        granularity=options.granularity,
        budget=BUDGET,
        rounds=PRUNING_ROUNDS,
    )
    if options.examples < PRUNED_ON + 2:
        return Parts(heads, edges, circuit, None, agreed)
    held_out = faithfulness(
        model,
        circuit,
        pairs.clean[others],
        "kl",
        ablation=options.ablation,
        corrupt=None if partner is None else partner[others],
        scored=task.scored,
        n_random=RANDOM_CIRCUITS,
    )
    return Parts(heads, edges, circuit, held_out, agreed)


def _gradients(
    model: HookedTransformer,
    task: Task,
    pairs: Pairs,
    options: Options,
    exact: EdgeEffects,
    say: Say,
) -> dict[str, Agreement]:
    """How well each gradient method agrees with the exact effects on this checkpoint."""
    agreed = {}
    for method in GRADIENT_METHODS:
        say(f"estimating edges by {method}")
        estimated = edge_gradients(
            model,
            pairs.clean,
            "loss",
            corrupt=pairs.corrupt if options.ablation == "patch" else None,
            method=method,
            steps=GRADIENT_STEPS,
            ablation=options.ablation,
            scored=task.scored,
            granularity=options.granularity,
        )
        agreed[method] = agreement(exact, estimated)
    return agreed


def load(run: Run, step: int, device: str = "cpu") -> HookedTransformer:
    """Loads a checkpoint's model in evaluation mode, on a device.

    Raises:
        InputError: the checkpoint is damaged, or torch knows or has no such device.
    """
    model = run.model(step).eval()
    if device == "cpu":
        return model
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!r} cannot be used: {reason}; use cpu") from error
