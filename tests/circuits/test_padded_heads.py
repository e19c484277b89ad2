"""Head ablation and activation patching of padded batches: left = right = no padding."""

import pytest
import torch

from circuits.activation_patching import patch_effects
from circuits.errors import InputError
from circuits.head_ablation import head_effects, lone_head_effects, pair_effects
from circuits.padded_heads import stretches
from circuits.provenance import tensor_sha256
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.test_padding import padded

POSITIONS = ["LN", "rotary", "alibi", "local attention"]


def both_sides(call, **options):
    """The same question of a left-padded and of a right-padded batch."""
    found = []
    for side in ("left", "right"):
        clean, mask = padded(side)
        found.append(call(clean, padded(side, seed=2)[0], mask, **options))
    return found


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("ablation", ["zero", "mean", "mean-all", "resample", "patch"])
def test_left_equals_right(name, ablation):
    model = tiny_model(**ARCHITECTURES[name])

    def ask(clean, corrupt, mask):
        other = corrupt if ablation == "patch" else None
        return head_effects(model, clean, "kl", ablation, other, attention_mask=mask).per_example

    left, right = both_sides(ask)
    torch.testing.assert_close(left, right)
    assert left.abs().max() > 1e-2


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("metric", ["kl", "loss"])
@pytest.mark.parametrize("ablation", ["zero", "patch"])
def test_padded_equals_unpadded_row_by_row(side, metric, ablation):
    model = tiny_model()
    clean, mask = padded(side)
    corrupt = padded(side, seed=2)[0] if ablation == "patch" else None
    whole = head_effects(model, clean, metric, ablation, corrupt, attention_mask=mask)
    for row in range(len(clean)):
        real = mask[row].bool()
        other = None if corrupt is None else corrupt[row : row + 1, real]
        alone = head_effects(model, clean[row : row + 1, real], metric, ablation, other)
        torch.testing.assert_close(whole.per_example[:, row], alone.per_example[:, 0])
        torch.testing.assert_close(whole.clean[row], alone.clean[0])


@pytest.mark.parametrize("ablation", ["zero", "mean", "mean-all", "resample"])
def test_a_mask_of_ones_changes_nothing(ablation):
    model, tokens = tiny_model(), random_tokens(4, 6)
    ones = torch.ones_like(tokens)
    masked = head_effects(model, tokens, "loss", ablation, scored=(2, 4), attention_mask=ones)
    plain = head_effects(model, tokens, "loss", ablation, scored=(2, 4))
    torch.testing.assert_close(masked.per_example, plain.per_example)


@pytest.mark.parametrize("side", ["left", "right"])
def test_means_come_from_all_rows_at_the_same_place(side):
    """By a hook with the mean written out: place 0 has four rows, place 5 has two."""
    model = tiny_model()
    clean, mask = padded(side)
    found = head_effects(
        model, clean, "kl", "mean", heads=["L0H1"], attention_mask=mask
    ).per_example[0]
    rows = [clean[i, mask[i].bool()][None] for i in range(4)]
    z = [model.run_with_cache(row)[1]["z", 0][0, :, 1] for row in rows]
    mean = torch.stack(
        [torch.stack([one[p] for one in z if len(one) > p]).mean(0) for p in range(6)]
    )
    for i, row in enumerate(rows):

        def swap(z, hook):
            z = z.clone()
            z[0, :, 1] = mean[: z.shape[1]]
            return z

        changed = model.run_with_hooks(row, fwd_hooks=[("blocks.0.attn.hook_z", swap)])
        log_p, log_q = (x.log_softmax(-1) for x in (model(row), changed))
        wanted = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
        torch.testing.assert_close(found[i], wanted)


def test_chosen_positions_are_those_of_the_padded_batch():
    model = tiny_model()
    clean, mask = padded("left")
    some = head_effects(model, clean, "kl", positions=[2, 5], attention_mask=mask)
    for row, offset in ((0, 2), (1, 0)):
        real = mask[row].bool()
        alone = head_effects(
            model, clean[row : row + 1, real], "kl", positions=[2 - offset, 5 - offset]
        )
        torch.testing.assert_close(some.per_example[:, row], alone.per_example[:, 0])
    outside = head_effects(model, clean, "kl", positions=[0], attention_mask=mask)
    assert outside.per_example[:, [0, 3]].abs().max() < 1e-12 < outside.per_example[0, 1].abs()


def test_pairs_and_all_but_one_take_a_mask():
    model = tiny_model()

    def pairs(clean, corrupt, mask):
        return pair_effects(model, clean, "kl", attention_mask=mask).synergy

    def lone(clean, corrupt, mask):
        return lone_head_effects(model, clean, "kl", attention_mask=mask).per_example

    for ask in (pairs, lone):
        torch.testing.assert_close(*both_sides(ask))


@pytest.mark.parametrize("stream", ["resid_pre", "attn_out", "mlp_out", "z"])
@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_patching_padded_rows_is_patching_each_row(stream, direction):
    model = tiny_model()
    for side in ("left", "right"):
        clean, mask = padded(side)
        corrupt = padded(side, seed=2)[0]
        whole = patch_effects(model, clean, corrupt, "kl", stream, direction, attention_mask=mask)
        for row in (0, 1):
            real = mask[row].bool()
            alone = patch_effects(
                model, clean[row : row + 1, real], corrupt[row : row + 1, real], "kl", stream,
                direction,
            )  # fmt: skip
            ours = whole.per_example[:, row]
            if stream != "z":
                by_layer = ours.view(2, 6)
                assert by_layer[:, ~real].abs().sum() == 0
                ours = by_layer[:, real].flatten()
            torch.testing.assert_close(ours, alone.per_example[:, 0])
            torch.testing.assert_close(whole.donor[row], alone.donor[0])
        assert whole.per_example.abs().max() > 1e-2


def test_groups_of_positions_have_names():
    model, tokens, other = tiny_model(), random_tokens(5, 6), random_tokens(5, 6, seed=2)
    groups = {"start": (0, 1), "end": (-1,)}
    named = head_effects(model, tokens, "kl", positions=groups)
    assert named.table["position"].tolist() == ["start", "end"] * 4
    for first, at in enumerate(groups.values()):
        alone = head_effects(model, tokens, "kl", positions=at)
        torch.testing.assert_close(named.per_example[first::2], alone.per_example)
    patched = patch_effects(model, tokens, other, "kl", positions=groups)
    assert patched.grid().columns.tolist() == ["end", "start"]
    single = patch_effects(model, tokens, other, "kl")
    torch.testing.assert_close(patched.per_example[1], single.per_example[5])
    assert (patched.per_example[0] - single.per_example[:2].sum(0)).abs().max() > 1e-6
    # Both tokens of the group at once: the run in which they are the clean ones.
    mixed = other.clone()
    mixed[:, :2] = tokens[:, :2]
    log_p = model(tokens).log_softmax(-1)
    kl = [(log_p.exp() * (log_p - model(x).log_softmax(-1))).sum(-1).mean(-1)
          for x in (mixed, other)]  # fmt: skip
    torch.testing.assert_close(patched.per_example[0], kl[0] - kl[1])


@pytest.mark.parametrize("ablation", ["mean", "resample", "patch"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logit_diff_has_the_contrast_that_it_has_without_padding(side, ablation):
    """Under resample the partner is no wrong answer: the likeliest wrong token stays it."""
    model, pad = tiny_model(scale=0.4), torch.zeros(6, 2, dtype=torch.long)
    clean, corrupt = random_tokens(6, 6), random_tokens(6, 6, seed=9)
    shift = 2 if side == "left" else 0

    def longer(x):
        return torch.cat([pad, x] if side == "left" else [x, pad], 1)

    pair = (corrupt, longer(corrupt)) if ablation == "patch" else (None, None)
    plain = head_effects(model, clean, "logit_diff", ablation, pair[0], scored=(2, 4))
    given = {"scored": (2 + shift, 4 + shift), "attention_mask": longer(torch.ones_like(clean))}
    found = head_effects(model, longer(clean), "logit_diff", ablation, pair[1], **given)
    torch.testing.assert_close(found.per_example, plain.per_example)
    assert plain.per_example.abs().max() > 1e-2


def test_rows_that_equal_their_replacement_have_no_effect():
    model, (clean, mask) = tiny_model(), padded("right")
    corrupt, twins = padded("right", seed=2)[0], clean.clone()
    corrupt[[0, 3]], twins[3] = clean[[0, 3]], clean[0]
    patched = head_effects(model, clean, "kl", "patch", corrupt, attention_mask=mask).per_example
    drawn = head_effects(model, twins, "kl", "resample", attention_mask=mask).per_example
    for found in (patched, drawn):
        assert found[:, [0, 3]].abs().max() < 1e-9
        assert found[:, [1, 2]].abs().max() > 1e-3


def test_provenance_describes_the_whole_batch():
    model, (clean, mask) = tiny_model(), padded("left")
    facts = head_effects(
        model, clean, "kl", "resample", scored=(4,), attention_mask=mask
    ).provenance
    assert facts["batch_sha256"] == tensor_sha256([clean])
    assert facts["batch_shape"] == [4, 6]
    assert facts["scored"] == [4]
    assert facts["corrupt"] is None


CLEAN, MASK = padded("left")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": lambda logits: logits.sum((1, 2))}, "attention_mask needs a metric by name"),
        ({"attention_mask": MASK * 2}, "must hold 0"),
        ({"scored": (1,)}, "leaves example 0 without a scored position"),
        ({"scored": (6,)}, "outside the 6 positions"),
        ({"reference": CLEAN, "ablation": "mean"}, "reference= and attention_mask= do not go"),
        ({"ablation": "noise"}, "ablation='noise' is unknown"),
        ({"ablation": "patch"}, "needs corrupt="),
        ({"ablation": "mean", "corrupt": CLEAN + 1}, "corrupt= is not used by ablation='mean'"),
        ({"positions": {"far": (9,)}}, r"positions\['far'\]"),
        ({"positions": (9,)}, "position 9 is out of range"),
    ],
)
def test_bad_input_of_head_effects_is_refused(options, words):
    given = {"metric": "kl", "attention_mask": MASK, **options}
    with pytest.raises(InputError, match=words) as error:
        head_effects(tiny_model(), CLEAN, **given)
    assert "\n" not in str(error.value)


def test_bad_input_of_the_others_is_refused():
    model, corrupt = tiny_model(), padded("left", seed=2)[0]
    with pytest.raises(InputError, match="stream='z' patches one set of positions"):
        patch_effects(model, CLEAN, corrupt, "kl", "z", positions={"a": (1,)})
    with pytest.raises(InputError, match="positions is a mapping, which only head_effects takes"):
        pair_effects(model, CLEAN, "kl", positions={"a": (1,)})
    with pytest.raises(InputError, match="heads names 1 head; a pair needs at least two"):
        pair_effects(model, CLEAN, "kl", heads=["L0H0"])
    with pytest.raises(InputError, match="the model has one head; all-but-one needs"):
        lone_head_effects(tiny_model(n_layers=1, n_heads=1, d_head=16), CLEAN, "kl")
    odd = MASK[:3]
    with pytest.raises(InputError, match=r"no partner for example 0: .* of each padding"):
        head_effects(model, CLEAN[:3], "kl", "resample", attention_mask=odd)
    with pytest.raises(InputError, match=r"attention_mask has shape \(4, 4\) but clean"):
        list(stretches.__wrapped__(MASK[:, :4], CLEAN, "kl", None))
