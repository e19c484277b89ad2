import numpy as np
import pandas as pd
import pytest
import torch

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.cliff_time import removal_table
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention
from mechinterp.minimal_models.symmetric_biases import biases
from mechinterp.minimal_models.symmetric_descent import Descent, cliff, descend


@pytest.fixture(scope="module")
def sample() -> ChainSample:
    return draw_sample(400, 4, 40, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def path(sample: ChainSample) -> pd.DataFrame:
    return descend(sample, Descent(learning_rate=4.0))


def test_beta_grows_linearly_first_and_delta_with_the_square_of_time(sample: ChainSample):
    early = descend(sample, Descent(learning_rate=0.5, steps=60))
    found = biases(sample)
    time = early["time"].to_numpy()[1:]
    np.testing.assert_allclose(early["beta"][1:], found.c_beta.value * time, rtol=0.1)
    # d delta / dt = cross * beta, and beta = c_beta t.
    square = 0.5 * found.cross.value * found.c_beta.value * time**2
    late = slice(20, None)
    np.testing.assert_allclose(early["delta"].to_numpy()[1:][late], square[late], rtol=0.15)
    assert early["beta"].iloc[-1] > 0.1


def test_the_loss_falls_off_a_cliff_after_a_plateau(path: pd.DataFrame):
    found = cliff(path)
    assert found.reached
    plateau = path[path["time"] < found.tau / 2]
    assert path["loss"].iloc[0] - plateau["loss"].iloc[-1] < 0.05 * found.drop
    assert path["excess"].iloc[-1] < 0.6 * path["excess"].iloc[0]
    assert abs(found.steepest - found.tau) < 0.15 * found.tau
    assert (path["loss"].diff().dropna() < 1e-12).all()


def test_the_last_step_is_the_gradient_step_it_claims_to_be(path: pd.DataFrame):
    before, after = path.iloc[-2], path.iloc[-1]
    for name in ("beta", "delta"):
        assert after[name] == pytest.approx(before[name] - 4.0 * before[f"slope_{name}"])


def test_tau_does_not_depend_on_the_learning_rate(sample: ChainSample, path: pd.DataFrame):
    finer = cliff(descend(sample, Descent(learning_rate=2.0, steps=800)))
    assert finer.tau == pytest.approx(cliff(path).tau, rel=0.03)


def test_taking_c_beta_away_holds_the_model_on_the_plateau(sample: ChainSample, path: pd.DataFrame):
    tau = cliff(path).tau
    wait = Descent(learning_rate=4.0, steps=int(4 * tau / 4.0))
    summary, paths = removal_table(sample, wait, ((), ("beta",), ("delta",)))
    rows = summary.set_index("removed")
    assert rows["reached"].to_dict() == {"none": True, "c_beta": False, "c_delta": True}
    assert rows.loc["c_beta", "waited"] > 3.9 * tau
    held = paths[paths["removed"] == "c_beta"]
    assert (held["beta"] == 0).all()
    assert (held["delta"] == 0).all()
    # Control: with token values alone c_delta is 0, and taking 0 away changes nothing.
    assert rows.loc["c_delta", "tau"] == rows.loc["none", "tau"]


def test_with_mixed_values_either_bias_leads_to_the_cliff_but_later(sample: ChainSample):
    start = Descent(learning_rate=6.0, steps=200, start=SymmetricAttention(mu=0.5))
    summary, _ = removal_table(sample, start)
    rows = summary.set_index("removed")
    assert rows.loc["c_beta", "tau"] > 1.3 * rows.loc["none", "tau"]
    assert rows.loc["c_delta", "tau"] > 1.03 * rows.loc["none", "tau"]
    assert not rows.loc["c_beta + c_delta", "reached"]
    assert np.isnan(rows.loc["c_beta + c_delta", "tau"])


def planted(loss: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"time": np.arange(len(loss)) * 2.0, "loss": loss, "excess": loss})


def test_cliff_of_a_planted_drop():
    time = np.arange(100) * 2.0
    found = cliff(planted(1.0 - 0.8 / (1 + np.exp(-(time - 77.0) / 3.0))))
    assert found.reached
    assert found.tau == pytest.approx(77.0, abs=0.05)
    assert found.steepest == pytest.approx(77.0, abs=1.01)
    assert found.drop == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(
    "loss",
    [
        np.full(50, 1.0),  # nothing happens
        np.linspace(1.0, 0.2, 50),  # falls, but still falling: no cliff behind
        1.0 - 0.01 / (1 + np.exp(-(np.arange(100) - 50.0))),  # a step of 1 %: drift
        np.array([1.0, 0.2]),  # too short to tell
    ],
)
def test_no_cliff_is_claimed_where_there_is_none(loss: np.ndarray):
    found = cliff(planted(loss))
    assert not found.reached
    assert np.isnan(found.tau)


def test_errors_say_what_is_allowed(sample: ChainSample):
    with pytest.raises(InputError, match="learning_rate is 0; it has to be positive"):
        Descent(learning_rate=0.0)
    with pytest.raises(InputError, match="steps is 0; it has to be at least 1"):
        Descent(learning_rate=1.0, steps=0)
    with pytest.raises(InputError, match=r"beta is .*smaller learning rate"):
        descend(sample, Descent(learning_rate=1e9))
