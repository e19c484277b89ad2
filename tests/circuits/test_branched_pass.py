"""Continuations side by side against one sequence each, for every kind of model."""

import inspect

import pytest
import torch

from circuits.ablated_model import ablated
from circuits.branched_pass import branched_pass
from circuits.errors import InputError
from circuits.heads import head_names, parse_head
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model

N, STEM, BRANCHES, SCORED = 3, 4, 3, 3
STEMS = random_tokens(N, STEM)
CONTINUED = random_tokens(N * BRANCHES, SCORED, seed=2).view(N, BRANCHES, SCORED)
CORRUPT = random_tokens(N, STEM + SCORED - 1, seed=3)
REFERENCE = random_tokens(N, STEM + SCORED - 1, seed=4)


def alone(model, branch):
    """One branch of every example as a plain batch: log-probabilities of its tokens."""
    tokens = torch.cat([STEMS, CONTINUED[:, branch, :-1]], dim=1)
    logits = model(tokens)[:, STEM - 1 :].double().log_softmax(-1)
    return logits.gather(-1, CONTINUED[:, branch, :, None])[..., 0]


def batches(ablation):
    return {
        "zero": {},
        "mean": {"reference": REFERENCE},
        "mean-all": {"reference": REFERENCE},
        "resample": {"reference": REFERENCE},
        "patch": {"corrupt": CORRUPT},
    }[ablation]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_side_by_side_equals_one_by_one(name):
    model = tiny_model(**ARCHITECTURES[name])
    names = head_names(model)[:: len(head_names(model)) - 1]
    heads = [parse_head(model, head) for head in names]
    run = branched_pass(model, STEMS, CONTINUED, "mean", reference=REFERENCE)
    clean, found = run.clean_log_probs(), run.log_probs(heads)
    for branch in range(BRANCHES):
        torch.testing.assert_close(clean[:, branch], alone(model, branch))
        for at, head in enumerate(names):
            other = ablated(model, head, "mean", reference=REFERENCE)
            torch.testing.assert_close(found[at, :, branch], alone(other, branch))


@pytest.mark.parametrize("ablation", ["zero", "mean-all", "resample", "patch"])
def test_every_ablation_is_that_of_head_ablation(ablation):
    model, given = tiny_model(), batches(ablation)
    found = branched_pass(model, STEMS, CONTINUED, ablation, **given).log_probs([(0, 1), (1, 0)])
    for at, head in enumerate(["L0H1", "L1H0"]):
        other = ablated(model, head, ablation, **given)
        for branch in range(BRANCHES):
            torch.testing.assert_close(found[at, :, branch], alone(other, branch))
    assert (found[0] - found[1]).abs().max() > 1e-2


def test_a_branch_does_not_see_another():
    model = tiny_model()
    one = branched_pass(model, STEMS, CONTINUED).clean_log_probs()
    others = CONTINUED.clone()
    others[:, 0] = (others[:, 0] + 1) % model.cfg.d_vocab
    changed = branched_pass(model, STEMS, others).clean_log_probs()
    torch.testing.assert_close(changed[:, 1:], one[:, 1:])
    assert (changed[:, 0] - one[:, 0]).abs().min() > 1e-6
    # With the wall between branches taken down, they do see each other: the control.
    run = branched_pass(model, STEMS, others)
    open_ = type(run)(**{**vars(run), "seen": run.positions <= run.positions[:, None]})
    assert (open_.clean_log_probs()[:, 1:] - one[:, 1:]).abs().max() > 1e-3


def test_one_token_branches_and_more_examples_than_a_chunk(monkeypatch):
    monkeypatch.setattr("circuits.branched_pass.ROWS_AT_ONCE", 2)
    model = tiny_model()
    run = branched_pass(model, STEMS, CONTINUED[..., :1], "patch", corrupt=CORRUPT)
    assert run.clean_log_probs().shape == (N, BRANCHES, 1)
    whole = branched_pass(model, STEMS, CONTINUED, "patch", corrupt=CORRUPT)
    torch.testing.assert_close(run.log_probs([(0, 0)])[..., 0], whole.log_probs([(0, 0)])[..., 0])


def test_what_is_refused():
    model = tiny_model()

    def refused(match, *args, **options):
        with pytest.raises(InputError, match=match):
            branched_pass(model, STEMS, CONTINUED, *args, **options)

    refused(r"reference is missing: ablation='mean' needs sequences of 6 positions", "mean")
    refused(
        r"corrupt has 3 positions: ablation='patch' needs .* 6", "patch", corrupt=CORRUPT[:, :3]
    )
    refused(r"ablation='median' is unknown; choose one of zero, mean", "median", reference=STEMS)
    with pytest.raises(InputError, match=r"stems holds token id 20"):
        branched_pass(model, STEMS + model.cfg.d_vocab, CONTINUED)
    with pytest.raises(InputError, match=r"n_ctx is 9"):
        branched_pass(model, random_tokens(N, 8), CONTINUED)


def test_a_hooked_model_is_refused():
    model = tiny_model()
    with (
        model.hooks(fwd_hooks=[("blocks.0.hook_resid_post", lambda x, hook: x * 3.0)]),
        pytest.raises(InputError, match=r"other log-probabilities than the model itself"),
    ):
        branched_pass(model, STEMS, CONTINUED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"branches": torch.full((2, 3, 2), 99)}, "branches holds token id 99"),
        ({"branches": torch.zeros(3, 3, 2, dtype=torch.long)}, r"branches has shape \(3, 3, 2\)"),
        ({"branches": torch.zeros(2, 3, 0, dtype=torch.long)}, r"branches has shape \(2, 3, 0\)"),
        ({"reference": random_tokens(2, 4)}, "reference= is not used by ablation='zero'"),
    ],
)
def test_bad_branches_get_one_line(changes, words):
    given = {"stems": random_tokens(2, 3), "branches": torch.zeros(2, 3, 2, dtype=torch.long)}
    with pytest.raises(InputError, match=words):
        inspect.unwrap(branched_pass)(tiny_model(), **(given | changes))
