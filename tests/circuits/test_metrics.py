import math

import pytest
import torch

from circuits import InputError
from circuits.metrics import resolve_metric, scored_positions

TOKENS = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 1]])


def logits_of(*probabilities):
    """Logits whose softmax is the given rows; one example, a row a position."""
    return torch.tensor(probabilities, dtype=torch.float64).log()[None]


def test_kl_by_hand():
    clean = logits_of([0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3])
    other = logits_of([0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]) + 7.0
    metric = resolve_metric("kl", clean, TOKENS[:1], (0, 2))
    expected = (0.5 * math.log(2) - 0.25 * math.log(2)) / 2
    assert metric(other).tolist() == pytest.approx([expected])
    assert metric(clean).tolist() == pytest.approx([0.0])


def test_loss_by_hand_reads_the_next_token():
    clean = logits_of([0.5, 0.25, 0.25], [0.7, 0.2, 0.1])
    metric = resolve_metric("loss", clean, TOKENS[:1], (0, 2))
    assert metric(clean).tolist() == pytest.approx([-(math.log(0.25) + math.log(0.7)) / 2])


def test_logit_diff_by_hand():
    clean = torch.tensor([[[1.0, 5.0, 3.0], [4.0, 2.0, -1.0]]])
    metric = resolve_metric("logit_diff", clean, TOKENS[:1], (0, 2))
    assert metric(clean).tolist() == [((5 - 3) + (4 - 2)) / 2]
    corrupt = torch.tensor([[0, 0, 2, 0]])
    metric = resolve_metric("logit_diff", clean, TOKENS[:1], (0, 2), corrupt)
    assert metric(clean).tolist() == [((5 - 1) + (4 - 2)) / 2]


def test_padding_is_left_out_of_the_means():
    clean = torch.randn(2, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    real = torch.tensor([[True, True], [False, True]])
    metric = resolve_metric("loss", clean, TOKENS, (0, 2), real=real)
    nll = -clean.log_softmax(-1)
    both = (nll[0, 0, 1] + nll[0, 1, 0]) / 2
    torch.testing.assert_close(metric(clean), torch.stack([both, nll[1, 1, 1]]))
    real[1] = False
    with pytest.raises(InputError, match="leaves example 1 without a scored position"):
        resolve_metric("kl", clean, TOKENS, (0, 2), real=real)


def test_scored_positions():
    assert scored_positions("kl", None, 4) == (0, 1, 2, 3)
    assert scored_positions("loss", None, 4) == (0, 1, 2)
    assert scored_positions("kl", [-1, 0], 4) == (3, 0)
    assert scored_positions(lambda x: x, range(1, 3), 4) == (1, 2)


@pytest.mark.parametrize(
    ("metric", "scored", "message"),
    [
        ("kl", [], "names no position"),
        ("kl", [4], "holds 4, outside the 4 positions"),
        ("kl", [1, -3], "names a position twice"),
        ("loss", [3], "last position 3, whose next token is not in the batch"),
        ("logit_diff", [-1], "last position 3"),
    ],
)
def test_bad_scored_positions(metric, scored, message):
    with pytest.raises(InputError, match=message):
        scored_positions(metric, scored, 4)


def test_unknown_metric_lists_near_matches():
    with pytest.raises(InputError, match=r"'logits_diff' is not known; near matches: logit_diff"):
        resolve_metric("logits_diff", torch.zeros(2, 1, 3), TOKENS, (0,))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda x: x.mean(), r"metric returned \(\) for a batch of 2"),
        (lambda x: x.mean(-1), r"metric returned \(2, 1\) for a batch of 2"),
        (lambda x: 0.0, "metric returned float for a batch of 2"),
        (lambda x: x.argmax(-1)[:, 0], "return floating-point values"),
        (lambda x: x.mean((1, 2)) * float("nan"), "NaN or infinity"),
    ],
)
def test_bad_metrics(metric, message):
    checked = resolve_metric(metric, torch.zeros(2, 1, 3), TOKENS, (0,))
    with pytest.raises(InputError, match=message):
        checked(torch.zeros(2, 1, 3))
