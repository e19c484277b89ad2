"""Attention patterns and knockout: hand-worked patterns, and a softmax done again by hand."""

import math

import pytest
import torch

from circuits.attention_by_group import attention_patterns
from circuits.attention_knockout import knocked_out, knockout_effects
from circuits.errors import InputError
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model

TOKENS = random_tokens(5, 6)
SCORED = (3, 5)


def uniform_model():
    model = tiny_model()
    for block in model.blocks:
        block.attn.W_Q.data.zero_()
        block.attn.b_Q.data.zero_()
    return model


def test_uniform_attention_has_the_shares_and_the_entropy_of_counting():
    found = attention_patterns(uniform_model(), TOKENS, {"start": (0, 1), "late": (3, 5)})
    table = found.table.set_index(["head", "query", "key"])["attention"]
    # Positions 3 and 5 see 4 and 6 keys, two of which are the start.
    assert table["L0H0", "late", "start"] == pytest.approx((2 / 4 + 2 / 6) / 2)
    # Of the late keys, position 3 sees itself and position 5 sees both.
    assert table["L1H1", "late", "late"] == pytest.approx((1 / 4 + 2 / 6) / 2)
    assert table["L0H0", "start", "late"] == 0.0
    width = found.entropies.set_index(["head", "query"])
    by_hand = (math.log(4) + math.log(6)) / 2
    assert width.loc[("L0H1", "late"), "entropy"] == pytest.approx(by_hand)
    assert width.loc[("L0H1", "late"), "uniform"] == pytest.approx(by_hand)
    # The control: attention that is not uniform is narrower.
    trained = attention_patterns(tiny_model(), TOKENS, {"late": (3, 5)}).entropies
    assert (trained["entropy"] < trained["uniform"] - 0.05).all()


def test_a_head_that_looks_back_by_one_on_paper():
    """Scores of 50 for the position before: its pattern is a shifted diagonal."""
    model = uniform_model()
    back = torch.zeros(6, 6, dtype=torch.float64)
    for query in range(1, 6):
        back[query, query - 1] = 50.0
    model.add_hook("blocks.0.attn.hook_attn_scores", lambda scores, hook: scores + back)
    found = attention_patterns(model, TOKENS, heads=["L0H1"])
    model.reset_hooks()
    table = found.table.set_index(["query", "key"])["attention"]
    assert table["4", "3"] == pytest.approx(1.0)
    assert table["4", "4"] == pytest.approx(0.0, abs=1e-12)
    assert found.entropies["entropy"].max() < 1e-12
    assert list(found.mean) == ["L0H1"]
    assert found.mean["L0H1"][4, 3].item() == pytest.approx(1.0)


def test_groups_that_cover_all_keys_sum_to_one_and_mean_is_the_cache():
    model = tiny_model()
    found = attention_patterns(model, TOKENS, {"left": (0, 1, 2), "right": (3, 4, 5)})
    sums = found.table.groupby(["head", "query"])["attention"].sum()
    assert sums.to_numpy() == pytest.approx(1.0)
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
    torch.testing.assert_close(found.mean["L1H0"], cache["pattern", 1][:, 0].mean(0))


def cut_by_hand(model, head, queries, keys):
    """Zeroes the links after the softmax and makes each row sum to one again."""
    layer, index = head

    def cut(pattern, hook):
        pattern = pattern.clone()
        for query in queries:
            row = pattern[:, index, query]
            row[:, [key for key in keys if key <= query]] = 0.0
            pattern[:, index, query] = row / row.sum(-1, keepdim=True)
        return pattern

    with torch.no_grad():
        return model.run_with_hooks(TOKENS, fwd_hooks=[(f"blocks.{layer}.attn.hook_pattern", cut)])


def loss(logits):
    target = TOKENS[:, :2]
    return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].mean(-1)


@pytest.mark.parametrize("name", ["LN", "rotary", "grouped keys and values", "parallel"])
def test_a_knockout_is_a_softmax_over_the_other_keys(name):
    model = tiny_model(**ARCHITECTURES[name])
    queries, keys = (3, 5), (0, 2)
    found = knockout_effects(model, TOKENS, loss, queries, keys, scored=SCORED)
    with torch.no_grad():
        base = loss(model(TOKENS)[:, SCORED])
    heads = [(layer, head) for layer in range(2) for head in range(model.cfg.n_heads)]
    for row, head in enumerate(heads):
        wanted = loss(cut_by_hand(model, head, queries, keys)[:, SCORED]) - base
        torch.testing.assert_close(found.per_example[row], wanted, rtol=0, atol=1e-10)
    assert found.per_example.abs().mean() > 1e-3
    assert found.table["head"].tolist() == [f"L{layer}H{head}" for layer, head in heads]


def test_links_that_nobody_reads_cost_nothing():
    """The control: in the last layer a query that is not scored has no way to the metric."""
    model = tiny_model()
    found = knockout_effects(model, TOKENS, loss, (4,), (1,), scored=SCORED)
    assert found.per_example[2:].abs().max() == 0.0
    assert found.per_example[:2].abs().max() > 1e-5


def test_a_knocked_out_model_is_whole_again_afterwards():
    model = tiny_model()
    before = model(TOKENS)
    with knocked_out(model, "L0H1", (5,), (1, 2), n_pos=6) as run:
        during = run(TOKENS)
    torch.testing.assert_close(during, cut_by_hand(model, (0, 1), (5,), (1, 2)))
    assert torch.equal(during[:, :5], before[:, :5])
    assert not torch.equal(during[:, 5], before[:, 5])
    assert torch.equal(before, model(TOKENS))
    with pytest.raises(RuntimeError, match="inside"), knocked_out(model, "L0H1", (5,), (1,), 6):
        raise RuntimeError("inside")
    assert torch.equal(before, model(TOKENS))
    assert all(not point.fwd_hooks for point in model.hook_dict.values())


def test_knockout_leaves_the_random_state_and_the_users_hooks():
    model = tiny_model()
    seen = []
    model.add_hook("blocks.0.hook_resid_post", lambda x, hook: seen.append(1))
    before = torch.get_rng_state()
    knockout_effects(model, TOKENS, "kl", (5,), (1,), scored=SCORED)
    assert torch.equal(before, torch.get_rng_state())
    assert seen
    assert sum(len(point.fwd_hooks) for point in model.hook_dict.values()) == 1
    model.reset_hooks()


def test_a_hook_of_the_users_own_acts_on_what_follows_the_cut():
    """A user who doubles the pattern sees the knockout of that model, not of the model without."""

    def double(pattern, hook):
        return 2 * pattern

    model = tiny_model()
    model.add_hook("blocks.0.attn.hook_pattern", double)
    with torch.no_grad():
        base = loss(model(TOKENS)[:, SCORED])
    found = knockout_effects(model, TOKENS, loss, (3, 5), (0, 2), ["L0H1"], scored=SCORED)
    with torch.no_grad(), knocked_out(model, "L0H1", (3, 5), (0, 2), n_pos=6) as run:
        wanted = loss(run(TOKENS)[:, SCORED]) - base
    torch.testing.assert_close(found.per_example[0], wanted, rtol=0, atol=1e-10)
    model.reset_hooks()
    plain = knockout_effects(model, TOKENS, loss, (3, 5), (0, 2), ["L0H1"], scored=SCORED)
    assert (plain.per_example - found.per_example).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: attention_patterns(m, TOKENS, heads=["L2H0"]), ["'L2H0'", "L0H0, L0H1, L1H0"]),
        (lambda m: attention_patterns(m, TOKENS, {"z": (6,)}), ["position 6", "0 to 5"]),
        (lambda m: attention_patterns(m, TOKENS, {}), ["groups is empty"]),
        (lambda m: attention_patterns(m, TOKENS + 11), ["vocabulary of 11"]),
        (lambda m: knockout_effects(m, TOKENS, "kl", (1,), (3,)), ["no link", "looks back only"]),
        (lambda m: knockout_effects(m, TOKENS, "kl", (1,), (0, 1)), ["query 1", "no key left"]),
        (lambda m: knockout_effects(m, TOKENS, "kl", (9,), (0,)), ["position 9"]),
        (lambda m: knockout_effects(m, TOKENS, "kl", (5,), (0,), ["H1"]), ["'H1'", "L1H1"]),
        (lambda m: knockout_effects(m, TOKENS, "kl", (5,), (0,), []), ["heads is empty"]),
    ],
)
def test_a_mistake_gets_one_line_that_says_what_is_allowed(call, words):
    with pytest.raises(InputError) as error:
        call(tiny_model())
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
