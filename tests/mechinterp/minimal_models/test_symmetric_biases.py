import math

import pytest
import torch

from circuits.errors import InputError
from mechinterp.chains import cumulative, draw_chains, pick, stationary
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention, slopes
from mechinterp.minimal_models.symmetric_biases import (
    bias_table,
    biases,
    closed_form_c_beta,
    finite_differences,
    log_coefficient,
    log_growth,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def ten_states() -> ChainSample:
    return draw_sample(4000, 10, 200, seeded())


@pytest.fixture(scope="module")
def five_states() -> ChainSample:
    return draw_sample(3000, 5, 800, seeded(1))


@pytest.mark.parametrize(("mu", "alpha"), [(0.0, 0.0), (0.5, 0.0), (0.3, 0.6)])
def test_autograd_equals_finite_differences(mu: float, alpha: float):
    sample = draw_sample(50, 4, 20, seeded())
    exact, moved = biases(sample, mu, alpha), finite_differences(sample, mu, alpha)
    for name in ("c_beta", "c_delta", "cross"):
        assert getattr(moved, name).value == pytest.approx(getattr(exact, name).value, abs=1e-7)
        assert getattr(moved, name).se == pytest.approx(getattr(exact, name).se, abs=1e-6)


def test_c_delta_is_exactly_0_on_every_chain_when_values_are_tokens(ten_states: ChainSample):
    assert (slopes(SymmetricAttention(), ten_states).delta == 0).all()
    assert (slopes(SymmetricAttention(mu=0.5), ten_states).delta != 0).any()


# An independent computation: 4000 chains, finite differences; its errors are those of ours.
INDEPENDENT = {
    (50, 0.0): (0.0023, 0.0, 0.0037),
    (100, 0.0): (0.0019, 0.0, 0.0024),
    (200, 0.0): (0.0013, 0.0, 0.0015),
    (50, 0.5): (None, 0.0012, None),
    (100, 0.5): (None, 0.0005, None),
    (200, 0.5): (None, 0.0002, None),
}


def test_the_notes_table_comes_out(ten_states: ChainSample):
    table = bias_table(ten_states, (50, 100, 200)).set_index(["length", "mu"])
    for key, values in INDEPENDENT.items():
        row = table.loc[key]
        for name, value in zip(("c_beta", "c_delta", "cross"), values, strict=True):
            if value is not None:
                rounding = 5e-5
                close = 3 * math.sqrt(2) * row[f"{name}_se"] + rounding
                assert row[name] == pytest.approx(value, abs=close), (key, name)
    assert (table["c_beta"] > 5 * table["c_beta_se"]).all()
    assert (
        table.xs(0.5, level="mu")["c_delta"] > 5 * table.xs(0.5, level="mu")["c_delta_se"]
    ).all()


def test_sequences_without_order_push_beta_down():
    # Independent states from a random distribution: the previous state tells nothing, and uneven
    # attention only counts fewer of them.
    rows = draw_chains(2000, 5, 6.0, seeded())[:, 0]
    uniform = torch.rand(2000 * 50, generator=seeded(1), dtype=torch.float64)
    states = pick(cumulative(rows).repeat_interleave(50, 0), uniform).view(2000, 50)
    independent = ChainSample(states, rows)
    chains = draw_sample(2000, 5, 50, seeded())
    with_order, without = biases(chains).c_beta, biases(independent).c_beta
    assert without.value + 3 * without.se < 0 < with_order.value - 3 * with_order.se


def test_closed_form_by_hand():
    assert closed_form_c_beta(2, 100) == pytest.approx(math.log(100) / 600)
    assert closed_form_c_beta(5, 50) == pytest.approx(4 / 30 * math.log(50) / 50)


def test_closed_form_is_an_upper_bound_that_is_approached(five_states: ChainSample):
    ratio = bias_table(five_states, (50, 200, 800), (0.0,))["ratio"]
    assert ratio.is_monotonic_increasing
    assert 0.25 < ratio.iloc[0] < 0.45
    assert 0.5 < ratio.iloc[-1] < 0.8


def test_log_coefficient_sums_every_lag():
    chains = draw_chains(40, 3, 1.0, seeded(5))
    share = stationary(chains)
    total, power = torch.zeros(40).double(), torch.eye(3).double().expand(40, 3, 3)
    for _ in range(3000):
        total += torch.einsum(
            "ka,kas,ks,kas->k", share**2, chains, 1 / share, power - share[:, None]
        )
        power = power @ chains
    assert (power - share[:, None]).abs().max() < 1e-12
    found = log_coefficient(40, 3, seeded(5))
    assert found.value == pytest.approx(total.mean().item(), rel=1e-8)


def test_growth_with_ln_n_is_the_coefficient_at_large_n(five_states: ChainSample):
    coefficient = log_coefficient(20_000, 5, seeded(2))
    growth = log_growth(five_states, 200, 800)
    assert growth.se < 0.25 * coefficient.value
    assert abs(growth.value - coefficient.value) < 3 * growth.se
    # Between short lengths other terms rule: the range matters.
    short = log_growth(five_states, 4, 8)
    assert abs(short.value - coefficient.value) > 5 * short.se


def test_errors_say_what_is_allowed(five_states: ChainSample):
    with pytest.raises(InputError, match="lengths are 8 and 8; the first has to be the shorter"):
        log_growth(five_states, 8, 8)
    with pytest.raises(InputError, match="length is 900"):
        bias_table(five_states, (900,))
