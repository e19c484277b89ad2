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


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory):
    """A folder with two tiny trained runs, `lookup` (marginals) and `chains` (Markov chains)."""
    folder = tmp_path_factory.mktemp("runs")
    training = TrainingConfig(steps=40, batch=32, eval_every=20, eval_examples=8)
    kept = CheckpointConfig(save_every=20, save_log=0)
    lookup = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16)
    train(RunConfig(MarginalsConfig(k=3, n_b=40), lookup, training, kept), folder / "lookup")
    chains = ModelConfig(2, 1, 16, normalization="none", positions="rotary", n_ctx=16)
    task = MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4)
    train(RunConfig(task, chains, training, kept), folder / "chains")
    return folder
