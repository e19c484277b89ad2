import dataclasses

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
)
from mechinterp.model import build_model
from mechinterp.runs import Run
from mechinterp.stacked_training import Ending, train_stacked
from mechinterp.stopping import StopRule
from mechinterp.training_loop import train

LOOKUP = RunConfig(
    MarginalsConfig(k=3, n_b=20),
    ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16),
    TrainingConfig(steps=12, batch=16, eval_every=5, eval_examples=8),
    CheckpointConfig(save_every=6, save_log=0),
)
CHAINS = RunConfig(
    MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4),
    ModelConfig(2, 1, 16, normalization="none", positions="rotary", n_ctx=16),
    TrainingConfig(steps=12, batch=16, eval_every=5, eval_examples=8, weight_decay=0.0),
    CheckpointConfig(save_every=6, save_log=0),
)


def _varied(config, seed, **task):
    return dataclasses.replace(
        config,
        task=dataclasses.replace(config.task, **task),
        model=dataclasses.replace(config.model, init_seed=seed),
        training=dataclasses.replace(config.training, data_seed=seed),
    )


@pytest.mark.parametrize("config", [LOOKUP, CHAINS], ids=["marginals", "chains"])
def test_a_stack_is_its_runs_trained_apart(config, tmp_path):
    configs = [_varied(config, 0), _varied(config, 1), _varied(config, 2, k=5)]
    train_stacked(configs, [tmp_path / f"stacked{i}" for i in range(3)])
    ends = []
    for i, one in enumerate(configs):
        train(one, tmp_path / f"alone{i}")
        alone, stacked = Run.open(tmp_path / f"alone{i}"), Run.open(tmp_path / f"stacked{i}")
        assert stacked.steps == alone.steps == [0, 6, 12]
        for name, tensor in alone.weights(12).items():
            # A key bias has no gradient but rounding, which Adam scales up to whole steps.
            if not name.endswith("attn.b_K"):
                torch.testing.assert_close(stacked.weights(12)[name], tensor, rtol=0, atol=2e-5)
        rows, expected = stacked.metrics(), alone.metrics()
        assert list(rows["step"]) == [0, 5, 10, 12]
        assert rows["train_loss"][1:].to_list() == pytest.approx(
            expected["train_loss"][1:].to_list(), abs=1e-5
        )
        ends.append(stacked.weights(12)["embed.W_E"].clone())
    assert (ends[0] - ends[1]).abs().max() > 0.05  # runs of a stack are not each other


def test_a_run_of_a_stack_is_taken_up_by_ordinary_training(tmp_path):
    configs = [_varied(LOOKUP, 0), _varied(LOOKUP, 1)]
    train_stacked(configs, [tmp_path / "a", tmp_path / "b"])
    longer = dataclasses.replace(
        configs[1], training=dataclasses.replace(configs[1].training, steps=18)
    )
    train(longer, tmp_path / "b", resume=True)
    train(longer, tmp_path / "whole")
    resumed, whole = Run.open(tmp_path / "b").weights(18), Run.open(tmp_path / "whole").weights(18)
    for name, tensor in whole.items():
        if not name.endswith("attn.b_K"):
            torch.testing.assert_close(resumed[name], tensor, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (dataclasses.replace(LOOKUP, model=dataclasses.replace(LOOKUP.model, d_model=32)), "only"),
        (
            dataclasses.replace(LOOKUP, training=dataclasses.replace(LOOKUP.training, lr=0.1)),
            "only",
        ),
        (_varied(LOOKUP, 1, variant="az_to_b"), "sequences differ"),
    ],
)
def test_runs_that_do_not_agree_are_refused(tmp_path, other, words):
    with pytest.raises(InputError, match=words):
        train_stacked([LOOKUP, other], [tmp_path / "a", tmp_path / "b"])
    assert not (tmp_path / "a").exists()


def test_what_goes_run_by_run_is_refused(tmp_path):
    clipped = dataclasses.replace(LOOKUP, training=dataclasses.replace(LOOKUP.training, clip=1.0))
    with pytest.raises(InputError, match="run by run"):
        train_stacked([clipped], [tmp_path / "a"])
    with pytest.raises(InputError, match="no runs"):
        train_stacked([], [])


def test_a_run_of_a_stack_stops_by_the_rule_that_stops_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("mechinterp.stopping.SOLVED", 10.0)  # Every row counts as solved.
    rule = StopRule(converged=2)
    configs = [_varied(LOOKUP, 0), _varied(LOOKUP, 1)]
    endings = train_stacked(configs, [tmp_path / "a", tmp_path / "b"], stop=rule)
    assert endings == [Ending("converged"), Ending("converged")]
    assert train(configs[1], tmp_path / "alone", stop=rule) == "converged"
    stacked, alone = Run.open(tmp_path / "b"), Run.open(tmp_path / "alone")
    assert stacked.steps == alone.steps == [0, 5]
    assert list(stacked.metrics()["step"]) == list(alone.metrics()["step"]) == [0, 5]


def test_a_run_that_diverges_takes_no_other_with_it(tmp_path, monkeypatch):
    def spoiled(config, d_vocab):
        model = build_model(config, d_vocab)
        if config.init_seed == 1:
            model.embed.W_E.data.fill_(float("nan"))
        return model

    monkeypatch.setattr("mechinterp.stacked_training.build_model", spoiled)
    configs = [_varied(LOOKUP, 0), _varied(LOOKUP, 1)]
    fine, lost = train_stacked(configs, [tmp_path / "a", tmp_path / "b"])
    assert fine == Ending("budget")
    assert lost.reason == "diverged"
    assert "diverged before step 5" in lost.detail
    assert Run.open(tmp_path / "b").steps == [0]
    train(configs[0], tmp_path / "alone")
    alone = Run.open(tmp_path / "alone").weights(12)
    for name, tensor in Run.open(tmp_path / "a").weights(12).items():
        if not name.endswith("attn.b_K"):
            torch.testing.assert_close(tensor, alone[name], rtol=0, atol=2e-5)
