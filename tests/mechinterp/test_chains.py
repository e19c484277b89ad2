"""Random chains: exact at the edges of the uniform draws, and of the right distribution."""

import math

import pytest
import torch
from scipy.stats import beta, kstest

from circuits.errors import InputError
from mechinterp.chains import (
    ChainSampler,
    check_states,
    cumulative,
    dirichlet_rows,
    draw_chains,
    entropy_rate,
    pick,
    stationary,
)

LARGEST_DRAW = 1.0 - 2.0**-53


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def double(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_a_draw_of_exactly_zero_gives_a_finite_row() -> None:
    draws = torch.tensor([[0.0, 0.5], [0.5, 0.0]], dtype=torch.float64)
    draws = draws[None, :, :, None].expand(1, 2, 2, 2)
    rows = dirichlet_rows(draws, 1.0)[0]
    # A draw of 0 stands for 2**-54: exponentials of 54 ln 2 and ln 2.
    torch.testing.assert_close(rows, double([54 / 55, 1 / 55], [1 / 55, 54 / 55]))


@pytest.mark.parametrize("concentration", [1e-3, 0.3, 1.0, 7.0, 1e6])
@pytest.mark.parametrize("draw", [0.0, LARGEST_DRAW])
def test_extreme_draws_give_rows_that_sum_to_one(concentration: float, draw: float) -> None:
    draws = torch.full((1, 4, 4, 2), 0.37, dtype=torch.float64)
    draws[0, 0] = draw
    draws[0, 1, 2] = draw
    draws[0, 2, :, 1] = draw
    rows = dirichlet_rows(draws, concentration)
    assert rows.isfinite().all()
    assert (rows > 0).all()
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 4, dtype=torch.float64))
    assert stationary(rows).isfinite().all()


def test_the_naive_transform_of_a_zero_draw_is_not_finite() -> None:
    naive = -torch.tensor([0.0, 0.5]).log()
    assert not (naive / naive.sum()).isfinite().all()


@pytest.mark.parametrize("concentration", [0.2, 1.0, 4.0])
def test_entries_follow_the_beta_law_of_a_dirichlet(concentration: float) -> None:
    n_states = 4
    entries = draw_chains(400, n_states, concentration, generator())[:, :, 0].flatten().numpy()
    law = beta(concentration, (n_states - 1) * concentration)
    assert kstest(entries, law.cdf).pvalue > 1e-3
    wrong = beta(2 * concentration, 2 * (n_states - 1) * concentration)
    assert kstest(entries, wrong.cdf).pvalue < 1e-6


def test_fewer_chains_are_the_first_of_more() -> None:
    few, many = (draw_chains(n, 3, 1.0, generator(7)) for n in (3, 50))
    assert torch.equal(few, many[:3])


def test_stationary_distribution_worked_by_hand() -> None:
    chain = double([0.9, 0.1], [0.3, 0.7])[None]
    torch.testing.assert_close(stationary(chain), double([0.75, 0.25]))


def test_stationary_distribution_is_kept_and_agrees_with_a_long_power() -> None:
    chains = draw_chains(20, 6, 0.5, generator())
    share = stationary(chains)
    torch.testing.assert_close((share[:, None] @ chains)[:, 0], share)
    torch.testing.assert_close(torch.linalg.matrix_power(chains, 4096)[:, 2], share)
    torch.testing.assert_close(share.sum(-1), torch.ones(20, dtype=torch.float64))


def test_stationary_distribution_survives_a_chain_that_hardly_moves() -> None:
    stuck = double([1.0, 1e-60], [2e-60, 1.0])[None]
    torch.testing.assert_close(stationary(stuck), double([2 / 3, 1 / 3]))


def test_a_chain_in_two_parts_is_refused_by_number() -> None:
    good = double([0.5, 0.5], [0.5, 0.5])
    with pytest.raises(InputError, match="chain 1 has no unique stationary distribution"):
        stationary(torch.stack([good, torch.eye(2, dtype=torch.float64)]))


def test_entropy_rate_worked_by_hand() -> None:
    fair_or_sure = double([0.5, 0.5], [1.0, 0.0])[None]  # stays in state 0 two thirds of the time
    assert entropy_rate(fair_or_sure).item() == pytest.approx(2 / 3 * math.log(2))


def test_no_draw_picks_past_the_last_state_or_an_impossible_one() -> None:
    short = double([0.1] * 9 + [0.1 - 1e-12])  # sums to less than the largest draw
    largest = torch.tensor([LARGEST_DRAW], dtype=torch.float64)
    assert short.sum() < largest
    assert pick(short.cumsum(-1), largest).item() == 10  # what has to be prevented
    assert pick(cumulative(short), largest).item() == 9
    gaps = double([0.0, 0.3, 0.0, 0.7 - 1e-12, 0.0])
    draws = torch.tensor([0.0, 0.2999, 0.3001, LARGEST_DRAW], dtype=torch.float64)
    assert pick(cumulative(gaps).expand(4, 5), draws).tolist() == [1, 1, 3, 3]


def test_a_sequence_follows_its_draws() -> None:
    cycle = double([0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    half = double([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5])
    sampler = ChainSampler.of(torch.stack([cycle, half]))
    uniform = double([0.5, 0.0, LARGEST_DRAW, 0.3], [0.0, 0.49, 0.51, 0.51])
    tokens = sampler.sample(torch.tensor([0, 1]), uniform)
    assert tokens.tolist() == [[1, 2, 0, 1], [0, 0, 1, 2]]


def test_first_states_and_transitions_have_the_right_frequencies() -> None:
    chains = draw_chains(2, 4, 1.0, generator(3))
    n = 20_000
    chain = torch.arange(n) % 2
    uniform = torch.rand(n, 3, generator=generator(4), dtype=torch.float64)
    tokens = ChainSampler.of(chains).sample(chain, uniform)[chain == 1]
    first = tokens[:, 0].bincount(minlength=4) / len(tokens)
    assert (first - stationary(chains)[1]).abs().max() < 0.02
    for state in range(4):
        after = tokens[:, 2][tokens[:, 1] == state].bincount(minlength=4).double()
        spread = (chains[1, state] / after.sum()).sqrt()
        assert ((after / after.sum() - chains[1, state]).abs() < 4 * spread).all()


def test_tokens_that_are_no_states_are_refused() -> None:
    with pytest.raises(InputError, match=r"tokens run from 0 to 3.*3 states has tokens 0 to 2"):
        check_states(torch.tensor([[0, 3]]), 3)
    check_states(torch.tensor([[0, 2]]), 3)
