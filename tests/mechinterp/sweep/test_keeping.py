import pytest

from circuits.errors import InputError
from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.runs import Run
from mechinterp.runs.verifying import problems_of
from mechinterp.sweep.keeping import keep_only, steps_to_keep
from mechinterp.training_loop import train

EASY = RunConfig(
    MarginalsConfig(k=2, n_b=4),
    ModelConfig(n_layers=1, n_heads=2, d_model=32, n_ctx=16),
    TrainingConfig(steps=200, batch=16, lr=3e-3, eval_every=5, eval_examples=8),
    CheckpointConfig(save_every=10, save_log=0),
)
CHAINS = RunConfig(
    MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4),
    ModelConfig(2, 1, 16, normalization="none", positions="rotary", n_ctx=16),
    TrainingConfig(steps=20, batch=16, eval_every=5, eval_examples=8),
    CheckpointConfig(save_every=5, save_log=0),
)


def test_the_window_is_around_the_transition(tmp_path):
    import math

    train(EASY, tmp_path / "run")
    run = Run.open(str(tmp_path / "run"))
    rows = run.metrics()
    share = rows["candidate_loss"] / math.log(2)
    left = rows["step"][share > 0.95].max()
    solved = rows["step"][share < 0.05].min()
    assert left < solved < 200  # else the example shows nothing
    half = (solved - left) / 2
    expected = [s for s in run.steps if left - half <= s <= solved + half]
    kept = steps_to_keep(run, "window")
    assert kept == sorted({0, 200, *expected})
    assert 2 < len(kept) < len(run.steps)
    assert steps_to_keep(run, "all") == run.steps
    assert steps_to_keep(run, "metrics") == []
    keep_only(run.path, kept)
    assert run.steps == kept
    assert problems_of(run.path) == []
    assert len(run.metrics()) == len(rows)
    keep_only(run.path, [])
    assert run.steps == []
    assert problems_of(run.path) == []


def test_a_task_without_candidates_goes_by_its_training_loss(tmp_path):
    train(CHAINS, tmp_path / "run")
    run = Run.open(str(tmp_path / "run"))
    kept = steps_to_keep(run, "window")
    assert {0, 20} <= set(kept) <= set(run.steps)


def test_a_checkpoint_that_is_not_there_cannot_stay(tmp_path):
    train(CHAINS, tmp_path / "run")
    with pytest.raises(InputError, match="no checkpoint at step 7"):
        keep_only(tmp_path / "run", [5, 7])
    assert Run.open(str(tmp_path / "run")).steps == [0, 5, 10, 15, 20]
