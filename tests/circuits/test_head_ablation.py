"""Head ablation against a plain loop of hooks, hand-set models, and what may go wrong."""

import inspect
import itertools
from functools import partial

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.errors import InputError
from circuits.head_ablation import ablated, head_effects, lone_head_effects, pair_effects
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model

N_VOCAB = 11
THREE = {"n_layers": 3, "n_heads": 3, "d_head": 5}


@pytest.fixture(scope="module")
def model():
    return tiny_model(**THREE)


CLEAN, CORRUPT = random_tokens(6, 8), random_tokens(6, 8, seed=2)
SCORED = (3, 5)


def target_loss(logits):
    """The loss at the scored positions 3 and 5, written without the package."""
    target = CLEAN[:, [4, 6]]
    return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].mean(-1)


def slow_effect(model, heads, replaced, positions=None):
    """One full forward pass with a hook in each layer, for one set of heads."""

    def swap(z, hook, layer):
        z = z.clone()
        given = replaced[layer].expand(z.shape)
        where = range(z.shape[1]) if positions is None else positions
        for at, head in heads:
            if at == layer:
                z[:, list(where), head] = given[:, list(where), head]
        return z

    hooks = [
        (f"blocks.{layer}.attn.hook_z", partial(swap, layer=layer))
        for layer in range(model.cfg.n_layers)
    ]
    read = list(SCORED)
    changed = model.run_with_hooks(CLEAN, fwd_hooks=hooks)[:, read]
    return target_loss(changed) - target_loss(model(CLEAN)[:, read])


def slow_z(model, tokens):
    _, cache = model.run_with_cache(tokens)
    return [cache["z", layer] for layer in range(model.cfg.n_layers)]


def slow_replacements(model, ablation):
    z = slow_z(model, CORRUPT if ablation == "patch" else CLEAN)
    read = max(SCORED) + 1
    return {
        "zero": lambda x: torch.zeros_like(x),
        "mean": lambda x: x.mean(0, keepdim=True),
        "mean-all": lambda x: x[:, :read].mean((0, 1), keepdim=True),
        "patch": lambda x: x,
    }[ablation], z


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_head_agrees_with_a_loop_of_hooks_in_every_architecture(name):
    model = tiny_model(**ARCHITECTURES[name])
    make, z = slow_replacements(model, "zero")
    result = head_effects(model, CLEAN, target_loss, scored=SCORED)
    heads = list(itertools.product(range(model.cfg.n_layers), range(model.cfg.n_heads)))
    slow = torch.stack([slow_effect(model, [head], [make(x) for x in z]) for head in heads])
    # TransformerLens keeps its ALiBi table in float32, whatever the model's dtype.
    tolerance = 1e-7 if name == "alibi" else 1e-10
    torch.testing.assert_close(result.per_example, slow, rtol=0, atol=tolerance)
    # With a hook on the model, TransformerLens's own blocks are run in place of plain tensors.
    model.add_hook("blocks.0.hook_resid_post", lambda x, hook: x)
    hooked = head_effects(model, CLEAN, target_loss, scored=SCORED)
    torch.testing.assert_close(hooked.per_example, slow, rtol=0, atol=tolerance)
    assert slow.abs().mean() > 1e-3
    # The control: the same numbers under the wrong heads do not agree.
    if len(heads) > 1:
        assert (result.per_example.roll(1, 0) - slow).abs().max() > 1e-3


@pytest.mark.parametrize("ablation", ["zero", "mean", "mean-all", "patch"])
@pytest.mark.parametrize("positions", [None, (2, 5)])
def test_every_ablation_of_sets_agrees_with_a_loop_of_hooks(model, ablation, positions):
    make, z = slow_replacements(model, ablation)
    sets = [{"L0H1"}, {"L0H0", "L1H2"}, {"L1H0", "L1H1"}, {"L2H2", "L0H2", "L1H0"}]
    corrupt = CORRUPT if ablation == "patch" else None
    result = head_effects(
        model, CLEAN, target_loss, ablation, corrupt, sets, positions, scored=SCORED
    )
    parsed = [[(int(name[1]), int(name[3])) for name in entry] for entry in sets]
    slow = torch.stack(
        [slow_effect(model, heads, [make(x) for x in z], positions) for heads in parsed]
    )
    torch.testing.assert_close(result.per_example, slow, rtol=0, atol=1e-10)
    assert list(result.table["head"]) == ["L0H1", "L0H0+L1H2", "L1H0+L1H1", "L0H2+L1H0+L2H2"]
    assert result.table["layer"].isna().tolist() == [False, True, True, True]


def test_resample_takes_another_example_and_depends_on_the_seed_alone(model):
    torch.manual_seed(5)
    first = head_effects(model, CLEAN, target_loss, "resample", scored=SCORED)
    torch.manual_seed(6)
    again = head_effects(model, CLEAN, target_loss, "resample", scored=SCORED)
    other = head_effects(model, CLEAN, target_loss, "resample", scored=SCORED, seed=4)
    assert torch.equal(first.per_example, again.per_example)
    assert not torch.equal(first.per_example, other.per_example)
    # All examples alike: another example changes nothing.
    same = CLEAN[:1].expand(4, -1).contiguous()
    alike = head_effects(model, same, "kl", "resample", scored=SCORED)
    assert alike.per_example.abs().max() < 1e-12


def test_patching_every_head_of_the_model_with_no_embedding_change_is_the_corrupt_run():
    """Attention-only, and the read positions share their token: all heads patched = corrupt."""
    model = tiny_model(**THREE, attn_only=True)
    corrupt = CORRUPT.clone()
    corrupt[:, list(SCORED)] = CLEAN[:, list(SCORED)]
    everything = [f"L{layer}H{head}" for layer in range(3) for head in range(3)]
    result = head_effects(model, CLEAN, target_loss, "patch", corrupt, [everything], scored=SCORED)
    wanted = target_loss(model(corrupt)[:, list(SCORED)]) - target_loss(
        model(CLEAN)[:, list(SCORED)]
    )
    torch.testing.assert_close(result.per_example[0], wanted, rtol=0, atol=1e-10)


def test_a_large_batch_is_cut_into_chunks_and_gives_the_same(model, monkeypatch):
    whole = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    monkeypatch.setattr("circuits.head_study.ROWS_AT_ONCE", 4)
    pieces = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    torch.testing.assert_close(whole.per_example, pieces.per_example, rtol=0, atol=1e-12)


def copying_model(n_heads=2, chain=False):
    """Without norms: `embed` writes the token into slot 0; head h of layer 0 adds it to the logits.

    Attention is uniform over positions so far, so with two equal heads and one-token sequences
    every head adds exactly half of the logits. With `chain`, head 0 of layer 1 passes on what
    head 0 of layer 0 wrote, and layer 0 is not read by the logits.
    """
    n = 4
    size = n * (3 if chain else 2)
    model = HookedTransformer(
        HookedTransformerConfig(
            n_layers=2 if chain else 1,
            d_model=size,
            n_ctx=4,
            d_head=n,
            n_heads=n_heads,
            d_vocab=n,
            attn_only=True,
            normalization_type=None,
            act_fn="relu",
            seed=0,
            dtype=torch.float64,
        )
    )
    for parameter in model.parameters():
        parameter.data.zero_()
    one = torch.eye(n, dtype=torch.float64)
    model.embed.W_E.data[:, :n] = one
    model.unembed.W_U.data[-n:] = one
    for layer, block in enumerate(model.blocks):
        for head in range(1 if chain else n_heads):
            block.attn.W_V.data[head, layer * n : layer * n + n] = one
            block.attn.W_O.data[head, :, (layer + 1) * n : (layer + 2) * n] = one
    return model.requires_grad_(False)


def true_logit(logits):
    """The logit of the token itself at the one scored position."""
    return logits[:, 0].gather(-1, torch.tensor([[0], [1], [2]]))[:, 0]


ONE_TOKEN = torch.tensor([[0], [1], [2]])


def test_two_heads_that_share_the_work_add_up_on_paper():
    """The logit of the token is 2, one from each head; no interaction."""
    result = pair_effects(copying_model(), ONE_TOKEN, true_logit)
    assert result.singles.table["effect"].tolist() == [-1.0, -1.0]
    assert result.singles.clean.tolist() == [2.0, 2.0, 2.0]
    row = result.table.iloc[0]
    assert (row["head_a"], row["head_b"]) == ("L0H0", "L0H1")
    assert (row["joint"], row["synergy"], row["low"], row["high"]) == (-2.0, 0.0, 0.0, 0.0)


def test_backup_heads_have_a_positive_synergy_and_a_chain_a_negative_one_on_paper():
    """Under a loss that only asks for a logit of 1 or more, one of two heads is enough."""

    def shortfall(logits):
        return (1.0 - true_logit(logits)).clamp_min(0.0)

    backup = pair_effects(copying_model(), ONE_TOKEN, shortfall).table.iloc[0]
    assert (backup["effect_a"], backup["effect_b"], backup["joint"]) == (0.0, 0.0, 1.0)
    assert backup["synergy"] == 1.0

    chain = pair_effects(copying_model(chain=True), ONE_TOKEN, shortfall).table
    links = chain[(chain["head_a"] == "L0H0") & (chain["head_b"] == "L1H0")].iloc[0]
    assert (links["effect_a"], links["effect_b"], links["joint"]) == (1.0, 1.0, 1.0)
    assert links["synergy"] == -1.0
    # The control: idle heads neither matter nor interact.
    idle = chain[(chain["head_a"] == "L0H1") & (chain["head_b"] == "L1H1")].iloc[0]
    assert (idle["joint"], idle["synergy"]) == (0.0, 0.0)


def test_all_but_one_keeps_the_head_it_names():
    """With three heads of equal work, each alone leaves a logit of 1 of 3."""
    result = lone_head_effects(copying_model(n_heads=3), ONE_TOKEN, true_logit)
    assert result.table["head"].tolist() == ["L0H0", "L0H1", "L0H2"]
    assert result.table["effect"].tolist() == [-2.0, -2.0, -2.0]
    idle = copying_model(n_heads=3)
    idle.blocks[0].attn.W_O.data[1:] = 0.0
    assert lone_head_effects(idle, ONE_TOKEN, true_logit).table["effect"].tolist() == [0, -1, -1]


def test_every_pair_comes_once(model):
    result = pair_effects(model, CLEAN, "kl", scored=SCORED, ablation="mean")
    assert len(result.table) == 36
    assert result.table[["head_a", "head_b"]].drop_duplicates().shape[0] == 36
    assert result.table["synergy"].tolist() == pytest.approx(result.synergy.mean(-1).tolist())
    by_hand = result.table["joint"] - result.table["effect_a"] - result.table["effect_b"]
    assert result.table["synergy"].tolist() == pytest.approx(by_hand.tolist())


@pytest.mark.parametrize("ablation", ["zero", "mean", "mean-all", "resample", "patch"])
def test_an_ablated_model_gives_the_logits_behind_the_effects(model, ablation):
    read = max(SCORED) + 1
    tokens = CLEAN[:, :read]
    needs = {"zero": {}, "patch": {"corrupt": CORRUPT[:, :read]}}
    given = needs.get(ablation, {"reference": tokens})
    run = ablated(model, ["L0H1", "L2H0"], ablation, **given)
    found = target_loss(run(tokens)[:, list(SCORED)])
    found = found - target_loss(model(tokens)[:, list(SCORED)])
    effects = head_effects(
        model, CLEAN, target_loss, ablation,
        CORRUPT if ablation == "patch" else None, [{"L0H1", "L2H0"}], scored=SCORED,
    )  # fmt: skip
    torch.testing.assert_close(found, effects.per_example[0], rtol=0, atol=1e-10)
    assert found.abs().max() > 1e-3
    assert run.heads == "L0H1+L2H0"


def test_the_means_of_an_ablated_model_stay_those_of_the_reference(model):
    """A shuffled batch must not bring its own mean."""
    run = ablated(model, "L0H0", "mean", reference=CLEAN)
    alone = run(CORRUPT[:1])
    within = run(CORRUPT)[:1]
    torch.testing.assert_close(alone, within, rtol=0, atol=1e-12)
    other = ablated(model, "L0H0", "mean", reference=CORRUPT)(CORRUPT)[:1]
    assert (other - alone).abs().max() > 1e-4


def test_negative_positions_count_from_the_end_of_what_is_run(model):
    short = CLEAN[:, :5]
    last = ablated(model, "L0H0", "zero", positions=[-1])(short)
    fourth = ablated(model, "L0H0", "zero", positions=[4])(short)
    assert torch.equal(last, fourth)
    assert torch.equal(last[:, :4], model(short)[:, :4])
    assert not torch.equal(last[:, 4], model(short)[:, 4])


def state_of(model):
    hooks = {name: len(point.fwd_hooks) for name, point in model.hook_dict.items()}
    flags = dict(vars(model.cfg))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    return hooks, flags, weights, model.training, torch.is_grad_enabled(), torch.get_rng_state()


def same_state(before, after):
    assert before[0] == after[0]
    assert before[1] == after[1]
    assert all(torch.equal(before[2][name], after[2][name]) for name in before[2])
    assert before[3:5] == after[3:5]
    assert torch.equal(before[5], after[5])


@pytest.mark.parametrize("flag", ["use_attn_result", "use_split_qkv_input", "use_hook_mlp_in"])
def test_flags_of_the_user_change_nothing_and_stay(flag):
    model = tiny_model(**THREE)
    plain = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    getattr(model, f"set_{flag}")(True)
    before = state_of(model)
    flagged = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    same_state(before, state_of(model))
    torch.testing.assert_close(plain.per_example, flagged.per_example, rtol=0, atol=1e-10)


def test_the_model_is_left_as_found_even_after_an_exception():
    model = tiny_model(**THREE)
    model.train()
    calls = []
    model.add_hook("blocks.1.hook_resid_pre", lambda x, hook: calls.append(1))
    before = state_of(model)
    ran = []

    def explode(logits):
        ran.append(1)
        if len(ran) == 3:
            raise RuntimeError("in the middle")
        return logits.sum((-1, -2))

    with pytest.raises(RuntimeError, match="in the middle"):
        head_effects(model, CLEAN, explode, scored=SCORED)
    same_state(before, state_of(model))
    head_effects(model, CLEAN, "kl", "resample", scored=SCORED)
    ablated(model, "L0H0", "mean", reference=CLEAN)(CLEAN)
    same_state(before, state_of(model))
    assert calls
    model.reset_hooks()


def test_a_hook_of_the_user_takes_part():
    """Somebody studies the model with L0H0 off already: effects are on top of that."""
    model = tiny_model(**THREE)

    def off(z, hook):
        z = z.clone()
        z[:, :, 0] = 0.0
        return z

    alone = head_effects(model, CLEAN, "kl", scored=SCORED).per_example
    model.add_hook("blocks.0.attn.hook_z", off)
    hooked = head_effects(model, CLEAN, "kl", scored=SCORED).per_example
    model.reset_hooks()
    assert hooked[0].abs().max() < 1e-12
    assert alone[0].min() > 1e-3


def test_a_hook_that_would_act_twice_is_refused():
    """Steering: the hook scales what it finds, so a restart would scale it once more."""
    from circuits.activation_patching import patch_effects

    model = tiny_model(**THREE)
    model.add_hook("blocks.1.hook_attn_out", lambda x, hook: 1.5 * x)
    with pytest.raises(InputError, match=r"attn_out of layer 1 .* remove the hook"):
        patch_effects(model, CLEAN, CORRUPT, "kl", "attn_out", scored=SCORED)
    model.reset_hooks()


def test_no_cached_tensor_is_written_to(model):
    before = CLEAN.clone()
    first = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    second = head_effects(model, CLEAN, "kl", "mean", scored=SCORED)
    assert torch.equal(before, CLEAN)
    assert torch.equal(first.per_example, second.per_example)


def test_results_say_what_decided_them(model):
    result = head_effects(model, CLEAN, "kl", "mean", positions=[-1], scored=SCORED, seed=7)
    facts = result.provenance
    assert facts["ablation"] == "mean"
    assert facts["metric"] == "kl"
    assert facts["positions"] == [7]
    assert facts["scored"] == [3, 5]
    assert facts["reference"] == "clean"
    assert facts["seed"] == 7
    assert "weight_processing" in facts
    assert (result.table["low"] <= result.table["effect"]).all()
    assert (result.table["effect"] <= result.table["high"]).all()


def test_low_precision_is_scored_in_float32():
    """Against the same weights in float64; bfloat16 keeps about 3 digits of each activation."""
    low = tiny_model(**THREE, dtype=torch.bfloat16)
    exact = tiny_model(**THREE)
    exact.load_state_dict({name: value.double() for name, value in low.state_dict().items()})
    found = head_effects(low, CLEAN, "kl", scored=SCORED).per_example
    wanted = head_effects(exact, CLEAN, "kl", scored=SCORED).per_example
    assert found.dtype == torch.float32
    assert (found - wanted).abs().mean() < 0.1 * wanted.abs().mean()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": ["L0H3"]}, ["'L0H3'", "3 layers of 3 heads", "L0H0", "L2H2"]),
        ({"heads": ["A0"]}, ["'A0'", "L0H0"]),
        ({"heads": "L0H1"}, ["one string", "['L0H1']"]),
        ({"heads": []}, ["heads is empty"]),
        ({"heads": [[]]}, ["empty set"]),
        ({"ablation": "noise"}, ["'noise'", "zero, mean, mean-all, resample, patch"]),
        ({"ablation": "patch"}, ["patch", "corrupt="]),
        ({"ablation": "patch", "corrupt": CLEAN}, ["corrupt equals clean"]),
        ({"ablation": "patch", "corrupt": CORRUPT[:, :5]}, ["(6, 5)", "(6, 8)"]),
        ({"corrupt": CORRUPT}, ["not used by ablation='zero'"]),
        ({"reference": CORRUPT}, ["reference= is not used by ablation='zero'"]),
        ({"ablation": "mean", "reference": CORRUPT[:, :5]}, ["5 positions", "8"]),
        ({"ablation": "resample", "reference": CORRUPT[:3]}, ["3 examples", "6"]),
        ({"positions": [8]}, ["position 8", "8 positions", "0 to 7"]),
        ({"positions": []}, ["positions is empty"]),
        ({"metric": lambda logits: logits.sum()}, ["metric"]),
        ({"metric": "speed"}, ["speed"]),
        ({"scored": [9]}, ["9"]),
        ({"clean": CLEAN + N_VOCAB}, ["clean", "vocabulary of 11"]),
        ({"clean": CLEAN.repeat(1, 2)}, ["clean", "n_ctx is 9", "16 positions"]),
        ({"clean": CLEAN[:0]}, ["clean is empty"]),
    ],
)
def test_a_mistake_gets_one_line_that_says_what_is_allowed(model, changes, words):
    given = {"clean": CLEAN, "metric": "kl", **changes}
    with pytest.raises(InputError) as error:
        head_effects(model, given.pop("clean"), given.pop("metric"), **given)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"heads": "L7H0"}, ["'L7H0'", "L2H2"]),
        ({"heads": "L0H0", "ablation": "mean"}, ["'mean'", "reference="]),
        ({"heads": "L0H0", "ablation": "patch"}, ["'patch'", "corrupt="]),
        ({"heads": "L0H0", "reference": CLEAN}, ["reference= is not used"]),
        ({"heads": "L0H0", "positions": [30]}, ["position 30"]),
        ({"heads": "L0H0", "ablation": "median"}, ["'median'"]),
    ],
)
def test_an_ablated_model_refuses_what_it_cannot_do(model, given, words):
    with pytest.raises(InputError) as error:
        ablated(model, **given)
    for word in words:
        assert word in str(error.value)


def test_an_ablated_model_refuses_batches_that_do_not_fit(model):
    with pytest.raises(InputError, match="knows 5 positions but tokens has 8"):
        ablated(model, "L0H0", "mean", reference=CLEAN[:, :5])(CLEAN)
    with pytest.raises(InputError, match="made of 6 examples but tokens has 3"):
        ablated(model, "L0H0", "resample", reference=CLEAN)(CLEAN[:3])


def test_blocks_of_an_unknown_form_are_refused_not_misread():
    """Norms after attention and MLP (as in OLMo 2) are not what the restart computes."""
    model = tiny_model(
        normalization_type="RMS",
        original_architecture="Olmo2ForCausalLM",
        n_heads=2,
        d_head=8,
    )
    with pytest.raises(InputError, match="'Olmo2ForCausalLM'"):
        head_effects(model, CLEAN, "kl", scored=SCORED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "model=NoneType has no cfg"),
        ({"clean": [[1, 2]]}, "clean is list; give a tensor"),
        ({"clean": CLEAN[0]}, r"clean has shape \(8,\)"),
        ({"clean": CLEAN.to(torch.uint8)}, "dtype torch.uint8"),
        ({"corrupt": [[1]], "ablation": "patch"}, "corrupt is list"),
        ({"heads": 5}, "heads=5 is int"),
        ({"heads": [5]}, "heads holds 5"),
        ({"positions": [1.5]}, "an entry of positions=1.5 is float"),
        ({"positions": "abc"}, "positions='abc' is str"),
        ({"positions": 5}, "positions=5 is int"),
        ({"seed": "a"}, "seed='a' is str"),
    ],
)
def test_another_type_gets_one_line_too(model, changes, words):
    with pytest.raises(InputError, match=words) as error:
        inspect.unwrap(head_effects)(**({"model": model, "clean": CLEAN, "metric": "kl"} | changes))
    assert "\n" not in str(error.value)
