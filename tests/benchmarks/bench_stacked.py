"""Is one stacked run of several models faster than the models one after another?

Prints the time of N separate updates over the time of one stacked update, for several sizes. Above
1, stacking wins on this machine.
"""

import dataclasses
import statistics
import time

import torch

from mechinterp.config import MarginalsConfig, ModelConfig, TrainingConfig
from mechinterp.model import build_model
from mechinterp.optimizer import make_optimizer
from mechinterp.stacked_training import ModelStack
from mechinterp.tasks import make_task
from mechinterp.training_loop import scored_loss

N, ROUNDS, STEPS = 4, 5, 8


def ratio(model: ModelConfig, batch: int) -> list[float]:
    """Times both ways in turn."""
    training = TrainingConfig(batch=batch)
    task = make_task(MarginalsConfig(k=5, n_b=200))
    scored = torch.tensor(task.scored)
    models = [build_model(dataclasses.replace(model, init_seed=i), task.d_vocab) for i in range(N)]
    stack = ModelStack(models, training, scored)
    optimizers = [make_optimizer(m, training) for m in models]
    generator = torch.Generator().manual_seed(0)
    batches = torch.stack([task.batch(0, batch, generator) for _ in range(N)])

    def separate() -> None:
        for one, optimizer, tokens in zip(models, optimizers, batches, strict=True):
            optimizer.zero_grad(set_to_none=True)
            scored_loss(one, tokens, scored).backward()
            optimizer.step()

    def seconds(work) -> float:
        started = time.perf_counter()
        for _ in range(STEPS):
            work()
        return time.perf_counter() - started

    stacked = lambda: stack.update(batches, 1e-3)  # noqa: E731
    seconds(separate), seconds(stacked)
    return [seconds(separate) / seconds(stacked) for _ in range(ROUNDS)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for d_model, batch in ((16, 16), (32, 32), (64, 64)):
        found = ratio(ModelConfig(n_layers=2, n_heads=4, d_model=d_model, n_ctx=16), batch)
        middle, low, high = statistics.median(found), min(found), max(found)
        size = f"{N} runs, d_model {d_model}, batch {batch}"
        print(f"{size}: stacked is {middle:.2f} times as fast ({low:.2f} to {high:.2f})")
