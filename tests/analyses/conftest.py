from pathlib import Path

import pytest

from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.training_loop import train

SIZES = (6, 12, 24)


@pytest.fixture(scope="session")
def reference():
    """The folder of the committed runs."""
    return Path(__file__).parents[2] / "checkpoints" / "reference"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own."""
    monkeypatch.setenv("MECHINTERP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory):
    """Marginals runs that snap, of three sizes, a forward task, and a run of Markov chains."""
    folder = tmp_path_factory.mktemp("runs")
    lookup = ModelConfig(n_layers=1, n_heads=2, d_model=32, n_ctx=16)
    training = TrainingConfig(steps=120, batch=24, lr=2e-3, eval_every=4, eval_examples=12)
    kept = CheckpointConfig(save_every=8, save_log=0)
    for n_b in SIZES:
        config = RunConfig(MarginalsConfig(k=2, n_b=n_b), lookup, training, kept)
        train(config, folder / f"lookup-{n_b}")
    forward = MarginalsConfig(k=2, n_b=12, variant="az_to_b")
    train(RunConfig(forward, lookup, training, CheckpointConfig(0, 0)), folder / "forward-12")
    chains = ModelConfig(2, 1, 16, normalization="none", positions="rotary", n_ctx=16)
    task = MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4)
    training = TrainingConfig(steps=40, batch=32, lr=3e-3, eval_every=10, eval_examples=32)
    train(RunConfig(task, chains, training, CheckpointConfig(10, 0)), folder / "chains")
    training = TrainingConfig(steps=4, batch=8, eval_every=2, eval_examples=8)
    config = RunConfig(MarginalsConfig(k=2, n_b=6), lookup, training, CheckpointConfig(0, 0))
    train(config, folder / "short")
    return folder
