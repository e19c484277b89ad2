"""How many times as fast is it to train runs as one stack, on this machine?"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from mechinterp.config import RunConfig
from mechinterp.model import build_model, on_device
from mechinterp.model_stack import ModelStack
from mechinterp.optimizer import make_optimizer
from mechinterp.tasks import make_task
from mechinterp.training_loop import scored_loss

ROUNDS, STEPS = 3, 3


def stacking_gain(configs: Sequence[RunConfig], device: str = "cpu") -> float:
    """Times updates of separate models against updates of their stack, in turn.

    Costs `ROUNDS` times `STEPS` steps of every run each way, and as many to warm up.

    Args:
        configs: of one kind, see `mechinterp.stack_kind`.
        device: where they would train.

    Returns:
        Time of the separate updates over that of the stacked ones; the median of the rounds.
    """
    tasks = [make_task(config.task) for config in configs]
    training = configs[0].training
    scored = torch.tensor(tasks[0].scored)
    models = [on_device(build_model(c.model, tasks[0].d_vocab), device) for c in configs]
    optimizers = [make_optimizer(model, training) for model in models]
    stack = ModelStack(models, training, scored)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.stack([task.batch(0, training.batch, generator) for task in tasks]).to(device)

    def separate() -> None:
        for model, optimizer, own in zip(models, optimizers, tokens, strict=True):
            optimizer.zero_grad(set_to_none=True)
            scored_loss(model, own, scored, training.forward).backward()
            optimizer.step()

    def together() -> None:
        stack.update(tokens, training.lr)

    for warm_up in (separate, together):
        _seconds(warm_up, tokens)
    return statistics.median(
        _seconds(separate, tokens) / _seconds(together, tokens) for _ in range(ROUNDS)
    )


def _seconds(work: Callable[[], None], tokens: Int[Tensor, "run batch pos"]) -> float:
    started = time.perf_counter()
    for _ in range(STEPS):
        work()
    if tokens.is_cuda:  # Kernels are launched ahead of the clock.
        torch.cuda.synchronize(tokens.device)
    return time.perf_counter() - started
