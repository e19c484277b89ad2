import pytest
import torch

from analyses.chains.predictor_distances import distance_row, distances
from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.predictors import one_mem_transition, two_gen, two_mem
from mechinterp.runs import Run
from mechinterp.tasks import make_task

CONFIG = MarkovChainsConfig(n_states=4, k=3, length=16, held_out=4)


def _computes(predict, sharpen=1.0):
    """A model that is one of the predictors."""
    return lambda tokens: sharpen * predict(tokens)


PREDICTORS = {
    "2-Gen": lambda tokens: two_gen(tokens, 4),
    "2-Mem": lambda tokens: two_mem(tokens, make_task(CONFIG).chains),
    "1-Mem": lambda tokens: one_mem_transition(tokens, make_task(CONFIG).chains),
}


@pytest.mark.parametrize("phase", list(PREDICTORS))
def test_a_planted_predictor_is_recognised(phase):
    row = distance_row(distances(_computes(PREDICTORS[phase]), CONFIG, 24), n_resamples=50)
    assert row["phase"] == row["nearest_phase"] == phase
    assert row["distance"] == pytest.approx(0.0, abs=1e-9)
    assert row["certainty"] == 1.0
    overconfident = distance_row(distances(_computes(PREDICTORS[phase], 5.0), CONFIG, 24), 50)
    assert overconfident["phase"] == "mixed"


def test_a_model_measured_by_the_tasks_own_diagnostics(tiny_runs):
    run = Run.open("chains", tiny_runs)
    for step in (0, 40):
        model = run.model(step).eval()
        found = run.task().diagnostics(model, 24, "quick")
        row = distance_row(distances(model, CONFIG, 24), 50)
        for name in ("truth", "two_gen", "two_mem", "one_gen"):
            assert row[f"{name}_train"] == pytest.approx(found[f"kl_{name}"].value)
            assert row[f"{name}_new"] == pytest.approx(found[f"kl_{name}_new"].value)
            assert row[f"{name}_train_low"] < row[f"{name}_train"] < row[f"{name}_train_high"]
        phase = run.task().phase(found)
        assert (row["phase"], row["nearest"]) == (phase.name, phase.nearest)
        assert row["margin"] == pytest.approx(phase.margin)


def test_without_frozen_chains_there_is_no_memory_to_be_near_to():
    config = MarkovChainsConfig(n_states=4, k="inf", length=16, held_out=4)
    row = distance_row(distances(_computes(PREDICTORS["2-Gen"]), config, 16), 20)
    assert "two_mem_train" not in row
    assert "transience_index" not in row


def test_a_close_call_is_not_certain():
    generator = torch.Generator().manual_seed(0)
    found = {
        f"{name}_{which}": level + 0.02 * torch.rand(40, generator=generator).double()
        for name, level in (("one_gen", 0.0), ("two_gen", 0.0028), ("truth", 0.1))
        for which in ("train", "new")
    }
    row = distance_row(found, 200)
    assert row["phase"] in ("mixed", "1-Gen")
    assert 0.2 < row["certainty"] < 0.98


def test_sets_of_different_size_are_refused():
    found = {"two_gen_train": torch.rand(3), "two_gen_new": torch.rand(4)}
    with pytest.raises(InputError, match=r"\[3, 4\] sequences; give equally many"):
        distance_row(found)
