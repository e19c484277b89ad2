from itertools import pairwise

import pytest
import torch

from circuits.errors import InputError
from mechinterp.minimal_models.encode_pool_decode import (
    EncodePoolDecode,
    Weights,
    initial_weights,
    pair_codes,
    pair_shares,
    pool_logits,
    task_vectors,
)

MODEL = EncodePoolDecode(n_states=3, d_task=4, d_hidden=8, d_encoder=16)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return initial_weights(MODEL, torch.Generator().manual_seed(0))


def as_written(weights: Weights, x: list[int]) -> torch.Tensor:
    """The three equations of section 6b at the last position, on concatenated one-hot vectors."""
    one_hot = torch.eye(3)
    codes = []
    for before, now in pairwise(x):
        pair = torch.cat([one_hot[before], one_hot[now]])
        hidden = torch.relu(pair @ weights["W_pair"] + weights["b_pair"])
        codes.append(hidden @ weights["W_code"] + weights["b_code"])
    task = torch.stack(codes).mean(0) if codes else torch.zeros(4)
    both = torch.cat([task, one_hot[x[-1]]])
    decoder = torch.cat([weights["W_task"], weights["W_state"]])
    hidden = torch.relu(both @ decoder + weights["b_hidden"])
    return hidden @ weights["W_out"] + weights["b_out"]


def test_forward_equals_the_equations(weights: Weights):
    tokens = torch.tensor([[0, 1, 1, 2, 0], [2, 0, 2, 2, 1]])
    logits = pool_logits(weights, tokens)
    for row, x in enumerate(tokens.tolist()):
        for pos in range(5):
            torch.testing.assert_close(logits[row, pos], as_written(weights, x[: pos + 1]))


def test_only_the_multiset_of_pairs_and_the_last_state_count(weights: Weights):
    # Both hold the pairs 01, 10, 02, 20 once; the third holds others.
    tokens = torch.tensor([[0, 1, 0, 2, 0], [0, 2, 0, 1, 0], [0, 1, 2, 1, 0]])
    last = pool_logits(weights, tokens)[:, -1]
    torch.testing.assert_close(last[0], last[1])
    assert (last[0] - last[2]).abs().max() > 1e-3


def test_shares_of_pairs_give_the_same_task_vectors(weights: Weights):
    tokens = torch.randint(3, (4, 9), generator=torch.Generator().manual_seed(1))
    places = torch.tensor([[0, 3], [8, 8], [1, 2], [5, 0]])
    shares = pair_shares(tokens, places, 3)
    whole = task_vectors(weights, tokens)
    for row in range(4):
        for at, place in enumerate(places[row].tolist()):
            torch.testing.assert_close(shares[row, at] @ pair_codes(weights), whole[row, place])
            assert shares[row, at].sum().item() == pytest.approx(float(place > 0))


def test_codes_start_centred_and_of_the_size_that_pooling_needs():
    codes = pair_codes(initial_weights(EncodePoolDecode(), torch.Generator().manual_seed(0)))
    assert codes.mean(0).abs().max() < 1e-5
    assert 2.0 < codes.std().item() < 10.0


def test_errors_say_what_is_allowed():
    with pytest.raises(InputError, match="d_task is 0; it has to be at least 1"):
        EncodePoolDecode(d_task=0)
    with pytest.raises(InputError, match="n_states is 1; it has to be at least 2"):
        EncodePoolDecode(n_states=1)
