"""The training loop: batches in, checkpoints and metrics out, the same bits after a resume."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.errors import InputError
from mechinterp.config import Forward, RunConfig, TrainingConfig, validate
from mechinterp.gradient_noise import add_noise
from mechinterp.model import build_model, load_weights, on_device, weights_of
from mechinterp.optimizer import (
    learning_rate,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    set_learning_rate,
)
from mechinterp.runs import RunWriter
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.schedule import checkpoint_steps
from mechinterp.scored_logits import scored_logits, whole_logits
from mechinterp.stopping import Diverged, Reason, Stopper, StopRule
from mechinterp.tasks import Task, make_task

Row = dict[str, int | float]
"""One row of metrics: the step, the mean training loss, and each diagnostic with its error."""

Report = Callable[[int, Row], None]
"""Called with the step and the newest row of metrics."""


NO_RULE = StopRule()

FORWARD = {"scored": scored_logits, "whole": whole_logits}


def scored_loss(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    scored: Int[Tensor, " scored"],
    forward: Forward = "scored",
) -> Float[Tensor, ""]:
    """Gives the mean next-token cross-entropy (nats) at the scored positions.

    Args:
        model: any HookedTransformer.
        tokens: full sequences, the target of the last scored position included.
        scored: positions whose logits count; position p predicts token p + 1.
        forward: how the logits are computed; see `TrainingConfig.forward`.
    """
    logits = FORWARD[forward](model, tokens, scored)
    targets = tokens[:, scored + 1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass
class TrainingState:
    """What changes while training: the model, its optimizer, and the loss since the last row."""

    model: HookedTransformer
    optimizer: torch.optim.AdamW
    step: int
    loss_sum: Tensor
    loss_count: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """The part of the state that the weights do not hold, for resuming."""
        moments = optimizer_state(self.model, self.optimizer)
        return {**moments, "loss_sum": self.loss_sum, "loss_count": self.loss_count}


def train(
    config: RunConfig,
    path: Path,
    *,
    resume: bool = False,
    command: str = "",
    report: Report | None = None,
    say: Callable[[str], None] = lambda _: None,
    stop: StopRule = NO_RULE,
    device: str = "cpu",
) -> Reason:
    """Trains one run from its configuration to its last step, or until a rule stops it.

    The weights are a pure function of the configuration, the machine and the thread count: a run
    that was killed and resumed ends with the same bits as one that was not.

    Args:
        config: everything that decides the run.
        path: the run's directory; it must not exist yet unless `resume` is set.
        resume: continue an existing run from its newest intact checkpoint.
        command: recorded in run.json, so that the run can be made again.
        report: told about every row of metrics.
        say: told what somebody who continues a run should know, a line at a time.
        stop: what ends the run before its last step; the step it ends at is kept.
        device: where to train: cpu, cuda, cuda:1, ... The initial weights and the batches are the
            same everywhere.

    Returns:
        What ended it: "budget" or "converged".

    Raises:
        Diverged: the loss is no longer finite, or exploded by the rule.
        InputError: the configuration is refused, the run exists or is in use, or there is no such
            device.
    """
    validate(config)
    task = make_task(config.task)
    stopper = Stopper(stop, config.task)
    if task.n_tokens - 1 > config.model.n_ctx:
        raise InputError(
            f"n_ctx is {config.model.n_ctx}, the task's sequences need {task.n_tokens - 1}; "
            "raise --n-ctx"
        )
    task.evaluation(config.training.eval_examples)  # refuses what the task cannot give
    model = on_device(build_model(config.model, task.d_vocab), device)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    state = TrainingState(model, make_optimizer(model, config.training), 0, zero, zero.clone())
    n_params = sum(p.numel() for p in model.parameters())
    with RunWriter.open(path, config, n_params, resume, command) as run:
        resumed = _restore(state, run)
        if resume and not resumed:
            say(f"there is nothing to resume at {path}: starting from step 0")
        for note in run.notes:
            say(note)
        for row in read_rows(path / METRICS):
            stopper.see(row)
        return _loop(state, task, config, run, report, stopper, state.step if resumed else -1)


def _restore(state: TrainingState, run: RunWriter) -> bool:
    """Takes up the newest intact checkpoint, if there is one."""
    point = run.resume_point()
    if point is None:
        run.start_from(-1)
        return False
    state.step, weights, stored = point
    load_weights(state.model, weights)
    restore_optimizer(state.model, state.optimizer, stored)
    state.loss_sum.copy_(stored["loss_sum"])
    state.loss_count.copy_(stored["loss_count"])
    run.start_from(state.step)
    return True


def _loop(
    state: TrainingState,
    task: Task,
    config: RunConfig,
    run: RunWriter,
    report: Report | None,
    stopper: Stopper,
    written: int,
) -> Reason:
    """Trains to the last step; `written` is the step whose row and checkpoint already exist."""
    training = config.training
    kept = set(checkpoint_steps(config.checkpoints, training.steps))
    generator = torch.Generator().manual_seed(training.data_seed)
    scored = torch.tensor(task.scored)
    while True:
        # A checkpoint is written after its row of metrics, so a resumed run starts past both.
        if state.step != written:
            if state.step % training.eval_every == 0 or state.step == training.steps:
                row = measured_row(state, task, training)
                run.log(row)
                stopper.see(row)
                if report:
                    report(state.step, row)
            if state.step in kept or stopper.converged:
                run.save(state.step, weights_of(state.model), state.tensors())
        if stopper.converged or state.step >= training.steps:
            return "converged" if stopper.converged else "budget"
        tokens = task.batch(state.step, training.batch, generator)
        _update(state, tokens, scored, training)


def _update(
    state: TrainingState,
    tokens: Int[Tensor, "batch pos"],
    scored: Int[Tensor, " scored"],
    training: TrainingConfig,
) -> None:
    set_learning_rate(state.optimizer, learning_rate(training, state.step))
    tokens = tokens.to(state.loss_sum.device, non_blocking=True)
    loss = scored_loss(state.model, tokens, scored, training.forward)
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if training.gradient_noise:
        add_noise(state.model, training.gradient_noise, training.data_seed, state.step)
    if training.clip is not None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), training.clip)
    state.optimizer.step()
    # Accumulated as a tensor: reading the loss every step would stall an accelerator.
    state.loss_sum += loss.detach()
    state.loss_count += 1
    state.step += 1


def measured_row(state: TrainingState, task: Task, training: TrainingConfig) -> Row:
    """One row of metrics: the mean training loss since the last row, and the quick diagnostics."""
    row: Row = {"step": state.step}
    if state.loss_count > 0:
        row["train_loss"] = (state.loss_sum / state.loss_count).item()
        if not torch.isfinite(state.loss_sum):
            raise Diverged(
                f"training diverged before step {state.step}: the loss is {row['train_loss']}; "
                "lower --lr or set --clip, and start a new run"
            )
    with torch.inference_mode():
        for name, measure in task.diagnostics(state.model, training.eval_examples, "quick").items():
            row[name], row[f"{name}_se"] = measure
    state.loss_sum.zero_()
    state.loss_count.zero_()
    return row
