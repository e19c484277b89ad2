import json
import math
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
    to_json,
)
from mechinterp.model import build_model
from mechinterp.runs import Run
from mechinterp.tasks import Marginals
from mechinterp.training_loop import scored_loss, train

SMALL = RunConfig(
    MarginalsConfig(k=3, n_b=20),
    ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16),
    TrainingConfig(steps=30, batch=16, eval_every=7, eval_examples=8),
    CheckpointConfig(save_every=10, save_log=1, save_at=(13,)),
)


def _weights(path, step):
    return {name: tensor.clone() for name, tensor in Run.open(str(path)).weights(step).items()}


def _equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("forward", ["scored", "whole"])
def test_the_loss_is_the_plain_loss_of_the_whole_forward_pass(forward):
    task = Marginals(SMALL.task)
    model = build_model(SMALL.model, task.d_vocab)
    tokens = task.batch(0, 16, torch.Generator().manual_seed(0))
    log_probs = model(tokens[:, :-1]).log_softmax(-1)
    by_hand = torch.stack([-log_probs[:, p].gather(1, tokens[:, p + 1, None]) for p in task.scored])
    loss = scored_loss(model, tokens, torch.tensor(task.scored), forward)
    torch.testing.assert_close(loss, by_hand.mean())


def test_a_run_has_its_steps_and_rows_and_learns(tmp_path):
    train(SMALL, tmp_path / "run", command="the command")
    run = Run.open(str(tmp_path / "run"))
    assert run.steps == [0, 3, 10, 13, 20, 30]
    rows = run.metrics()
    assert list(rows["step"]) == [0, 7, 14, 21, 28, 30]
    assert math.isnan(rows["train_loss"][0])
    assert rows["train_loss"].iloc[-1] < rows["train_loss"][1] - 0.1
    assert not _equal(_weights(tmp_path / "run", 0), _weights(tmp_path / "run", 30))


def test_a_device_that_is_not_there_is_refused_before_a_run_is_made(tmp_path):
    for device in ("cuda:99", "quantum"):
        with pytest.raises(InputError, match=rf"device '{device}' cannot be used: .*; use cpu"):
            train(SMALL, tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_trains_the_same_run_up_to_rounding(tmp_path):
    train(SMALL, tmp_path / "gpu", device="cuda")
    train(SMALL, tmp_path / "cpu")
    cpu = _weights(tmp_path / "cpu", 30)
    for name, tensor in _weights(tmp_path / "gpu", 30).items():
        if not name.endswith("attn.b_K"):
            torch.testing.assert_close(tensor, cpu[name], atol=1e-3, rtol=0)


def test_the_loop_follows_plain_adamw(tmp_path):
    train(SMALL, tmp_path / "run")
    task = Marginals(SMALL.task)
    model = build_model(SMALL.model, task.d_vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    for step in range(10):
        optimizer.zero_grad()
        tokens = task.batch(step, 16, generator)
        logits = model(tokens[:, :-1])[:, list(task.scored)]
        targets = tokens[:, [p + 1 for p in task.scored]]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    for name, tensor in _weights(tmp_path / "run", 10).items():
        # The gradient of a key bias is 0 but for rounding, which Adam scales up to full steps.
        if not name.endswith("attn.b_K"):
            torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-3, atol=1e-5)


def _changed(section, **changes):
    part = getattr(SMALL, section)
    return RunConfig(**{**SMALL.__dict__, section: type(part)(**{**part.__dict__, **changes})})


def test_init_seed_and_data_seed_act_apart(tmp_path):
    train(SMALL, tmp_path / "base")
    train(_changed("training", data_seed=1), tmp_path / "data")
    train(_changed("model", init_seed=1), tmp_path / "init")
    base = _weights(tmp_path / "base", 0)
    assert _equal(base, _weights(tmp_path / "data", 0))
    assert not _equal(base, _weights(tmp_path / "init", 0))
    assert not _equal(_weights(tmp_path / "base", 3), _weights(tmp_path / "data", 3))


def test_the_callers_random_state_changes_nothing(tmp_path):
    torch.manual_seed(1)
    train(SMALL, tmp_path / "a")
    torch.manual_seed(2)
    state = torch.get_rng_state()
    train(SMALL, tmp_path / "b")
    assert torch.equal(state, torch.get_rng_state())
    assert _equal(_weights(tmp_path / "a", 30), _weights(tmp_path / "b", 30))


def test_a_diverging_run_stops_with_one_line(tmp_path):
    with pytest.raises(InputError, match=r"training diverged before step .*lower --lr"):
        train(_changed("training", lr=1e20), tmp_path / "run")


def test_sequences_longer_than_n_ctx_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="n_ctx is 8, the task's sequences need 15"):
        train(_changed("model", n_ctx=8), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_more_evaluation_examples_than_there_are_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"61 .*evaluation"):
        train(_changed("training", eval_examples=61), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_markov_chains_train_too(tmp_path):
    config = RunConfig(
        MarkovChainsConfig(n_states=3, k="inf", length=12, held_out=4),
        ModelConfig(n_layers=2, n_heads=1, d_model=16, normalization="none", positions="rotary"),
        TrainingConfig(steps=6, batch=8, eval_every=3, eval_examples=8),
        CheckpointConfig(save_every=0, save_log=0),
    )
    train(config, tmp_path / "run")
    assert Run.open(str(tmp_path / "run")).steps == [0, 6]


# The child announces each checkpoint, so that a kill lands anywhere between two of them.
_CHILD = """
import json, sys, torch
torch.set_num_threads(1)
from pathlib import Path
from mechinterp.config import from_json
from mechinterp.training_loop import train
print("ready", flush=True)
train(from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), resume=Path(sys.argv[2]).exists())
"""


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    config = _changed("training", steps=400)
    child = [sys.executable, "-W", "ignore", "-c", _CHILD, json.dumps(to_json(config))]
    subprocess.run([*child, str(tmp_path / "whole")], check=True, capture_output=True)
    chance = random.Random(0)
    path = tmp_path / "killed"
    kills = 0
    attempts = 0
    while attempts < 12:
        attempts += 1
        process = subprocess.Popen([*child, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        if kills < 4:
            time.sleep(chance.uniform(0.05, 1.0))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        process.communicate()
        if process.returncode == 0:
            break
    assert process.returncode == 0, f"not finished after {attempts} attempts"
    assert kills >= 2
    whole, killed = Run.open(str(tmp_path / "whole")), Run.open(str(path))
    assert whole.steps == killed.steps
    for step in whole.steps:
        assert _equal(_weights(whole.path, step), _weights(killed.path, step)), step
    left, right = whole.metrics(), killed.metrics()
    assert left.equals(right)
