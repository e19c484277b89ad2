"""A small run that grows by a rule simple enough to know every bit of it."""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mechinterp.config import (
    MARKOV_MODEL,
    MARKOV_TRAINING,
    CheckpointConfig,
    MarkovChainsConfig,
    RunConfig,
)
from mechinterp.runs import RunWriter


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    # What a kill leaves is decided by the system's cache; only a power cut needs fsync.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def config() -> RunConfig:
    training = dataclasses.replace(MARKOV_TRAINING, steps=12)
    return RunConfig(MarkovChainsConfig(), MARKOV_MODEL, training, CheckpointConfig())


class Growth:
    """A stand-in for training: each step changes the weights by a rule and a moment."""

    n_params = 15

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    def start(self) -> tuple[int, dict[str, Tensor], dict[str, Tensor]]:
        weights = {"embed.W_E": torch.arange(12.0).reshape(3, 4), "b": torch.ones(3)}
        return 0, weights, {"exp_avg/b": torch.zeros(3, dtype=torch.float64)}

    def step(
        self, step: int, weights: dict[str, Tensor], state: dict[str, Tensor]
    ) -> tuple[int, dict[str, Tensor], dict[str, Tensor]]:
        moment = 0.9 * state["exp_avg/b"] + torch.sin(torch.tensor(step + 0.5))
        moved = {name: tensor * 1.01 + moment.sum().float() for name, tensor in weights.items()}
        return step + 1, moved, {"exp_avg/b": moment}

    def train(self, path: Path, steps: int, resume: bool = False, every: int = 2) -> None:
        config = dataclasses.replace(
            self.config, training=dataclasses.replace(self.config.training, steps=steps)
        )
        with RunWriter.open(path, config, self.n_params, resume, "train it") as run:
            point = run.resume_point()
            step, weights, state = point or self.start()
            run.start_from(step if point else -1)
            written = step if point else -1
            while True:
                if step != written:
                    run.log({"step": step, "loss": 1.0 / (step + 1)})
                    if step % every == 0 or step == steps:
                        run.save(step, weights, state)
                if step >= steps:
                    return
                step, weights, state = self.step(step, weights, state)


@pytest.fixture
def growth(config: RunConfig) -> Growth:
    return Growth(config)


@pytest.fixture
def run_path(growth: Growth, tmp_path: Path) -> Path:
    """A finished run with checkpoints at 0, 2, ..., 12."""
    path = tmp_path / "checkpoints" / "small"
    growth.train(path, 12)
    return path


def in_child(action: Callable[[], None]) -> int:
    """Starts a process of its own that does one thing; gives its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Waits for a child; gives its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def processes():
    """`start(action)` and `wait(child)`; whatever is left is killed at the end."""
    started: list[int] = []

    class Processes:
        @staticmethod
        def start(action: Callable[[], None]) -> int:
            started.append(in_child(action))
            return started[-1]

        @staticmethod
        def wait(child: int) -> int:
            started.remove(child)
            return ended(child)

    yield Processes
    for child in started:
        os.kill(child, signal.SIGKILL)
        ended(child)


def flip(path: Path, position: int) -> None:
    """Flips one bit of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(bytes(data))


@pytest.fixture(name="flip")
def flip_fixture() -> Callable[[Path, int], None]:
    return flip
