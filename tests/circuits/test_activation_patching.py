"""Activation patching against `transformer_lens.patching` and a model with one known path."""

import pytest
import torch
from transformer_lens import patching

from circuits.activation_patching import STREAMS, patch_effects
from circuits.errors import InputError
from tests.circuits.known_circuits import selector_lookup
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model

CLEAN, CORRUPT = random_tokens(5, 6), random_tokens(5, 6, seed=2)
SCORED = (3, 5)
THEIRS = {
    "resid_pre": patching.get_act_patch_resid_pre,
    "resid_mid": patching.get_act_patch_resid_mid,
    "attn_out": patching.get_act_patch_attn_out,
    "mlp_out": patching.get_act_patch_mlp_out,
    "z": patching.get_act_patch_attn_head_out_all_pos,
}


def loss(logits):
    """The loss of fixed answers at two positions, written without the package."""
    target = CLEAN[:, :2]
    return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].mean(-1)


def theirs(model, into, source, stream):
    with torch.no_grad():
        _, cache = model.run_with_cache(source)
        return THEIRS[stream](model, into, cache, lambda logits: loss(logits[:, SCORED]).mean())


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("direction", ["denoising", "noising"])
@pytest.mark.parametrize("name", ["LN", "no norm", "rotary"])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_transformer_lens(stream, direction, name):
    model = tiny_model(scale=0.3, **ARCHITECTURES[name])
    found = patch_effects(model, CLEAN, CORRUPT, loss, stream, direction, scored=SCORED)
    into, source = (CORRUPT, CLEAN) if direction == "denoising" else (CLEAN, CORRUPT)
    wanted = theirs(model, into, source, stream)
    grid = torch.tensor(found.grid().to_numpy()) + found.base.mean()
    torch.testing.assert_close(grid, wanted.double(), rtol=0, atol=1e-5)
    assert found.per_example.abs().max() > 1e-3
    # The control: the other direction is another question.
    assert (torch.tensor(found.grid().to_numpy()) + found.donor.mean() - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["parallel", "attention only", "shortformer", "one layer"])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_transformer_lens_in_blocks_of_other_forms(name):
    model = tiny_model(**ARCHITECTURES[name])
    for stream in ("resid_pre", "attn_out", "z"):
        found = patch_effects(model, CLEAN, CORRUPT, loss, stream, scored=SCORED)
        wanted = theirs(model, CORRUPT, CLEAN, stream)
        grid = torch.tensor(found.grid().to_numpy()) + found.base.mean()
        torch.testing.assert_close(grid, wanted.double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("scored", [(3, 5), (5, 2, 4), (0,)])
def test_a_model_with_hooks_takes_another_way_to_the_same_numbers(stream, scored):
    model = tiny_model()
    plain = patch_effects(model, CLEAN, CORRUPT, "kl", stream, scored=scored)
    model.add_hook("blocks.1.hook_resid_post", lambda x, hook: x)
    hooked = patch_effects(model, CLEAN, CORRUPT, "kl", stream, scored=scored)
    torch.testing.assert_close(plain.per_example, hooked.per_example, rtol=0, atol=1e-10)


def test_chunks_change_nothing(monkeypatch):
    model = tiny_model()
    whole = patch_effects(model, CLEAN, CORRUPT, loss, "mlp_out", scored=SCORED).per_example
    monkeypatch.setattr("circuits.activation_patching.ROWS_AT_ONCE", 3)
    pieces = patch_effects(model, CLEAN, CORRUPT, loss, "mlp_out", scored=SCORED).per_example
    torch.testing.assert_close(whole, pieces, rtol=0, atol=1e-12)


def test_only_the_position_that_differs_carries_anything_into_layer_0():
    """One differing token: patching it back is the clean run, patching any other is nothing."""
    model = tiny_model()
    corrupt = CLEAN.clone()
    corrupt[:, 2] = (corrupt[:, 2] + 1) % 11
    found = patch_effects(model, CLEAN, corrupt, loss, "resid_pre", scored=SCORED)
    layer0 = found.per_example[:6]
    torch.testing.assert_close(layer0[2], found.donor - found.base, rtol=0, atol=1e-10)
    assert layer0[[0, 1, 3, 4, 5]].abs().max() < 1e-12
    assert layer0[2].abs().min() > 1e-4


def test_the_last_layer_can_only_speak_where_the_metric_reads():
    model = tiny_model()
    for stream in ("resid_mid", "attn_out", "mlp_out"):
        grid = patch_effects(model, CLEAN, CORRUPT, loss, stream, scored=SCORED).grid()
        assert (grid.loc["L1", [0, 1, 2, 4]] == 0.0).all()
        assert (grid.loc["L1", list(SCORED)].abs() > 1e-6).all()


def test_chosen_positions_are_those_of_the_whole():
    model = tiny_model()
    whole = patch_effects(model, CLEAN, CORRUPT, loss, "resid_mid", scored=SCORED).grid()
    some = patch_effects(model, CLEAN, CORRUPT, loss, "resid_mid", positions=[-1, 1], scored=SCORED)
    assert some.table["pos"].tolist() == [5, 1, 5, 1]
    for layer in ("L0", "L1"):
        for pos in (1, 5):
            assert some.grid().loc[layer, pos] == pytest.approx(whole.loc[layer, pos])


def test_a_head_can_be_patched_at_chosen_positions():
    model = tiny_model()
    found = patch_effects(model, CLEAN, CORRUPT, loss, "z", positions=[3], scored=SCORED)
    with torch.no_grad():
        _, cache = model.run_with_cache(CLEAN)

        def patch(z, hook):
            z = z.clone()
            z[:, 3, 1] = cache[hook.name][:, 3, 1]
            return z

        logits = model.run_with_hooks(CORRUPT, fwd_hooks=[("blocks.0.attn.hook_z", patch)])
        wanted = loss(logits[:, SCORED]) - loss(model(CORRUPT)[:, SCORED])
    assert found.table["head"].tolist() == ["L0H0", "L0H1", "L1H0", "L1H1"]
    torch.testing.assert_close(found.per_example[1], wanted, rtol=0, atol=1e-10)
    assert list(found.grid().columns) == ["H0", "H1"]


def test_the_model_is_left_as_found():
    model = tiny_model()
    before = torch.get_rng_state()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    for stream in STREAMS:
        patch_effects(model, CLEAN, CORRUPT, "kl", stream, scored=SCORED)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.is_grad_enabled()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert all(not point.fwd_hooks for point in model.hook_dict.values())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stream": "resid_post"}, ["'resid_post'", "resid_pre, resid_mid"]),
        ({"direction": "sideways"}, ["'sideways'", "'denoising' or 'noising'"]),
        ({"corrupt": CLEAN}, ["corrupt equals clean"]),
        ({"corrupt": CORRUPT[:, :4]}, ["(5, 4)", "(5, 6)"]),
        ({"positions": [6]}, ["position 6", "0 to 5"]),
        ({"scored": [8]}, ["8"]),
    ],
)
def test_a_mistake_gets_one_line_that_says_what_is_allowed(given, words):
    options = {"corrupt": CORRUPT, "metric": loss, "scored": SCORED, **given}
    with pytest.raises(InputError) as error:
        patch_effects(tiny_model(), CLEAN, **options)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_streams_that_a_model_has_not_got_are_refused():
    with pytest.raises(InputError, match="attention-only model, which has no MLP"):
        patch_effects(tiny_model(attn_only=True), CLEAN, CORRUPT, "kl", "mlp_out")
    with pytest.raises(InputError, match="attention-only or parallel"):
        patch_effects(tiny_model(parallel_attn_mlp=True), CLEAN, CORRUPT, "kl", "resid_mid")


PATHS = {
    ("resid_pre", 0): {3},
    ("resid_pre", 1): {4},
    ("attn_out", 0): {4},
    ("attn_out", 1): set(),
    ("mlp_out", 0): set(),
    ("mlp_out", 1): {4},
}
"""Where the selector is on its way, on paper: z's token, then the position that fetched it."""


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_the_selector_is_where_it_has_got_to_on_paper(direction):
    """Another z costs 12 nats: the wrong answer gets logit 12, the right one 0."""
    known = selector_lookup()
    sign = -1 if direction == "denoising" else 1
    for (stream, layer), carrying in PATHS.items():
        found = patch_effects(
            known.model, known.clean, known.corrupt, "loss", stream, direction, scored=(4,)
        ).table
        for row in found[found["layer"] == layer].to_dict("records"):
            wanted = sign * 12.0 if row["pos"] in carrying else 0.0
            assert row["effect"] == pytest.approx(wanted, rel=1e-5, abs=1e-6), (stream, row)
    heads = patch_effects(
        known.model, known.clean, known.corrupt, "loss", "z", direction, scored=(4,)
    ).table.set_index("head")["effect"]
    assert heads["L0H0"] == pytest.approx(sign * 12.0, rel=1e-5)
    assert heads[["L0H1", "L1H0", "L1H1"]].abs().max() < 1e-6


def test_a_model_that_drops_the_selector_has_nothing_to_restore():
    known = selector_lookup()
    with torch.no_grad():
        known.model.blocks[0].attn.W_V[0].zero_()
    for stream in STREAMS:
        found = patch_effects(known.model, known.clean, known.corrupt, "loss", stream, scored=(4,))
        assert found.per_example.abs().max() < 1e-6, stream
