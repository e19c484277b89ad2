"""Left padding = right padding = no padding, and what hooks give (TransformerLens#1609)."""

import pytest
import torch

from circuits import InputError, edge_effects, edge_gradients
from circuits.ablation import partners, position_mean
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.slow_edges import slow_effects, written_by

LENGTHS = (4, 6, 6, 4)
PAD = 0
POSITIONS = ["LN", "rotary", "shortformer", "alibi", "local attention", "grouped keys and values"]


def padded(side, seed=1):
    tokens = random_tokens(4, 6, seed=seed)
    mask = torch.ones(4, 6, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        body = tokens[row, :length].clone()
        pad = slice(0, 6 - length) if side == "left" else slice(length, 6)
        real = slice(6 - length, 6) if side == "left" else slice(0, length)
        tokens[row, pad], mask[row, pad], tokens[row, real] = PAD, 0, body
    return tokens, mask


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("ablation", ["zero", "mean", "resample", "patch"])
@pytest.mark.parametrize("metric", ["kl", "loss"])
def test_left_equals_right(name, ablation, metric):
    """With "loss" the last column is not scored: left, it holds tokens of short rows too."""
    model = tiny_model(**ARCHITECTURES[name])
    results = []
    for side in ("left", "right"):
        clean, mask = padded(side)
        corrupt = padded(side, seed=2)[0] if ablation == "patch" else None
        results.append(
            edge_effects(
                model, clean, metric, ablation=ablation, corrupt=corrupt, attention_mask=mask
            ).per_example
        )
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)
    assert results[0].abs().max() > 1e-2


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("metric", ["kl", "loss"])
def test_padded_equals_unpadded_row_by_row(side, metric):
    model = tiny_model()
    clean, mask = padded(side)
    corrupt = padded(side, seed=2)[0]
    together = edge_effects(model, clean, metric, corrupt=corrupt, attention_mask=mask)
    for row in range(4):
        real = mask[row].bool()
        one = clean[row : row + 1, real], corrupt[row : row + 1, real]
        alone = edge_effects(model, one[0], metric, corrupt=one[1])
        torch.testing.assert_close(
            together.per_example[:, row], alone.per_example[:, 0], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_agree_with_hooks(name, side):
    model = tiny_model(**ARCHITECTURES[name])
    clean, mask = padded(side)
    corrupt, _ = padded(side, seed=2)
    values = written_by(model, corrupt, mask)

    def metric(logits):
        return logits.log_softmax(-1)[:, :, 3].sum(1)

    fast = edge_effects(model, clean, metric, corrupt=corrupt, attention_mask=mask)
    slow = slow_effects(model, clean, metric, values, mask=mask)
    torch.testing.assert_close(
        fast.per_example, torch.stack(list(slow.values())), rtol=1e-9, atol=1e-9
    )


def test_means_count_real_tokens_at_the_same_place():
    output = torch.tensor([[1.0, 2.0, 3.0], [5.0, 7.0, 9.0]])
    left = torch.tensor([[True, True, True], [False, True, True]])
    expected = torch.tensor([[(1 + 7) / 2, (2 + 9) / 2, 3.0], [5.0, 4.0, 5.5]])
    torch.testing.assert_close(position_mean(output, left), expected)


def test_partners_have_the_same_length():
    _, mask = padded("left")
    assert partners(4, 0, mask.bool()).tolist() == [3, 2, 1, 0]
    with pytest.raises(InputError, match=r"no partner for example 0: .* of each padding"):
        partners(3, 0, mask[:3].bool())


def test_nobody_is_its_own_partner():
    for seed in range(20):
        chosen = partners(7, seed)
        assert sorted(chosen.tolist()) == list(range(7))
        assert (chosen != torch.arange(7)).all()
    assert torch.equal(partners(7, 3), partners(7, 3))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.tensor([[1, 0, 1]]), "row 0 is not one run of ones"),
        (torch.tensor([[0, 0, 0]]), "row 0 is not one run of ones"),
        (torch.tensor([[1, 2, 1]]), "must hold 0 .* and 1"),
        (torch.tensor([[1, 1]]), r"has shape \(1, 2\) but clean has \(1, 3\)"),
    ],
)
def test_bad_masks(mask, message):
    with pytest.raises(InputError, match=f"attention_mask {message}"):
        edge_effects.__wrapped__(
            tiny_model(), random_tokens(1, 3), "kl", ablation="zero", attention_mask=mask
        )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["eap", "eap-ig-inputs", "eap-ig-activations"])
def test_gradients_of_padded_rows_are_those_of_unpadded_ones(side, method):
    """Queries that stand before the first token see nothing, and have a gradient of zero."""
    model = tiny_model()
    clean, mask = padded(side)
    corrupt = padded(side, seed=2)[0]
    options = {"method": method, "steps": 3}
    together = edge_gradients(
        model, clean, "loss", corrupt=corrupt, attention_mask=mask, **options
    ).per_example
    assert together.isfinite().all()
    for row in range(4):
        real = mask[row].bool()
        one, other = clean[row : row + 1, real], corrupt[row : row + 1, real]
        alone = edge_gradients(model, one, "loss", corrupt=other, **options).per_example
        torch.testing.assert_close(together[:, row], alone[:, 0], rtol=1e-9, atol=1e-12)
