import math

import pytest
import torch

from circuits.errors import InputError
from mechinterp.minimal_models import chain_sample
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.symmetric_attention import (
    SymmetricAttention,
    losses,
    predict,
    slopes,
    token_weights,
)
from mechinterp.predictors import two_gen

MODELS = (
    SymmetricAttention(),
    SymmetricAttention(beta=1.3, delta=0.7),
    SymmetricAttention(beta=-0.8, delta=2.0, alpha=0.9),
    SymmetricAttention(beta=2.0, delta=-1.0, alpha=-0.4, mu=0.3),
    SymmetricAttention(beta=1.1, delta=3.0, mu=1.0),
)


def as_written(model: SymmetricAttention, x: list[int], n_states: int) -> list[float]:
    """The equations, index by index."""
    n = len(x)

    def softmax(scores: list[float]) -> list[float]:
        powers = [math.exp(s) for s in scores]
        return [p / sum(powers) for p in powers]

    h = []
    for m in range(n):
        scores = [model.delta * (j == m - 1) + model.alpha * (x[j] == x[m]) for j in range(m + 1)]
        row = [0.0] * n_states
        for j, weight in enumerate(softmax(scores)):
            row[x[j]] += weight
        h.append(row)
    second = softmax([model.beta * h[m][x[-1]] for m in range(n)])
    pooled = [0.0] * n_states
    for m, weight in enumerate(second):
        for s in range(n_states):
            pooled[s] += weight * ((1 - model.mu) * (x[m] == s) + model.mu * h[m][s])
    return [(n * value + 1) / (n + n_states) for value in pooled]


def sample_of(tokens: list[int], n_states: int) -> ChainSample:
    return ChainSample(torch.tensor([tokens]), torch.full((1, n_states), 1 / n_states).double())


@pytest.fixture(scope="module")
def sample() -> ChainSample:
    return draw_sample(6, 4, 17, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("model", MODELS)
def test_closed_form_equals_the_equations_index_by_index(
    model: SymmetricAttention, sample: ChainSample
):
    slow = [as_written(model, x, 4) for x in sample.tokens.tolist()]
    torch.testing.assert_close(predict(model, sample), torch.tensor(slow).double())


def test_without_attention_it_is_the_smoothed_unigram_exactly(sample: ChainSample):
    counts = torch.nn.functional.one_hot(sample.tokens, 4).sum(1).double()
    torch.testing.assert_close(
        predict(SymmetricAttention(), sample), (counts + 1) / (17 + 4), rtol=1e-14, atol=0
    )


def test_strong_attention_by_hand():
    # 0 1 0 2 0 asks what follows 0: states 1 and 2, and the first state, whose only key is itself.
    answer = predict(SymmetricAttention(beta=200.0, delta=200.0), sample_of([0, 1, 0, 2, 0], 3))
    third = (5 / 3 + 1) / 8
    torch.testing.assert_close(answer, torch.full((1, 3), third).double())


def test_strong_attention_tends_to_two_gen_and_no_attention_does_not():
    long = draw_sample(300, 3, 800, torch.Generator().manual_seed(1))
    gaps = {}
    for length in (100, 800):
        part = long.last(length)
        target = two_gen(part.tokens, 3)[:, -1]
        for name, strength in (("strong", 60.0), ("none", 0.0)):
            log_p = predict(SymmetricAttention(strength, strength), part).log()
            kl = (target.exp() * (target - log_p)).sum(-1)
            gaps[name, length] = kl.mean().item()
    assert gaps["strong", 800] < 1e-3 < gaps["strong", 100] < 0.03
    assert gaps["none", 800] > gaps["none", 100] > 0.1


@pytest.mark.parametrize("model", MODELS)
def test_token_weights_are_a_distribution(model: SymmetricAttention, sample: ChainSample):
    full = torch.ones(6, dtype=torch.float64)
    weights = token_weights(
        sample.tokens, full * model.beta, full * model.delta, model.alpha, model.mu, 4
    )
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(1), full)


def test_losses_are_cross_entropies_with_the_true_row(sample: ChainSample):
    model = MODELS[1]
    p = predict(model, sample)
    by_hand = [
        -sum(float(q) * math.log(float(v)) for q, v in zip(sample.next_row[i], p[i], strict=True))
        for i in range(6)
    ]
    torch.testing.assert_close(losses(model, sample), torch.tensor(by_hand).double())
    assert losses(model, sample).mean().item() > sample.entropy


@pytest.mark.parametrize("model", MODELS)
def test_slopes_are_those_of_the_losses(model: SymmetricAttention, sample: ChainSample):
    found, eps = slopes(model, sample), 1e-5
    for name in ("beta", "delta"):
        up, down = (
            losses(SymmetricAttention(**{**vars(model), name: vars(model)[name] + d}), sample)
            for d in (eps, -eps)
        )
        torch.testing.assert_close(
            getattr(found, name), (up - down) / (2 * eps), rtol=1e-6, atol=1e-9
        )
    torch.testing.assert_close(found.loss, losses(model, sample))


def test_pieces_change_nothing(sample: ChainSample, monkeypatch: pytest.MonkeyPatch):
    whole = slopes(MODELS[3], sample)
    monkeypatch.setattr(chain_sample, "ELEMENTS", 1)
    torch.testing.assert_close(slopes(MODELS[3], sample).delta, whole.delta, rtol=0, atol=1e-15)


def test_relabelling_the_states_relabels_the_answer(sample: ChainSample):
    new_name = torch.tensor([2, 0, 3, 1])
    renamed = ChainSample(new_name[sample.tokens], sample.next_row)
    torch.testing.assert_close(predict(MODELS[3], renamed)[:, new_name], predict(MODELS[3], sample))


@pytest.mark.parametrize(
    ("scalars", "wording"),
    [
        ({"beta": math.nan}, r"beta is nan; it has to be in -500\.\.500: .* smaller learning rate"),
        ({"delta": 501.0}, r"delta is 501; it has to be in -500\.\.500"),
        ({"mu": 1.5}, r"mu is 1.5; it is a share and has to be in 0\.\.1"),
    ],
)
def test_errors_say_what_is_allowed(scalars: dict[str, float], wording: str):
    with pytest.raises(InputError, match=wording):
        SymmetricAttention(**scalars)
