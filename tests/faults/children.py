"""Processes to kill, each forked in some hundredths of a second from one that has torch loaded."""

import contextlib
import dataclasses
import functools
import json
import multiprocessing
import multiprocessing.forkserver
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.runs import Run
from mechinterp.tracing import Options, trace
from mechinterp.training_loop import train

LOADED = (
    "mechinterp.training_progress",
    "mechinterp.trace_report",
    "analyses.phases",
    "analyses.plateau",
    "analyses.command",
    "mechinterp.sweep.one_run",
    "mechinterp.sweep.command",
    "mechinterp.train",
    "mechinterp.trace",
)


@functools.cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED))
    return context


def start(action: Callable[..., None], *arguments: Any) -> Any:
    """Starts a process that does one thing: a function of this file, by its name."""
    process = _context().Process(target=action, args=arguments)
    process.start()
    return process


def finish(action: Callable[..., None], *arguments: Any) -> int:
    """Lets a process do one thing to the end; gives its exit code."""
    process = start(action, *arguments)
    process.join(120)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"{action.__name__}{arguments} did not end")
    return process.exitcode


def kill_after(seconds: float, action: Callable[..., None], *arguments: Any) -> bool:
    """Kills a process after a while; says whether it came to that, or was done before."""
    process = start(action, *arguments)
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9), process.exitcode
    return process.exitcode != 0


# What the processes do.

LOOKUP = RunConfig(
    MarginalsConfig(k=3, n_b=20),
    ModelConfig(n_layers=1, n_heads=2, d_model=16, n_ctx=16),
    TrainingConfig(steps=46, batch=8, eval_every=4, eval_examples=8, gradient_noise=0.1),
    CheckpointConfig(save_every=2, save_log=0),
)
CHAINS = RunConfig(
    MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4),
    ModelConfig(1, 1, 16, normalization="none", positions="rotary", n_ctx=16),
    TrainingConfig(40, 8, lr_schedule="cosine", weight_decay=0.0, eval_every=3, eval_examples=8),
    CheckpointConfig(save_every=3, save_log=4),
)
# Wide enough that two threads share the work.
WIDE = RunConfig(
    MarginalsConfig(k=3, n_b=200),
    ModelConfig(n_layers=1, n_heads=4, d_model=128, n_ctx=16),
    TrainingConfig(steps=10, batch=128, eval_every=10, eval_examples=8),
    CheckpointConfig(save_every=0, save_log=0),
)
CONFIGS = {"lookup": LOOKUP, "chains": CHAINS, "wide": WIDE}
SMALL = ("lookup", "chains")
"""Those that take a second."""


def grow(which: str, path: Path, threads: int = 1) -> None:
    """Trains a run to its end, continuing whatever is there."""
    torch.set_num_threads(threads)
    train(CONFIGS[which], path, resume=True)


def command(module: str, argv: list[str], said: Path, environment: dict[str, str]) -> None:
    """Runs a command and leaves with its code; what it says goes to a file."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    with (
        open(said, "w") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        code = import_module(module).main(argv)
        sys.stdout.flush()
    if code:
        sys.exit(code)


def sweep(argv: list[str], said: Path) -> None:
    """Runs a sweep whose own processes come from where this one comes from."""
    # It would start a server of its own, which has to import torch first.
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None
    command("mechinterp.sweep.command", argv, said, {})


def trace_all(path: Path, out: Path) -> None:
    """Traces every checkpoint of a run, and notes the resident memory (bytes) after each."""
    torch.set_num_threads(1)
    run, resident = Run.open(path), []
    for step in run.steps:
        trace(run, step, Options(examples=4))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
    out.write_text(json.dumps(resident))


def training(which: str, path: Path, *more: str) -> tuple[str, list[str]]:
    """The command that trains one of `CONFIGS`, as `command` takes it."""
    config, argv = CONFIGS[which], ["--run", str(path), "--quiet", *more]
    for part in (config.task, config.model, config.training, config.checkpoints):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if value != field.default:
                argv += [f"--{field.name.replace('_', '-')}", str(value)]
    return "mechinterp.train", [{"lookup": "marginals", "chains": "markov-chains"}[which], *argv]
