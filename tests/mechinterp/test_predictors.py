"""The Bayes predictors against loops written from their definitions, and against the truth."""

import math
from itertools import pairwise

import pytest
import torch

from circuits.errors import InputError
from mechinterp import memorising_predictors
from mechinterp.chains import ChainSampler, draw_chains, stationary
from mechinterp.memorising_predictors import chain_log_posterior
from mechinterp.predictors import (
    MEMORISING,
    PREDICTORS,
    matched_concentration,
    one_gen,
    one_mem_stationary,
    one_mem_transition,
    predict_all,
    two_gen,
    two_mem,
)

N_STATES, N_CHAINS, LENGTH = 3, 4, 9


@pytest.fixture(scope="module")
def chains() -> torch.Tensor:
    return draw_chains(N_CHAINS, N_STATES, 1.0, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def tokens(chains: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    uniform = torch.rand(6, LENGTH, generator=generator, dtype=torch.float64)
    return ChainSampler.of(chains).sample(torch.arange(6) % N_CHAINS, uniform)


def weights_by_hand(seen: list[int], chains: torch.Tensor, points: int) -> list[float]:
    """Posterior over chains: 1 point, the product of pi; 2 points, pi of the first, then T."""
    weights = []
    for chain, share in zip(chains.tolist(), stationary(chains).tolist(), strict=True):
        weight = share[seen[0]]
        for before, after in pairwise(seen):
            weight *= share[after] if points == 1 else chain[before][after]
        weights.append(weight)
    return [w / sum(weights) for w in weights]


def by_hand(name: str, seen: list[int], chains: torch.Tensor, c: float) -> list[float]:
    """One predictor after the states seen, straight from its definition."""
    states = range(N_STATES)
    if name == "one_gen":
        prior = N_STATES * c + 1 - 1 / N_STATES
        return [(seen.count(s) + prior) / (len(seen) + N_STATES * prior) for s in states]
    pairs = list(pairwise(seen))
    if name == "two_gen":
        departures = sum(a == seen[-1] for a, _ in pairs)
        return [(pairs.count((seen[-1], s)) + c) / (departures + N_STATES * c) for s in states]
    weights = weights_by_hand(seen, chains, 2 if name == "two_mem" else 1)
    rows = stationary(chains) if name == "one_mem_stationary" else chains[:, seen[-1]]
    return [sum(w * row[s] for w, row in zip(weights, rows.tolist(), strict=True)) for s in states]


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("dirichlet", [1.0, 0.4])
def test_every_predictor_is_its_definition(
    name: str, dirichlet: float, tokens: torch.Tensor, chains: torch.Tensor
) -> None:
    answer = predict_all(tokens, N_STATES, chains, dirichlet)[name]
    expected = [
        [by_hand(name, row[: pos + 1], chains, dirichlet) for pos in range(LENGTH)]
        for row in tokens.tolist()
    ]
    torch.testing.assert_close(answer.exp(), torch.tensor(expected, dtype=torch.float64))


def test_two_gen_worked_by_hand() -> None:
    answer = two_gen(torch.tensor([[0, 1, 0, 1, 1]]), 2).exp()[0]
    # At the end the current state is 1; it was followed once by 0 and once by 1.
    expected = [[1 / 2, 1 / 2], [1 / 2, 1 / 2], [1 / 3, 2 / 3], [2 / 3, 1 / 3], [1 / 2, 1 / 2]]
    torch.testing.assert_close(answer, torch.tensor(expected, dtype=torch.float64))


def test_predictions_do_not_look_ahead(tokens: torch.Tensor, chains: torch.Tensor) -> None:
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % N_STATES
    before, after = (predict_all(t, N_STATES, chains) for t in (tokens, changed))
    for name in PREDICTORS:
        torch.testing.assert_close(before[name][:, :5], after[name][:, :5])
        assert not torch.allclose(before[name][:, 5:], after[name][:, 5:])


def test_answers_are_normalised_and_do_not_depend_on_the_pieces(
    tokens: torch.Tensor, chains: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = predict_all(tokens, N_STATES, chains)
    monkeypatch.setattr(memorising_predictors, "ELEMENTS", 1)
    single = predict_all(tokens, N_STATES, chains)
    assert tuple(whole) == tuple(PREDICTORS)
    for name, answer in whole.items():
        torch.testing.assert_close(single[name], answer)
        torch.testing.assert_close(answer.exp().sum(-1), torch.ones_like(answer[..., 0]))


def test_without_chains_nothing_is_remembered(tokens: torch.Tensor) -> None:
    assert set(predict_all(tokens, N_STATES)) == set(PREDICTORS) - set(MEMORISING)


def test_one_known_chain_is_simply_read_out(tokens: torch.Tensor, chains: torch.Tensor) -> None:
    only = chains[:1]
    torch.testing.assert_close(two_mem(tokens, only).exp(), only[0][tokens])
    torch.testing.assert_close(one_mem_transition(tokens, only).exp(), only[0][tokens])
    share = stationary(only).expand(len(tokens), LENGTH, N_STATES)
    torch.testing.assert_close(one_mem_stationary(tokens, only).exp(), share)


def mean_loss(log_probs: torch.Tensor, tokens: torch.Tensor) -> float:
    return -log_probs[:, :-1].gather(-1, tokens[:, 1:, None]).mean().item()


def test_two_mem_is_best_with_the_right_chains_and_bad_with_others() -> None:
    generator = torch.Generator().manual_seed(2)
    chains = draw_chains(8, 5, 1.0, generator)
    uniform = torch.rand(200, 40, generator=generator, dtype=torch.float64)
    tokens = ChainSampler.of(chains).sample(torch.arange(200) % 8, uniform)
    losses = {k: mean_loss(v, tokens) for k, v in predict_all(tokens, 5, chains).items()}
    assert min(losses, key=losses.__getitem__) == "two_mem"
    others = draw_chains(8, 5, 1.0, generator)
    assert mean_loss(two_mem(tokens, others), tokens) > losses["one_gen"]
    next_shuffled = chains[:, :, [1, 2, 3, 4, 0]]
    assert mean_loss(two_mem(tokens, next_shuffled), tokens) > losses["one_gen"]


def test_the_posterior_finds_the_chain() -> None:
    generator = torch.Generator().manual_seed(3)
    chains = draw_chains(16, 6, 1.0, generator)
    own = torch.arange(64) % 16
    uniform = torch.rand(64, 80, generator=generator, dtype=torch.float64)
    found = chain_log_posterior(ChainSampler.of(chains).sample(own, uniform), chains).argmax(-1)
    right = (found == own[:, None]).double().mean(0)
    assert right[-1] > 0.95
    assert right[0] < 0.5


def test_thousands_of_steps_do_not_underflow() -> None:
    chains = draw_chains(3, 4, 1.0, torch.Generator().manual_seed(4))
    tokens = torch.arange(4).repeat(500)[None]
    for answer in predict_all(tokens, 4, chains).values():
        assert answer.isfinite().all()
    # Had the weights been plain products they would all have been zero.
    assert math.exp(chains[0, 0, 1].log().item() * 2000) == 0.0


def test_impossible_transitions_stay_finite() -> None:
    cycle = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    mixed = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    tokens = torch.tensor([[0, 1, 0, 0]])
    answer = two_mem(tokens, torch.stack([cycle, mixed])).exp()[0]
    assert answer[2, 1] > 0.75  # the cycle is likely so far
    torch.testing.assert_close(answer[3], torch.full((2,), 0.5, dtype=torch.float64))
    assert two_mem(tokens, cycle[None]).isfinite().all()


def width_ratio(n_states: int, dirichlet: float, c0: float) -> float:
    """Variance of stationary probabilities of random chains over that of a Dirichlet(c0)."""
    chains = draw_chains(40_000 // n_states, n_states, dirichlet, torch.Generator().manual_seed(5))
    expected = (1 / n_states) * (1 - 1 / n_states) / (n_states * c0 + 1)
    return stationary(chains).var(0).mean().item() / expected


def test_matched_prior_is_as_wide_as_the_stationary_distributions() -> None:
    ratios = [width_ratio(c, 1.0, matched_concentration(c)) for c in (5, 10, 40)]
    assert 1.25 < ratios[0] < 1.4  # leading order only
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] == pytest.approx(1.0, abs=0.06)
    assert width_ratio(8, 3.0, matched_concentration(8, 3.0)) == pytest.approx(1.0, abs=0.1)
    # A prior as wide as one row, the control, is several times too wide.
    assert width_ratio(10, 1.0, 1.0) < 0.2


def test_matched_prior_for_uniform_rows() -> None:
    assert matched_concentration(8) == pytest.approx(8 + 1 - 1 / 8)


def test_wrong_tokens_and_chains_are_refused(tokens: torch.Tensor, chains: torch.Tensor) -> None:
    with pytest.raises(InputError, match="tokens run from 0 to 2, but a chain of 2 states"):
        one_gen(tokens, 2)
    with pytest.raises(InputError, match=r"shape \(4, 3, 3\) are not transition matrices.*sum to"):
        two_mem(tokens, 2 * chains)
    with pytest.raises(InputError, match="not transition matrices"):
        one_mem_stationary(tokens, chains - 0.5)
