import math

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
from mechinterp.stopping import Diverged, Stopper, StopRule
from mechinterp.training_loop import train

LOOKUP = MarginalsConfig(k=3, n_b=20)
SOLVED, UNSOLVED = 0.009 * math.log(3), 0.011 * math.log(3)


def _seen(rule, losses):
    stopper = Stopper(rule, LOOKUP)
    after = []
    for step, loss in enumerate(losses):
        stopper.see({"step": step, "candidate_loss": loss})
        after.append(stopper.converged)
    return after


def test_a_run_has_converged_after_n_solved_evaluations_in_a_row():
    losses = [1.0, SOLVED, SOLVED, UNSOLVED, SOLVED, SOLVED, SOLVED]
    assert _seen(StopRule(converged=3), losses) == [False] * 6 + [True]
    assert _seen(StopRule(converged=2), losses)[2] is True
    assert not any(_seen(StopRule(), losses))


def test_an_exploded_loss_is_compared_with_the_first_one():
    stopper = Stopper(StopRule(exploded=10.0), LOOKUP)
    stopper.see({"step": 0})
    stopper.see({"step": 5, "train_loss": 3.0})
    stopper.see({"step": 10, "train_loss": 29.0})
    with pytest.raises(Diverged, match=r"at step 15: the loss is 31, 10\.3 times the first"):
        stopper.see({"step": 15, "train_loss": 31.0})


@pytest.mark.parametrize(
    ("rule", "task"),
    [
        (StopRule(converged=-1), LOOKUP),
        (StopRule(exploded=math.inf), LOOKUP),
        (StopRule(converged=1), MarkovChainsConfig()),
        (StopRule(converged=1), MarginalsConfig(k=1)),
    ],
)
def test_rules_that_mean_nothing_are_refused(rule, task):
    with pytest.raises(InputError, match=r"is no rule|only the marginals task with K > 1"):
        Stopper(rule, task)


EASY = RunConfig(
    MarginalsConfig(k=2, n_b=2),
    ModelConfig(n_layers=1, n_heads=2, d_model=32, n_ctx=16),
    TrainingConfig(steps=400, batch=16, lr=1e-2, eval_every=5, eval_examples=4),
    CheckpointConfig(save_every=50, save_log=0),
)


def test_training_stops_where_the_rule_says_and_keeps_that_step(tmp_path):
    rule = StopRule(converged=3)
    assert train(EASY, tmp_path / "run", stop=rule) == "converged"
    run = Run.open(str(tmp_path / "run"))
    rows = run.metrics()
    solved = rows["candidate_loss"] < 0.01 * math.log(2)
    first = next(i for i in range(2, len(rows)) if solved[i - 2 : i + 1].all())
    assert rows["step"].iloc[-1] == rows["step"][first] == run.steps[-1] < 400
    # Taken up again it is at its end; without the rule it goes on, from the same weights.
    assert train(EASY, tmp_path / "run", stop=rule, resume=True) == "converged"
    assert run.steps[-1] == rows["step"].iloc[-1]
    assert train(EASY, tmp_path / "run", resume=True) == "budget"
    assert train(EASY, tmp_path / "whole") == "budget"
    whole = Run.open(str(tmp_path / "whole"))
    assert run.checkpoint_hash(400) == whole.checkpoint_hash(400)
