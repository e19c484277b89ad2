"""Runs of the same shape trained as one: their weights stacked, one forward and backward pass.

For small models on an accelerator, which a single run leaves idle; what it gives on a machine is
told by tests/benchmarks/bench_stacked.py.
"""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformer_lens import HookedTransformer

from circuits.errors import InputError
from mechinterp.config import RunConfig, TrainingConfig, validate
from mechinterp.model import build_model, load_weights, weights_of
from mechinterp.optimizer import learning_rate, make_optimizer
from mechinterp.runs import RunWriter
from mechinterp.schedule import checkpoint_steps
from mechinterp.tasks import Task, make_task
from mechinterp.training_loop import FORWARD, TrainingState, measured_row


def train_stacked(configs: Sequence[RunConfig], paths: Sequence[Path], command: str = "") -> None:
    """Trains several runs at once; each is written as if it had been trained by itself.

    Equal to separate training up to rounding, which training blows up in the long run. An
    interrupted stack is taken up run by run, by `mechinterp.training_loop.train`.

    Args:
        configs: what decides the runs; they may differ in seeds and in the task.
        paths: a new directory for each.
        command: recorded with each run.

    Raises:
        InputError: the runs differ in more than that, use what stacks cannot (rates of their own,
            clipping, gradient noise), a directory exists, or a loss is no longer finite.
    """
    _refuse_unequal(configs)
    tasks = [make_task(config.task) for config in configs]
    if len({(task.n_tokens, task.d_vocab, tuple(task.scored)) for task in tasks}) != 1:
        raise InputError("the runs' sequences differ in length or tokens; stack those that agree")
    models = [build_model(config.model, tasks[0].d_vocab) for config in configs]
    stack = ModelStack(models, configs[0].training, torch.tensor(tasks[0].scored))
    n_params = sum(p.numel() for p in models[0].parameters())
    with ExitStack() as open_runs:
        writers = [
            open_runs.enter_context(RunWriter.open(path, config, n_params, False, command))
            for path, config in zip(paths, configs, strict=True)
        ]
        for writer in writers:
            writer.start_from(-1)
        _loop(stack, tasks, configs, writers)


def _refuse_unequal(configs: Sequence[RunConfig]) -> None:
    if not configs:
        raise InputError("there are no runs to stack")
    for config in configs:
        validate(config)
    shapes = {
        (
            dataclasses.replace(config.model, init_seed=0),
            dataclasses.replace(config.training, data_seed=0),
            config.checkpoints,
        )
        for config in configs
    }
    training = configs[0].training
    if len(shapes) > 1:
        raise InputError("stacked runs may differ in seeds and in the task only; train them apart")
    if training.clip is not None or training.lr_factor or training.gradient_noise:
        raise InputError("clip, lr_factor and gradient_noise go run by run; train these runs apart")


class _Scored(nn.Module):
    """A model's logits at the scored positions, as a module of its own."""

    def __init__(self, model: HookedTransformer, training: TrainingConfig, scored: Tensor) -> None:
        super().__init__()
        self.model, self._forward, self._scored = model, FORWARD[training.forward], scored

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch scored d_vocab"]:
        return self._forward(self.model, tokens, self._scored)


class ModelStack:
    """The weights of all runs with a leading axis for the run, and their common optimizer."""

    def __init__(
        self, models: list[HookedTransformer], training: TrainingConfig, scored: Tensor
    ) -> None:
        self.models = models
        self.scored = scored
        stacked, _ = stack_module_state([_Scored(m, training, scored) for m in models])
        self.weights = {name: nn.Parameter(value.detach()) for name, value in stacked.items()}
        body = _Scored(models[0], training, scored)
        # The model's own tensors are replaced by a run's in each call.
        self._call = vmap(lambda weights, tokens: functional_call(body, weights, (tokens,)))
        self._optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=training.lr,
            betas=(training.beta1, training.beta2),
            eps=training.eps,
            weight_decay=training.weight_decay,
            fused=True,
        )

    def update(self, tokens: Int[Tensor, "run batch pos"], rate: float) -> Float[Tensor, " run"]:
        """Makes one step of every run and gives their losses (nats)."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        # The fused attention kernel of CPUs knows no stacks.
        with sdpa_kernel(SDPBackend.MATH):
            log_probs = self._call(self.weights, tokens).log_softmax(-1)
        targets = tokens[:, :, self.scored + 1, None]
        losses = -log_probs.gather(-1, targets).mean((1, 2, 3))
        self._optimizer.zero_grad(set_to_none=True)
        # Each run's weights are in its own loss alone, so the sum has the gradient of each.
        losses.sum().backward()
        self._optimizer.step()
        return losses.detach()

    def unstack(self, index: int) -> tuple[HookedTransformer, dict[str, Tensor]]:
        """Gives one run's model as it is now, and its moments as `optimizer_state` names them."""
        model = self.models[index]
        own = {name.removeprefix("model."): value for name, value in self.weights.items()}
        load_weights(model, {**weights_of(model), **{n: v[index] for n, v in own.items()}})
        moments = {}
        for name, parameter in own.items():
            for kind, value in self._optimizer.state[parameter].items():
                moments[f"{kind}/{name}"] = value if value.ndim == 0 else value[index].clone()
        return model, moments


def _loop(
    stack: ModelStack, tasks: Sequence[Task], configs: Sequence[RunConfig], writers: list[RunWriter]
) -> None:
    training = configs[0].training
    kept = set(checkpoint_steps(configs[0].checkpoints, training.steps))
    generators = [torch.Generator().manual_seed(c.training.data_seed) for c in configs]
    sums, count = (
        torch.zeros(len(configs), dtype=torch.float64),
        torch.zeros((), dtype=torch.float64),
    )
    for step in range(training.steps + 1):
        measured = step % training.eval_every == 0 or step == training.steps
        if measured or step in kept:
            for index, (task, run) in enumerate(zip(tasks, writers, strict=True)):
                model, moments = stack.unstack(index)
                optimizer = make_optimizer(model, training)
                state = TrainingState(model, optimizer, step, sums[index].clone(), count.clone())
                if measured:
                    run.log(measured_row(state, task, training))
                if step in kept:
                    sums_now = {"loss_sum": state.loss_sum, "loss_count": state.loss_count}
                    run.save(step, weights_of(model), {**moments, **sums_now})
        if measured:
            sums.zero_()
            count.zero_()
        if step == training.steps:
            return
        batches = [
            task.batch(step, training.batch, generator)
            for task, generator in zip(tasks, generators, strict=True)
        ]
        sums += stack.update(torch.stack(batches), learning_rate(training, step))
        count += 1
