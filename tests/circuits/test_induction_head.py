"""Induction scores: hand-worked patterns, hand-set models, uniform and random controls."""

import math

import pytest
import torch

from circuits.errors import InputError
from circuits.induction_head import SCORES, induction_scores
from circuits.key_composition import k_composition
from circuits.matching import attention_scores, matched_keys, matching_score, uniform_pattern
from circuits.weight_circuits import (
    FactoredMap,
    eigenvalue_copying,
    identity_cosine,
    k_composition_ratio,
    ov_map,
    qk_map,
)
from tests.circuits.known_circuits import bigram_head, induction_head
from tests.circuits.models import random_tokens, tiny_model


def rows(scores):
    return scores.table.set_index("head")


def test_matched_keys_by_hand():
    matched = matched_keys(torch.tensor([[0, 1, 0, 0, 1]]))[0]
    wanted = [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],  # token 1 was never seen before
        [0, 1, 0, 0, 0],  # token 0 stood at 0, so its follower is at 1
        [0, 1, 0, 1, 0],  # token 0 stood at 0 and at 2
        [0, 0, 1, 0, 0],  # token 1 stood at 1
    ]
    assert matched.int().tolist() == wanted


def test_scores_of_patterns_worked_by_hand():
    tokens = torch.tensor([[0, 1, 0, 1, 0]])  # at query 4 the followers of 0 stand at 1 and 3
    pattern = torch.zeros(1, 3, 5, 5, dtype=torch.float64)
    pattern[0, 0, 4, [1, 3]] = 0.5  # spreads over both
    pattern[0, 1, 4, 1] = 1.0  # picks one
    pattern[0, 2, 4, 0], pattern[0, 2, 4, [1, 3]], pattern[0, 2, 4, 4] = 0.5, 0.2, 0.1
    scores = attention_scores(pattern, tokens, (4,))
    assert scores["previous_token"][:, 0].tolist() == pytest.approx([0.5, 0.0, 0.2])
    assert scores["prefix_matching"][:, 0].tolist() == pytest.approx([1.0, 1.0, 0.4])
    # Uniform attention puts 2/5 on the matched keys.
    assert scores["match"][:, 0].tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert scores["matched_uniformity"][:, 0].tolist() == pytest.approx([1.0, 0.0, 1.0])
    mixed = -(0.5 * math.log(0.5) + 2 * 0.2 * math.log(0.2) + 0.1 * math.log(0.1)) / math.log(5)
    assert scores["evenness"][:, 0].tolist() == pytest.approx(
        [math.log(2) / math.log(5), 0.0, mixed]
    )


def test_uneven_attention_inside_the_matched_set_lowers_its_uniformity():
    tokens = torch.tensor([[0, 1, 0, 1, 0]])
    pattern = torch.zeros(1, 1, 5, 5)
    pattern[0, 0, 4, [1, 3]] = torch.tensor([0.45, 0.05])  # 9 to 1, whatever lies outside
    pattern[0, 0, 4, 0] = 0.5
    found = attention_scores(pattern, tokens, (4,))["matched_uniformity"]
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert float(found) == pytest.approx(entropy / math.log(2))


def test_uniform_attention_does_not_match_and_is_wholly_even():
    tokens = torch.randint(0, 4, (6, 12), generator=torch.Generator().manual_seed(0))
    pattern = uniform_pattern(12).expand(6, 1, 12, 12)
    scores = attention_scores(pattern, tokens, tuple(range(1, 12)))
    assert scores["match"].abs().max() < 1e-12
    assert scores["evenness"].min() == pytest.approx(1.0)
    assert scores["previous_token"].mean() == pytest.approx(sum(1 / n for n in range(2, 13)) / 11)


def test_the_induction_model_has_its_scores_on_paper():
    known = induction_head()
    scores = induction_scores(known.model, known.clean)
    table = rows(scores)
    assert table.at["L0H0", "previous_token"] == pytest.approx(1.0)
    assert table.at["L1H0", "prefix_matching"] == pytest.approx(1.0)
    assert table.at["L1H0", "match"] == pytest.approx(1.0)
    # Every token occurs once before: there is a single match, and nothing to spread over.
    assert table["matched_uniformity"].isna().all()
    assert table.at["L1H0", "evenness"] < 0.9
    # It adds 10 to the logit of the token it looks at, and nothing to any other.
    for score in ("copying", "readout_cosine", "readout_r2"):
        assert table.at["L1H0", score] == pytest.approx(1.0)
        assert table.at["L0H0", score] == 0  # writes where the unembedding does not read
    assert scores.best("previous_token") == "L0H0"
    assert scores.best("match", after="L0H0") == "L1H0"
    # What uniform attention would score on these tokens: 1/2, 1/3, ... 1/8.
    assert scores.uniform["previous_token"] == pytest.approx(sum(1 / n for n in range(2, 9)) / 7)
    assert scores.uniform["match"] == pytest.approx(0.0)


def test_a_statistical_induction_head_spreads_evenly_over_all_its_matches():
    known = bigram_head()
    table = rows(induction_scores(known.model, known.clean))
    assert table.at["L1H0", "match"] == pytest.approx(1.0, abs=1e-5)
    assert table.at["L1H0", "matched_uniformity"] == pytest.approx(1.0, abs=1e-5)
    assert table.at["L1H0", "match_low"] <= table.at["L1H0", "match"] + 1e-9
    assert table.at["L0H0", "previous_token"] == pytest.approx(1.0)
    assert table.at["L1H0", "evenness"] < 0.7


def test_a_pooling_head_is_told_from_it():
    known = bigram_head()
    with torch.no_grad():
        known.model.blocks[1].attn.W_Q[0] = 0
    table = rows(induction_scores(known.model, known.clean))
    assert table.at["L1H0", "match"] == pytest.approx(0.0, abs=1e-5)
    assert table.at["L1H0", "evenness"] == pytest.approx(1.0)
    assert table.at["L0H0", "previous_token"] == pytest.approx(1.0)


def test_random_weights_match_nothing_and_copy_nothing():
    found = []
    for seed in range(6):
        model = tiny_model(seed=seed, scale=0.1, d_model=32, d_vocab=11)
        tokens = torch.randint(0, 11, (24, 9), generator=torch.Generator().manual_seed(seed))
        found.append(rows(induction_scores(model, tokens))[["match", "readout_cosine", "copying"]])
    mean = sum(found).to_numpy() / len(found)
    assert abs(mean[:, 0]).max() < 0.05
    assert abs(mean[:, 1]).max() < 0.2
    assert abs(mean[:, 2]).max() < 0.5


def test_shuffling_the_tokens_under_a_pattern_takes_its_match_away():
    known = bigram_head()
    _, cache = known.model.run_with_cache(known.clean)
    generator = torch.Generator().manual_seed(1)
    own = matching_score(cache["pattern", 1][:, :1], known.clean).mean()
    other = known.clean[:, torch.randperm(known.clean.shape[1], generator=generator)]
    assert own > 0.99
    assert matching_score(cache["pattern", 1][:, :1], other).mean() < 0.3


@pytest.mark.parametrize("positions", ["rotary", "alibi", "shortformer"])
def test_scores_come_from_the_attention_that_the_model_pays(positions):
    extra = {"rotary_dim": 4} if positions == "rotary" else {}
    model = tiny_model(positional_embedding_type=positions, **extra)
    tokens = torch.randint(0, 4, (3, 9), generator=torch.Generator().manual_seed(0))
    scores = induction_scores(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        for head in range(2):
            for example in range(3):
                pattern = cache["pattern", layer][example, head]
                x = tokens[example].tolist()
                previous = sum(float(pattern[n, n - 1]) for n in range(1, 9)) / 8
                masses, chances = [], []
                for n in range(1, 9):
                    keys = [m for m in range(1, n + 1) if x[m - 1] == x[n]]
                    if keys:
                        masses.append(sum(float(pattern[n, m]) for m in keys))
                        chances.append(len(keys) / (n + 1))
                mass, chance = sum(masses) / len(masses), sum(chances) / len(chances)
                mine = {s: float(scores.per_example[s][2 * layer + head, example]) for s in SCORES}
                assert mine["previous_token"] == pytest.approx(previous)
                assert mine["prefix_matching"] == pytest.approx(mass)
                assert mine["match"] == pytest.approx((mass - chance) / (1 - chance))


def test_factored_maps_equal_the_full_products():
    model = tiny_model(normalization_type=None).requires_grad_(False)
    attn, later = model.blocks[0].attn, model.blocks[1].attn
    ov = model.W_E @ attn.W_V[1] @ attn.W_O[1] @ model.W_U
    torch.testing.assert_close(ov_map(model, "L0H1").full(), ov)
    qk = model.W_E @ later.W_Q[0] @ later.W_K[0].T @ model.W_E.T / later.attn_scale
    torch.testing.assert_close(qk_map(model, "L1H0").full(), qk)
    through = model.W_E @ attn.W_V[1] @ attn.W_O[1] @ later.W_K[0]
    qk = model.W_E @ later.W_Q[0] @ through.T / later.attn_scale
    torch.testing.assert_close(qk_map(model, "L1H0", source="L0H1").full(), qk)
    few = ov_map(model, "L0H1", tokens=[3, 1])
    torch.testing.assert_close(few.full(), ov[[3, 1]][:, [3, 1]])
    assert ov_map(model, "L0H1").norm() == pytest.approx(ov.norm().item())
    eigenvalues = torch.linalg.eigvals(ov)
    wanted = float(eigenvalues.real.sum() / eigenvalues.abs().sum())
    assert eigenvalue_copying(ov_map(model, "L0H1")) == pytest.approx(wanted)


def test_a_norm_enters_the_maps_by_its_linear_part():
    model = tiny_model()
    block = model.blocks[0]
    centre = torch.eye(16, dtype=torch.float64) - 1 / 16
    read = model.W_E @ centre @ torch.diag(block.ln1.w)
    write = torch.eye(16, dtype=torch.float64) @ centre @ torch.diag(model.ln_final.w)
    ov = read @ block.attn.W_V[0] @ block.attn.W_O[0] @ write @ model.W_U
    torch.testing.assert_close(ov_map(model, "L0H0").full(), ov)


def test_readout_scores_worked_by_hand():
    eye = torch.eye(4, dtype=torch.float64)
    ones = torch.ones(4, 4, dtype=torch.float64)
    # Centring takes away what is the same for all tokens: the rest is the identity.
    assert identity_cosine(FactoredMap(3 * eye + 7 * ones, eye)) == pytest.approx(1.0)
    assert identity_cosine(FactoredMap(-eye, eye)) == pytest.approx(-1.0)
    assert identity_cosine(FactoredMap(ones, eye)) == 0
    # A cyclic shift: its trace is 0, so the centred trace is 0 - 1, over sqrt(3) twice.
    assert identity_cosine(FactoredMap(eye.roll(1, 0), eye)) == pytest.approx(-1 / 3)
    assert eigenvalue_copying(FactoredMap(2 * eye, eye)) == pytest.approx(1.0)
    assert eigenvalue_copying(FactoredMap(eye.roll(1, 0), eye)) == pytest.approx(0.0, abs=1e-12)


def test_the_key_edge_of_the_induction_model_is_worth_all_of_its_matching():
    known = induction_head()
    table = k_composition(
        known.model, known.clean, "L0H0", ablation="zero", metric="loss", scored=known.scored
    ).set_index("reader")
    edge = table.loc["L1H0.k"]
    assert edge["edge"] == "L0H0->L1H0.k"
    # Rank 6 three times over: c sqrt(6) / (sqrt(6) c sqrt(6)).
    assert edge["norm_ratio"] == pytest.approx(1 / math.sqrt(6))
    assert edge["match"] == pytest.approx(1.0)
    assert edge["match_drop"] == pytest.approx(1.0)
    # Keys that say nothing: attention is even over 7 positions, one token twice, five once.
    even = math.log(math.exp(20 / 7) + 5 * math.exp(10 / 7)) - 10 / 7
    assert edge["effect"] == pytest.approx(even - math.log(1 + 5 * math.exp(-10)), rel=1e-5)


def test_the_norm_ratio_cannot_tell_a_path_that_nobody_uses():
    known = induction_head()
    table = k_composition(
        known.model, known.clean, "L0H0", ablation="zero", scored=known.scored
    ).set_index("reader")
    decoy = table.loc["L1H1.k"]
    assert decoy["norm_ratio"] > 0.1
    assert decoy["effect"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("ablation", ["zero", "mean", "resample", "patch"])
def test_the_cut_is_the_one_that_edge_effects_makes(ablation):
    edge_ablation = pytest.importorskip("circuits.edge_ablation")
    known = bigram_head()
    corrupt = known.corrupt if ablation == "patch" else None
    options = {"ablation": ablation, "corrupt": corrupt, "scored": known.scored}
    mine = k_composition(known.model, known.clean, "L0H0", heads=["L1H0"], metric="kl", **options)
    theirs = edge_ablation.edge_effects(
        known.model, known.clean, "kl", edges=["L0H0->L1H0.k"], **options
    ).table
    for column in ("effect", "low", "high"):
        assert mine[column].item() == pytest.approx(theirs[column].item(), rel=1e-4, abs=1e-7)


def test_the_norm_ratio_of_random_weights_is_about_one_over_the_root_of_the_width():
    model = tiny_model(d_model=64, d_head=32, scale=0.1)
    assert 0.5 < k_composition_ratio(model, "L0H0", "L1H1") * math.sqrt(64) < 1.5


def test_the_model_is_left_as_it_was_found():
    known = bigram_head()
    before = {name: p.clone() for name, p in known.model.named_parameters()}
    state = torch.get_rng_state()
    induction_scores(known.model, known.clean)
    k_composition(known.model, known.clean, "L0H0", scored=known.scored)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], p) for name, p in known.model.named_parameters())
    assert not any(hook.fwd_hooks for hook in known.model.hook_dict.values())


def test_bad_input_is_refused_in_one_line():
    known = induction_head()
    model, tokens = known.model, known.clean
    with pytest.raises(InputError, match=r"no token at the queries has occurred before"):
        induction_scores(model, torch.arange(6)[None].repeat(2, 1))
    with pytest.raises(InputError, match=r"position 9 is out of range; the sequences have 8"):
        induction_scores(model, tokens, queries=(9,))
    with pytest.raises(InputError, match=r"queries holds position 0, which has no previous token"):
        induction_scores(model, tokens, queries=(0, 3))
    with pytest.raises(InputError, match=r"tokens holds token id 17, outside the model's vocab"):
        induction_scores(model, tokens + 12)
    with pytest.raises(InputError, match=r"tokens=\[2, 2\] must name different tokens"):
        induction_scores(model, tokens, vocabulary=[2, 2])
    with pytest.raises(InputError, match=r"'L2H0' is not a head of this model.*L0H0, L0H1, L1H0"):
        ov_map(model, "L2H0")
    with pytest.raises(InputError, match=r"L1H0 is not in an earlier layer than L1H1"):
        k_composition_ratio(model, "L1H0", "L1H1")
    with pytest.raises(InputError, match=r"no head lies in a layer after L1H0"):
        k_composition(model, tokens, "L1H0", scored=(6,))
    with pytest.raises(InputError, match=r"score='matching' is not known; choose one of previous"):
        induction_scores(model, tokens).best("matching")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"corrupt": random_tokens(6, 7, seed=5)}, "corrupt is given but ablation='mean' does not"),
        ({"corrupt": random_tokens(6, 8), "ablation": "patch"}, r"corrupt has shape \(6, 8\)"),
    ],
)
def test_a_corrupt_batch_without_use_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        k_composition(tiny_model(), random_tokens(6, 7), "L0H0", **options)
