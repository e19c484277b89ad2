"""The logit lens and direct logit attribution against hand-worked models and second routes."""

import math

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.direct_attribution import logit_attribution
from circuits.errors import InputError
from circuits.lens import logit_lens
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model

TOKENS = random_tokens(5, 8)
SCORED = (2, 4, 6)
LINEAR = [name for name in ARCHITECTURES if name != "logit soft cap"]


def doubling_model():
    """No norm, four tokens; embed fills slot 0, and each of 2 heads adds slot 0 to the read slot.

    So on one-token sequences the embedding says nothing, and the heads give the token itself a
    logit of 1 each.
    """
    model = HookedTransformer(
        HookedTransformerConfig(
            n_layers=1,
            d_model=8,
            n_ctx=2,
            d_head=4,
            n_heads=2,
            d_vocab=4,
            attn_only=True,
            normalization_type=None,
            seed=0,
            dtype=torch.float64,
        )
    )
    for parameter in model.parameters():
        parameter.data.zero_()
    one = torch.eye(4, dtype=torch.float64)
    model.embed.W_E.data[:, :4] = one
    model.unembed.W_U.data[4:] = one
    model.blocks[0].attn.W_V.data[:, :4] = one
    model.blocks[0].attn.W_O.data[:, :, 4:] = one
    return model


ONE = torch.tensor([[0], [3]])


def test_the_lens_of_a_model_worked_out_by_hand():
    """Nothing, then a logit of 2 against three of 0."""
    table = logit_lens(doubling_model(), ONE, targets=ONE).table
    assert table["stream"].tolist() == ["embed", "resid_post 0"]
    assert table["layer"].tolist() == [-1, 0]
    first, last = table.iloc[0], table.iloc[1]
    assert first["probability"] == pytest.approx(0.25)
    assert first["rank"] == pytest.approx(2.5)
    assert first["entropy"] == pytest.approx(math.log(4))
    share = math.exp(2) / (math.exp(2) + 3)
    assert last["probability"] == pytest.approx(share)
    assert last["rank"] == 1.0
    assert last["loss"] == pytest.approx(-math.log(share))
    rest = (1 - share) / 3
    assert last["entropy"] == pytest.approx(-share * math.log(share) - 3 * rest * math.log(rest))
    # The control: a wrong target ties with the two others behind the right one.
    wrong = logit_lens(doubling_model(), ONE, targets=(ONE + 1) % 4).table.iloc[1]
    assert wrong["rank"] == 3.0
    assert wrong["probability"] == pytest.approx(rest)


@pytest.mark.parametrize("name", ["LN", "no norm", "parallel", "logit soft cap", "shortformer"])
def test_every_stream_is_read_as_by_hand_and_the_last_is_the_model(name):
    model = tiny_model(scale=0.3, **ARCHITECTURES[name])
    found = logit_lens(model, TOKENS, scored=SCORED)
    target = TOKENS[:, [p + 1 for p in SCORED]]
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
        streams = [cache["resid_pre", 0], cache["resid_post", 0], cache["resid_post", 1]]
        for row, stream in enumerate(streams):
            normed = model.ln_final(stream) if model.cfg.normalization_type else stream
            logits = (normed @ model.unembed.W_U + model.unembed.b_U)[:, list(SCORED)]
            if model.cfg.output_logits_soft_cap > 0:
                cap = model.cfg.output_logits_soft_cap
                logits = cap * torch.tanh(logits / cap)
            p = logits.softmax(-1)
            right = p.gather(-1, target[..., None])[..., 0]
            order = (-logits).argsort(-1).argsort(-1)
            rank = 1.0 + order.gather(-1, target[..., None])[..., 0]
            for unit, wanted in {
                "probability": right,
                "loss": -right.log(),
                "entropy": -(p * p.log()).sum(-1),
                "rank": rank.double(),
            }.items():
                torch.testing.assert_close(
                    found.per_example[unit][row], wanted.mean(-1), rtol=0, atol=1e-10
                )
        own = model(TOKENS)[:, list(SCORED)].log_softmax(-1).gather(-1, target[..., None])
    assert found.table["loss"].iloc[-1] == pytest.approx(-own.mean().item())


def test_each_head_adds_half_of_the_answer_on_paper():
    """Logits 2, 0, 0, 0: against another token each head adds 1, against the mean 3/4."""
    model = doubling_model()
    for norm in ("frozen", "recomputed"):
        found = logit_attribution(model, ONE, answers=ONE, contrasts=(ONE + 1) % 4, norm=norm)
        assert found.table["source"].tolist() == ["bias", "embed", "L0H0", "L0H1"]
        assert found.table["contribution"].tolist() == [0.0, 0.0, 1.0, 1.0]
        assert found.total.tolist() == [2.0, 2.0]
        mean = logit_attribution(model, ONE, answers=ONE, norm=norm)
        assert mean.table["contribution"].tolist() == [0.0, 0.0, 0.75, 0.75]


@pytest.mark.parametrize("norm", ["frozen", "recomputed"])
@pytest.mark.parametrize("name", LINEAR)
def test_contributions_sum_to_the_logit_difference(name, norm):
    model = tiny_model(**ARCHITECTURES[name])
    wrong = random_tokens(5, 3, seed=9)
    found = logit_attribution(model, TOKENS, contrasts=wrong, scored=SCORED, norm=norm)
    right = TOKENS[:, [p + 1 for p in SCORED]]
    with torch.no_grad():
        logits = model(TOKENS)[:, list(SCORED)]
    gap = logits.gather(-1, right[..., None]) - logits.gather(-1, wrong[..., None])
    wanted = gap[..., 0].mean(-1)
    torch.testing.assert_close(found.total, wanted, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.per_example.sum(0), wanted, rtol=0, atol=1e-7)
    # The control: one source left out, and they no longer do.
    assert (found.per_example[1:].sum(0) - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["LN", "LNPre", "RMS", "no norm"])
def test_a_frozen_share_is_what_removing_the_source_takes_with_the_scale_held(name):
    """Second route: TransformerLens's own norm with its scale pinned by a hook."""
    model = tiny_model(**ARCHITECTURES[name])
    found = logit_attribution(model, TOKENS, scored=SCORED)
    right = TOKENS[:, [p + 1 for p in SCORED]]
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
        final = cache["resid_post", 1]
        writes = {
            "L0H1": cache["z", 0][:, :, 1] @ model.W_O[0, 1],
            "M1": cache["mlp_out", 1],
            "embed": cache["resid_pre", 0],
        }

        def reading(stream):
            hooks = []
            if model.cfg.normalization_type is not None:
                scale = cache["ln_final.hook_scale"]
                hooks = [("ln_final.hook_scale", lambda x, hook: scale)]
            logits = model.run_with_hooks(stream, start_at_layer=2, fwd_hooks=hooks)
            logits = logits[:, list(SCORED)]
            return (logits.gather(-1, right[..., None])[..., 0] - logits.mean(-1)).mean(-1)

        for source, write in writes.items():
            row = found.table["source"].tolist().index(source)
            wanted = reading(final) - reading(final - write)
            torch.testing.assert_close(found.per_example[row], wanted, rtol=0, atol=1e-9)


def test_recomputed_shares_add_up_to_the_lens():
    """Without attention biases, bias + embed is the reading of the embedding."""
    model = tiny_model(attn_only=True)
    for block in model.blocks:
        block.attn.b_O.data.zero_()
    found = logit_attribution(model, TOKENS, scored=SCORED, norm="recomputed")
    right = TOKENS[:, [p + 1 for p in SCORED]]
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
        stops = {2: cache["resid_pre", 0], 4: cache["resid_post", 0], 6: cache["resid_post", 1]}
        for n, stream in stops.items():
            logits = model.unembed(model.ln_final(stream))[:, list(SCORED)]
            wanted = (logits.gather(-1, right[..., None])[..., 0] - logits.mean(-1)).mean(-1)
            torch.testing.assert_close(found.per_example[:n].sum(0), wanted, rtol=0, atol=1e-9)


def test_frozen_and_recomputed_are_two_different_questions():
    model = tiny_model()
    frozen = logit_attribution(model, TOKENS, scored=SCORED)
    recomputed = logit_attribution(model, TOKENS, scored=SCORED, norm="recomputed")
    assert (frozen.per_example - recomputed.per_example).abs().max() > 1e-2
    assert frozen.provenance["norm"] == "frozen"


def test_a_soft_cap_can_be_attributed_in_causal_order_only():
    model = tiny_model(output_logits_soft_cap=2.0)
    with pytest.raises(InputError, match="norm='recomputed'"):
        logit_attribution(model, TOKENS)
    found = logit_attribution(model, TOKENS, norm="recomputed")
    torch.testing.assert_close(found.per_example.sum(0), found.total, rtol=0, atol=1e-9)


def test_the_model_is_left_as_found():
    model = tiny_model()
    model.train()
    before = torch.get_rng_state()
    logit_lens(model, TOKENS)
    logit_attribution(model, TOKENS)
    assert model.training
    assert torch.is_grad_enabled()
    assert torch.equal(before, torch.get_rng_state())
    assert all(not point.fwd_hooks for point in model.hook_dict.values())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("call", [logit_lens, logit_attribution])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scored": [9]}, ["9", "8"]),
        ({"scored": [7]}, ["last position 7"]),
        ({"tokens": TOKENS + 11}, ["vocabulary of 11"]),
        ({"tokens": TOKENS.repeat(1, 3)}, ["n_ctx is 9"]),
        ({"tokens": TOKENS[:0]}, ["empty"]),
    ],
)
def test_a_mistake_gets_one_line_that_says_what_is_allowed(call, given, words):
    with pytest.raises(InputError) as error:
        call(tiny_model(), given.get("tokens", TOKENS), scored=given.get("scored"))
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_answers_of_another_shape_or_outside_the_vocabulary_are_refused():
    model = tiny_model()
    with pytest.raises(InputError, match=r"targets has shape \(5, 2\).*must be \(5, 3\)"):
        logit_lens(model, TOKENS, targets=TOKENS[:, :2], scored=SCORED)
    with pytest.raises(InputError, match="contrasts holds token id 11"):
        logit_attribution(model, TOKENS, contrasts=TOKENS[:, :3] * 0 + 11, scored=SCORED)
    with pytest.raises(InputError, match="'thawed' is unknown; choose 'frozen' or 'recomputed'"):
        logit_attribution(model, TOKENS, norm="thawed")
    both = tiny_model(normalization_type="RMS", use_normalization_before_and_after=True)
    with pytest.raises(InputError, match="use_normalization_before_and_after"):
        logit_attribution(both, TOKENS)
