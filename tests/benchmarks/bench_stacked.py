"""Is one stacked run of several models faster than the models one after another?

Prints the time of N separate updates over the time of one stacked update, for several sizes. Above
1, stacking wins on this machine; `sweep --stack` asks the same before it stacks.
"""

import statistics

import torch

from mechinterp.config import MarginalsConfig, ModelConfig, RunConfig, TrainingConfig
from mechinterp.stacking_gain import stacking_gain

N, ROUNDS = 4, 5


def config(d_model: int, batch: int, seed: int) -> RunConfig:
    """One of the runs."""
    return RunConfig(
        MarginalsConfig(k=5, n_b=200),
        ModelConfig(n_layers=2, n_heads=4, d_model=d_model, n_ctx=16, init_seed=seed),
        TrainingConfig(batch=batch, data_seed=seed),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for d_model, batch in ((16, 16), (32, 32), (64, 64)):
        runs = [config(d_model, batch, seed) for seed in range(N)]
        found = [stacking_gain(runs) for _ in range(ROUNDS)]
        middle, low, high = statistics.median(found), min(found), max(found)
        size = f"{N} runs, d_model {d_model}, batch {batch}"
        print(f"{size}: stacked is {middle:.2f} times as fast ({low:.2f} to {high:.2f})")
