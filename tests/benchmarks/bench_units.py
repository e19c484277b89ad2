"""What do the units cost that docs/scale.md adds up, on this machine or on a GPU?

Prints core-seconds of a training step and of an exact trace at both papers' scales, bytes of a
checkpoint, and how many operations a step starts: on a GPU a small model waits for these to be
launched. `PYTHONPATH=. python tests/benchmarks/bench_units.py cuda` measures them on a GPU.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from circuits import edge_effects
from mechinterp.config import (
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.model import build_model, on_device, weights_of
from mechinterp.optimizer import make_optimizer
from mechinterp.stacking_gain import stacking_gain
from mechinterp.tasks import make_task
from mechinterp.training_loop import scored_loss

UNITS = {
    "marginals": RunConfig(
        MarginalsConfig(k=20, n_b=1000),
        ModelConfig(n_layers=4, n_heads=4, d_model=128),
        TrainingConfig(batch=128),
    ),
    "chains": RunConfig(
        MarkovChainsConfig(n_states=10, k=64, length=128),
        ModelConfig(2, 1, 64, normalization="none", positions="rotary", n_ctx=128),
        TrainingConfig(batch=64, weight_decay=0.0),
    ),
}
ROUNDS, STEPS, EXAMPLES, STACKED = 5, 4, 256, 8


class Operations(TorchDispatchMode):
    """Counts what torch computes while it is entered; views of tensors compute nothing."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += not func.is_view
        return func(*args, **(kwargs or {}))


def seconds(work: Callable[[], object], device: str) -> float:
    """Times one call, up to the end of what it launched."""
    started = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def units(name: str, device: str) -> None:
    """Measures and prints the units of one paper."""
    config = UNITS[name]
    task = make_task(config.task)
    model = on_device(build_model(config.model, task.d_vocab), device)
    optimizer = make_optimizer(model, config.training)
    scored = torch.tensor(task.scored)
    batch = task.batch(0, config.training.batch, torch.Generator().manual_seed(0)).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        scored_loss(model, batch, scored).backward()
        optimizer.step()

    step()
    with Operations() as operations:
        step()
    steps = [seconds(lambda: [step() for _ in range(STEPS)], device) / STEPS for _ in range(ROUNDS)]
    clean = task.pairs(EXAMPLES, torch.Generator().manual_seed(1)).clean.to(device)
    arguments = {"metric": "loss", "ablation": "mean", "scored": task.scored}
    trace = seconds(lambda: edge_effects(model, clean, **arguments), device)
    size = sum(tensor.nbytes for tensor in weights_of(model).values())
    middle, low, high = statistics.median(steps), min(steps), max(steps)
    print(f"{name} step: {middle:.3f} s ({low:.3f} to {high:.3f}), {operations.n} operations")
    print(f"{name} trace of {EXAMPLES} examples: {trace:.1f} s; checkpoint {size / 1e6:.2f} MB")
    gain = stacking_gain([config] * STACKED, device)
    print(f"{name}: {STACKED} runs stacked are {gain:.2f} times as fast as one after another")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for paper in UNITS:
        units(paper, sys.argv[1] if len(sys.argv) > 1 else "cpu")
