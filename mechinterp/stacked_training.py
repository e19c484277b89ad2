"""Runs of the same shape trained as one, each written as if it had been trained by itself.

For small models, which leave a core or an accelerator idle; what it gives on a machine is told by
tests/benchmarks/bench_stacked.py.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mechinterp.config import RunConfig
from mechinterp.model import build_model, on_device, weights_of
from mechinterp.model_stack import ModelStack
from mechinterp.optimizer import learning_rate, make_optimizer
from mechinterp.runs import RunWriter
from mechinterp.schedule import checkpoint_steps
from mechinterp.stack_kind import refuse_unequal
from mechinterp.stopping import Diverged, Reason, Stopper, StopRule
from mechinterp.tasks import Task, make_task
from mechinterp.training_loop import NO_RULE, TrainingState, measured_row


@dataclass(frozen=True)
class Ending:
    """How a run of a stack ended: why, and what was wrong if it diverged."""

    reason: Reason
    detail: str = ""


@dataclass
class _Member:
    """One run of a stack: what it is trained on, where it is written, and how it ended."""

    config: RunConfig
    task: Task
    writer: RunWriter
    stopper: Stopper
    generator: torch.Generator
    ending: Ending | None = None


def train_stacked(
    configs: Sequence[RunConfig],
    paths: Sequence[Path],
    command: str = "",
    stop: StopRule = NO_RULE,
    device: str = "cpu",
) -> list[Ending]:
    """Trains several runs at once.

    Equal to separate training up to rounding, which training blows up in the long run. An
    interrupted stack is taken up run by run, by `mechinterp.training_loop.train`. A run that ends
    early is written no further; the others go on.

    Args:
        configs: what decides the runs; they may differ in seeds and in the task.
        paths: a new directory for each.
        command: recorded with each run.
        stop: what ends a run before its last step.
        device: where to train.

    Returns:
        How each run ended.

    Raises:
        InputError: the runs differ in more than that, use what stacks cannot (rates of their own,
            clipping, gradient noise), or a directory exists.
    """
    refuse_unequal(configs)
    tasks = [make_task(config.task) for config in configs]
    stoppers = [Stopper(stop, config.task) for config in configs]
    models = [on_device(build_model(c.model, tasks[0].d_vocab), device) for c in configs]
    stack = ModelStack(models, configs[0].training, torch.tensor(tasks[0].scored))
    n_params = sum(p.numel() for p in models[0].parameters())
    with ExitStack() as open_runs:
        members = []
        for config, task, path, stopper in zip(configs, tasks, paths, stoppers, strict=True):
            writer = open_runs.enter_context(RunWriter.open(path, config, n_params, False, command))
            writer.start_from(-1)
            generator = torch.Generator().manual_seed(config.training.data_seed)
            members.append(_Member(config, task, writer, stopper, generator))
        return _loop(stack, members, device)


def _loop(stack: ModelStack, members: list[_Member], device: str) -> list[Ending]:
    training = members[0].config.training
    kept = set(checkpoint_steps(members[0].config.checkpoints, training.steps))
    sums = torch.zeros(len(members), dtype=torch.float64, device=device)
    count = torch.zeros((), dtype=torch.float64, device=device)
    for step in range(training.steps + 1):
        measured = step % training.eval_every == 0 or step == training.steps
        if measured or step in kept:
            for index, member in enumerate(members):
                if member.ending is None:
                    model, moments = stack.unstack(index)
                    optimizer = make_optimizer(model, training)
                    state = TrainingState(
                        model, optimizer, step, sums[index].clone(), count.clone()
                    )
                    _write(member, state, moments, measured, step in kept)
        if measured:
            sums.zero_()
            count.zero_()
        if step == training.steps or all(member.ending for member in members):
            break
        batches = [m.task.batch(step, training.batch, m.generator) for m in members]
        tokens = torch.stack(batches).to(device, non_blocking=True)
        sums += stack.update(tokens, learning_rate(training, step))
        count += 1
    return [member.ending or Ending("budget") for member in members]


def _write(
    member: _Member, state: TrainingState, moments: dict[str, Tensor], measured: bool, kept: bool
) -> None:
    """Writes what one run has to keep of this step, and notes whether the run ends here."""
    since = {"loss_sum": state.loss_sum, "loss_count": state.loss_count}
    try:
        if measured:
            row = measured_row(state, member.task, member.config.training)
            member.writer.log(row)
            member.stopper.see(row)
    except Diverged as error:
        member.ending = Ending("diverged", str(error))
        return
    if member.stopper.converged:
        member.ending = Ending("converged")
    if kept or member.stopper.converged:
        member.writer.save(state.step, weights_of(state.model), {**moments, **since})
