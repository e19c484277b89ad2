"""What a sweep will cost, from a few steps of each kind of run on this machine."""

import dataclasses
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

from mechinterp.config import CheckpointConfig, RunConfig, TrainingConfig
from mechinterp.schedule import checkpoint_steps
from mechinterp.sweep.planning import Planned
from mechinterp.sweep.spec import Keep
from mechinterp.training_loop import train

TRIAL = 30
"""Steps that are timed of each kind of run, after as many that are not."""


def estimates(runs: tuple[Planned, ...], keep: Keep, threads: int) -> pd.DataFrame:
    """Estimates the time and the disk that runs take, were none stopped early.

    Runs that differ in seeds, steps and rates only are timed once. With `keep` "window" the disk
    is what the checkpoints take before they are thinned.

    Args:
        runs: the runs.
        keep: which checkpoints stay.
        threads: CPU threads of a run.

    Returns:
        A row for each run: `run`, `steps`, `seconds`, `bytes`.
    """
    torch.set_num_threads(threads)
    costs: dict[RunConfig, tuple[float, float, int]] = {}
    rows = []
    for run in runs:
        kind = _kind(run.config)
        if kind not in costs:
            costs[kind] = _timed(kind)
        step, row, size = costs[kind]
        training = run.config.training
        saves = len(checkpoint_steps(run.config.checkpoints, training.steps))
        n_rows = training.steps / training.eval_every + 1
        rows.append({
            "run": run.name,
            "steps": training.steps,
            "seconds": step * training.steps + row * n_rows,
            "bytes": int(0 if keep == "metrics" else size * saves) + 1000 * int(n_rows),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _kind(config: RunConfig) -> RunConfig:
    """What decides the cost of a step: everything but seeds, rates and lengths of training."""
    plain = TrainingConfig(
        steps=2 * TRIAL,
        batch=config.training.batch,
        clip=config.training.clip,
        gradient_noise=config.training.gradient_noise,
        forward=config.training.forward,
        eval_every=2 * TRIAL,
        eval_examples=config.training.eval_examples,
    )
    model = dataclasses.replace(config.model, init_seed=0)
    seedless = {n: 0 for n in ("mapping_seed", "chain_seed") if hasattr(config.task, n)}
    task = dataclasses.replace(config.task, **seedless)
    return RunConfig(task, model, plain, CheckpointConfig(save_every=0, save_log=0))


def _timed(config: RunConfig) -> tuple[float, float, int]:
    """Seconds of a step and of a row of metrics, and bytes of a checkpoint."""
    half, no_rows = _seconds(config, TRIAL), 2
    whole = _seconds(config, 2 * TRIAL)
    step = max(whole[0] - half[0], 0.0) / TRIAL
    return step, max(half[0] - TRIAL * step, 0.0) / no_rows, whole[1]


def _seconds(config: RunConfig, steps: int) -> tuple[float, int]:
    training = dataclasses.replace(config.training, steps=steps, eval_every=steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial"
        started = time.perf_counter()
        train(dataclasses.replace(config, training=training), path)
        seconds = time.perf_counter() - started
        file = path / f"step_{steps}" / "model.safetensors"
        return seconds, file.stat().st_size
