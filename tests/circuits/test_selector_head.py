"""The selector head: values worked out by hand, models without one, and a second route to each."""

import math

import pandas as pd
import pytest
import torch

from circuits.errors import InputError
from circuits.onset import onsets, selector_series
from circuits.restart import record
from circuits.selector_head import selector_evidence
from circuits.selector_signals import SIGNALS, chance_of_differing, head_values
from tests.circuits.known_circuits import SHARP, selector_lookup
from tests.circuits.models import tiny_model

PLACES = {"selector": (3,), "decide": (4,), "answer": (4,), "scored": (4,)}
GAIN, N_VOCAB = 12.0, 20
CLEAN_LOSS = math.log(1 + (N_VOCAB - 1) * math.exp(-GAIN))
BLANK_LOSS = math.log(N_VOCAB)


@pytest.fixture(scope="module")
def known():
    return selector_lookup()


@pytest.fixture(scope="module")
def evidence(known):
    return selector_evidence(known.model, known.clean, known.corrupt, ablation="zero", **PLACES)


def row(evidence, head):
    return evidence.table.set_index("head").loc[head]


def test_the_head_that_fetches_the_selector_has_every_signal_at_its_value_on_paper(evidence):
    fetches_z = row(evidence, "L0H0")
    # One link, all attention: position 4 to position 3.
    assert fetches_z["attention_decide"] == pytest.approx(1.0)
    assert fetches_z["attention_answer"] == pytest.approx(1.0)
    # Another z: the wrong answer gets logit 12 and the right one 0, so the loss rises by 12.
    assert fetches_z["value_patch"] == pytest.approx(GAIN, rel=1e-5)
    # No z at all: no pair neuron fires, and all 20 tokens are alike.
    assert fetches_z["ablation"] == pytest.approx(BLANK_LOSS - CLEAN_LOSS, rel=1e-5)
    # Without its one link the head spreads over SEP, B, SEP, SEP, where it copies nothing.
    assert fetches_z["knockout_answer"] == pytest.approx(BLANK_LOSS - CLEAN_LOSS, rel=1e-5)
    assert fetches_z["knockout_after"] == pytest.approx(BLANK_LOSS - CLEAN_LOSS, rel=1e-5)
    # It writes the one-hot z and nothing else.
    assert fetches_z["ov_copying"] == pytest.approx(1.0, abs=1e-6)


def test_the_head_that_fetches_the_context_matters_but_carries_no_selector(evidence):
    fetches_b = row(evidence, "L0H1")
    assert fetches_b["ablation"] == pytest.approx(BLANK_LOSS - CLEAN_LOSS, rel=1e-5)
    for signal in SIGNALS[1:]:
        assert fetches_b[signal] == pytest.approx(0.0, abs=1e-6), signal


def test_the_verdict_names_it_with_its_margin_share_and_agreement(evidence):
    verdict = evidence.verdict
    assert verdict.head == verdict.leading == "L0H0"
    assert verdict.share == pytest.approx(1.0)
    assert verdict.margin == pytest.approx(GAIN, rel=1e-5)
    assert verdict.margin_low <= verdict.margin <= verdict.margin_high
    assert verdict.margin_low > 0
    assert verdict.agreement["value_patch"] == verdict.agreement["ov_copying"] == "L0H0"
    assert verdict.reason == "L0H0 carries 100% of the selector's effect; 7 of 7 signals name it"


def test_intervals_hold_their_values(evidence):
    for signal in SIGNALS:
        low, mean, high = (evidence.table[signal + end] for end in ("_low", "", "_high"))
        assert (low <= mean + 1e-9).all()
        assert (mean <= high + 1e-9).all()


def test_mean_ablation_leaves_a_third_of_each_selector(known):
    found = selector_evidence(known.model, known.clean, known.corrupt, **PLACES)
    # Three neurons of this B fire with 1 + 1/3 - 1, so three answers have logit 4, the rest 0.
    loss = math.log(3 * math.exp(GAIN / 3) + N_VOCAB - 3) - GAIN / 3
    assert row(found, "L0H0")["ablation"] == pytest.approx(loss - CLEAN_LOSS, rel=1e-4)


def test_a_model_that_drops_the_selector_has_no_selector_head(known):
    blind = selector_lookup()
    blind.model.blocks[0].attn.W_O[0] = 0
    found = selector_evidence(blind.model, blind.clean, blind.corrupt, **PLACES)
    assert found.verdict.head is None
    assert "does not change the metric" in found.verdict.reason
    assert math.isnan(found.verdict.share)
    # It still looks at z: attention alone would have named it.
    assert row(found, "L0H0")["attention_decide"] == pytest.approx(1.0)
    assert row(found, "L0H0")["ov_copying"] == 0
    assert row(found, "L0H0")["value_patch"] == 0


def test_a_head_that_looks_at_the_selector_and_copies_something_else_is_not_it(known):
    decoyed = selector_lookup()
    attn = decoyed.model.blocks[1].attn
    source = decoyed.model.blocks[0].attn
    with torch.no_grad():
        attn.W_Q[0], attn.W_K[0] = source.W_Q[0], source.W_K[0]
        attn.W_V[0] = 0
        attn.b_V[0] = 5.0
    found = selector_evidence(decoyed.model, decoyed.clean, decoyed.corrupt, **PLACES)
    assert row(found, "L1H0")["attention_decide"] == pytest.approx(1.0)
    assert row(found, "L1H0")["ov_copying"] == 0
    assert found.verdict.head == "L0H0"


def test_two_heads_that_share_the_work_leave_it_undecided():
    shared = selector_lookup()
    first, second = (block.attn for block in shared.model.blocks)
    with torch.no_grad():
        # L1H0 becomes a twin of L0H0, and each writes half of z.
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            getattr(second, name)[0] = getattr(first, name)[0]
        first.W_O[0] *= 0.5
        second.W_O[0] *= 0.5
    found = selector_evidence(
        shared.model, shared.clean, shared.corrupt, metric="logit_diff", **PLACES
    )
    effects = found.table.set_index("head")["value_patch"]
    # Half of each z: the right answer falls from 12 to 6, the other pair's rises from 0 to 6.
    assert effects[["L0H0", "L1H0"]].tolist() == pytest.approx([-GAIN, -GAIN], rel=1e-5)
    assert found.selector_effect.mean() == pytest.approx(-2 * GAIN)
    verdict = found.verdict
    assert verdict.head is None
    assert verdict.reason.startswith("undecided: ")
    assert verdict.share == pytest.approx(0.5)
    assert verdict.margin == pytest.approx(0.0, abs=1e-5)

    # In nats each alone costs little: the other still makes the right answer one of two.
    alone = selector_evidence(shared.model, shared.clean, shared.corrupt, **PLACES)
    half = math.log(2 + (N_VOCAB - 2) * math.exp(-GAIN / 2)) - CLEAN_LOSS
    assert row(alone, "L0H0")["value_patch"] == pytest.approx(half, rel=1e-5)
    assert "leads with only 6% of the selector's effect" in alone.verdict.reason


def test_random_weights_have_no_selector_head():
    model = tiny_model(n_layers=3, scale=0.1, d_vocab=20, n_ctx=6)
    known = selector_lookup(batch=96)
    found = selector_evidence(model, known.clean, known.corrupt, **PLACES)
    assert found.verdict.head is None


TOKEN, POS, Z = 0, 20, 26
"""Where tokens, positions and the fetched z begin in the stream of `selector_lookup`."""


def look(model, layer, head, links):
    """Makes a head look from each query position at one key position."""
    attn = model.blocks[layer].attn
    attn.W_Q[head], attn.W_K[head] = 0, 0
    for query, key in links:
        attn.W_Q[head, POS + query, key] = SHARP * model.cfg.attn_scale
        attn.W_K[head, POS + key, key] = 1


def test_a_head_that_moves_the_selector_to_a_separator_shows_only_to_all_queries():
    """`SEP B z SEP SEP A`: L0H0 takes z to position 3, L1H0 takes it on to 4, which decides."""
    known = selector_lookup()
    order = [0, 1, 3, 2, 4, 5]
    second = known.model.blocks[1].attn
    with torch.no_grad():
        look(known.model, 0, 0, [(3, 2), (4, 0)])
        look(known.model, 1, 0, [(4, 3)])
        second.W_V[0], second.W_O[0] = 0, 0
        second.W_V[0, Z : Z + 3, :3] = torch.eye(3)
        second.W_O[0, :3, Z : Z + 3] = torch.eye(3)
    found = selector_evidence(
        known.model,
        known.clean[:, order],
        known.corrupt[:, order],
        selector=(2,),
        decide=(4,),
        answer=(4,),
        scored=(4,),
    )
    first = row(found, "L0H0")
    assert first["knockout_after"] == pytest.approx(BLANK_LOSS - CLEAN_LOSS, rel=1e-5)
    assert first["value_patch"] == pytest.approx(GAIN, rel=1e-5)
    for unseen in ("knockout_answer", "attention_decide", "ov_copying"):
        assert first[unseen] == pytest.approx(0.0, abs=1e-6), unseen
    assert row(found, "L1H0")["value_patch"] == pytest.approx(0.0, abs=1e-6)
    assert row(found, "L1H0")["ablation"] > 1
    assert found.verdict.head == "L0H0"


def test_every_signal_has_a_second_route_on_a_random_model():
    model = tiny_model(seed=2)
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(0, 11, (12, 8), generator=generator)
    corrupt = clean.clone()
    corrupt[:, 2:4] = (clean[:, 2:4] + torch.randint(1, 11, (12, 2), generator=generator)) % 11
    scored = (5, 6)
    found = selector_evidence(
        model, clean, corrupt, selector=(2, 3), decide=(5,), answer=(5, 6), scored=scored
    )

    def loss(logits):
        log = logits[:, list(scored)].log_softmax(-1)
        return -log.gather(-1, clean[:, [6, 7], None])[..., 0].mean(-1)

    _, cache = model.run_with_cache(clean)
    _, other = model.run_with_cache(corrupt)
    base = loss(model(clean))
    for layer in range(2):
        for head in range(2):
            mine = {signal: found.per_example[signal][layer * 2 + head] for signal in SIGNALS}
            pattern = cache["pattern", layer][:, head]
            to_z = pattern[:, :, 2] + pattern[:, :, 3]
            torch.testing.assert_close(mine["attention_decide"], to_z[:, 5])
            torch.testing.assert_close(mine["attention_answer"], to_z[:, [5, 6]].mean(-1))

            def patch(v, hook, head=head, layer=layer):
                v = v.clone()
                v[:, 2:4, head] = other["v", layer][:, 2:4, head]
                return v

            def freeze(_, hook, layer=layer):
                return cache["pattern", layer]

            hooks = [
                (f"blocks.{layer}.attn.hook_v", patch),
                (f"blocks.{layer}.attn.hook_pattern", freeze),
            ]
            patched = loss(model.run_with_hooks(clean, fwd_hooks=hooks)) - base
            torch.testing.assert_close(mine["value_patch"], patched)

            for name, queries in (("knockout_answer", [5, 6]), ("knockout_after", [4, 5, 6, 7])):

                def cut(scores, hook, head=head, queries=queries):
                    scores = scores.clone()
                    for query in queries:
                        scores[:, head, query, 2:4] = -torch.inf
                    return scores

                hook = (f"blocks.{layer}.attn.hook_attn_scores", cut)
                effect = loss(model.run_with_hooks(clean, fwd_hooks=[hook])) - base
                torch.testing.assert_close(mine[name], effect)


def test_grouped_values_are_those_that_each_query_head_reads():
    model = tiny_model(n_heads=4, n_key_value_heads=2, d_head=4).requires_grad_(False)
    tokens = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(tokens)
    recording = record(model, tokens, (0,), ("v",))
    for layer, values in enumerate(head_values(recording, model.cfg.n_heads)):
        z = torch.einsum("bhqk,bkhd->bqhd", cache["pattern", layer], values)
        torch.testing.assert_close(z, cache["z", layer])


def test_copying_is_the_share_of_variance_that_a_fresh_selector_explains():
    """All 12 pairs of (B, z) and all changes of z: the sampled ratio is then the exact one."""
    known = selector_lookup()
    model = known.model
    with torch.no_grad():
        attn = model.blocks[0].attn
        # The head looks half at z (3 values) and half at B (4 values), and copies both.
        attn.W_Q[0, :, :] = 0
        attn.W_V[0, :4, 3:7] = torch.eye(4)
        attn.W_O[0, 3:7, 0:4] = torch.eye(4)
    clean = torch.cat([known.clean[:12]] * 2)
    corrupt = clean.clone()
    corrupt[:12, 3] = 4 + (clean[:12, 3] - 4 + 1) % 3
    corrupt[12:, 3] = 4 + (clean[12:, 3] - 4 + 2) % 3
    found = selector_evidence(model, clean, corrupt, **PLACES)
    # Uniform attention: variance of a one-hot is 1 - 1/n, so z explains (2/3) / (2/3 + 3/4).
    exact = (2 / 3) / (2 / 3 + 3 / 4)
    assert row(found, "L0H0")["ov_copying"] == pytest.approx(exact, rel=1e-5)


def test_chance_of_differing():
    assert chance_of_differing(torch.tensor([[0], [0], [1], [1]])) == pytest.approx(4 / 6)
    assert chance_of_differing(torch.tensor([[0, 1], [1, 0]])) == 1


def test_the_model_is_left_as_it_was_found(known):
    before = {name: p.clone() for name, p in known.model.named_parameters()}
    state = torch.get_rng_state()
    selector_evidence(known.model, known.clean, known.corrupt, **PLACES)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], p) for name, p in known.model.named_parameters())
    assert not any(hook.fwd_hooks for hook in known.model.hook_dict.values())
    assert torch.is_grad_enabled()


def test_bad_input_is_refused_in_one_line(known):
    def ask(**changes):
        given = {"clean": known.clean, "corrupt": known.corrupt, **PLACES, **changes}
        selector_evidence(known.model, given.pop("clean"), given.pop("corrupt"), **given)

    with pytest.raises(InputError, match=r"corrupt has the selector of clean in 1 of 24 examples"):
        ask(corrupt=torch.cat([known.clean[:1], known.corrupt[1:]]))
    with pytest.raises(InputError, match=r"position 9 is out of range; the sequences have 6"):
        ask(selector=(9,))
    with pytest.raises(InputError, match=r"selector names no position"):
        ask(selector=())
    with pytest.raises(InputError, match=r"position 2 of decide or answer does not come after"):
        ask(decide=(2,))
    with pytest.raises(InputError, match=r"position 5 comes after the last scored position 4"):
        ask(answer=(4, 5))
    with pytest.raises(InputError, match=r"ablation='noise' is unknown; choose one of zero, mean"):
        ask(ablation="noise")
    with pytest.raises(InputError, match=r"metric='accuracy' is not known"):
        ask(metric="accuracy")


def series(**signals):
    rows = []
    for signal, values in signals.items():
        rows += [(10 * i, signal, v, v - 0.1, v + 0.1) for i, v in enumerate(values)]
    return pd.DataFrame(rows, columns=["step", "signal", "value", "low", "high"])


def test_onsets_are_the_first_step_from_which_a_signal_stays_out_of_its_band():
    found = onsets(
        series(
            rises=[0, 0.1, 0, 0.2, 0.5, 1, 2],
            falls=[3, 3, 3, 2.9, 2.5, 2, 1],
            returns=[0, 0, 0, 5, 5, 5, 0.1],
            blips=[0, 0, 0, 5, 0, 5, 5],
            flat=[1, 1, 1, 1, 1, 1, 1],
        )
    ).set_index("signal")
    # Band of `rises`: -0.1 to 0.2. At 20 and 30 the interval reaches into it, at 40 it does not.
    assert found.loc["rises", ["band_low", "band_high"]].tolist() == pytest.approx([-0.1, 0.2])
    assert found.loc["rises", ["onset", "direction"]].tolist() == [40, "up"]
    assert found.loc["falls", ["onset", "direction"]].tolist() == [40, "down"]
    assert found.loc["blips", ["onset", "direction"]].tolist() == [50, "up"]
    for signal in ("returns", "flat"):
        assert pd.isna(found.loc[signal, "onset"])
        assert found.loc[signal, "direction"] == ""
    wider = onsets(series(rises=[0, 0.1, 0, 0.2, 0.5, 1, 2]), widen=4.0)
    assert wider["onset"].tolist() == [50]


def test_onsets_refuse_what_has_no_band():
    with pytest.raises(InputError, match=r"signal 'a' has 3 checkpoints, and the first 3 make"):
        onsets(series(a=[0, 1, 2]))
    with pytest.raises(InputError, match=r"series has no column low, high"):
        onsets(series(a=[0, 1, 2, 3])[["step", "signal", "value"]])


def test_a_series_of_checkpoints_shows_the_head_assemble_before_the_loss_moves(known):
    """The head's output grows first; the lookup that needs it is switched on later."""
    steps = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0.5, 0), 4: (1, 0), 5: (1, 0.5), 6: (1, 1)}
    found = {}
    for step, (head, lookup) in steps.items():
        young = selector_lookup()
        with torch.no_grad():
            young.model.blocks[0].attn.W_O[0] *= head
            young.model.unembed.W_U *= lookup
        found[step] = selector_evidence(young.model, young.clean, young.corrupt, **PLACES)
    table = onsets(selector_series(found, "L0H0")).set_index("signal")
    assert table.loc["ov_copying", "onset"] == 3
    assert table.loc["metric", ["onset", "direction"]].tolist() == [5, "down"]
    assert table.loc["value_patch", "onset"] == 5
    assert table.loc["selector_effect", "onset"] == 5
    with pytest.raises(InputError, match=r"'L5H5' is not in the evidence: L0H0, L0H1, L1H0, L1H1"):
        selector_series(found, "L5H5")
