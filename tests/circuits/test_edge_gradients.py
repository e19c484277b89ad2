"""Gradient estimates against finite differences through hooks, exact effects, and their limits."""

import pytest
import torch
from scipy.stats import spearmanr

from circuits.edge_ablation import edge_effects
from circuits.edge_attribution import METHODS, edge_gradients
from circuits.errors import InputError
from tests.circuits.known_circuits import induction_head
from tests.circuits.models import random_tokens, tiny_model
from tests.circuits.slow_edges import edge_names, replacements, slow_logits

CLEAN, CORRUPT = random_tokens(5, 7), random_tokens(5, 7, seed=2)
SCORED = [3, 5]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def next_token_loss(logits):
    """The loss at the scored positions, written without the package."""
    target = CLEAN[:, [4, 6]]
    return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].mean(-1)


def estimates(model, metric="loss", **kwargs):
    corrupt = CORRUPT if kwargs.get("ablation", "patch") == "patch" else None
    kwargs = {"corrupt": corrupt, "scored": SCORED} | kwargs
    return edge_gradients(model, CLEAN, metric, **kwargs)


@pytest.mark.parametrize("ablation", ["zero", "mean", "patch"])
def test_eap_is_the_slope_of_cutting_an_edge_a_little(model, ablation):
    found = estimates(model, method="eap", ablation=ablation)
    tokens, share = CLEAN[:, :6], 1e-5
    own = replacements(model, "patch", tokens, tokens)
    full = replacements(model, ablation, tokens, CORRUPT[:, :6])
    for edge, row in list(zip(edge_names(model), range(len(found.table)), strict=True))[::4]:
        row = found.table.index[found.table["edge"] == edge][0]

        def cut(part, edge=edge):
            values = {node: own[node] + part * (full[node] - own[node]) for node in own}
            return next_token_loss(slow_logits(model, tokens, [edge], values)[:, SCORED])

        slope = (cut(share) - cut(-share)) / (2 * share)
        torch.testing.assert_close(found.per_example[row], slope, rtol=1e-5, atol=1e-7)


def test_estimates_have_the_form_and_sign_of_exact_effects(model):
    exact = edge_effects(model, CLEAN, "loss", corrupt=CORRUPT, scored=SCORED)
    found = estimates(model, method="eap-ig-inputs", steps=20)
    assert list(found.table.columns) == list(exact.table.columns)
    assert list(found.table["edge"]) == list(exact.table["edge"])
    assert found.per_example.shape == exact.per_example.shape
    torch.testing.assert_close(found.baseline, exact.baseline)
    assert found.table["effect"].corr(exact.table["effect"]) > 0.5
    assert found.provenance["method"] == "eap-ig-inputs"
    assert found.provenance["steps"] == 20


def linear_model():
    """Attends evenly whatever it reads, and its MLP neurons are always on."""
    model = tiny_model(normalization_type=None, act_fn="relu")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
            block.mlp.b_in.fill_(1000.0)
    return model


@pytest.mark.parametrize("method", ["eap", "eap-ig-inputs"])
def test_on_a_linear_model_eap_is_exact(method):
    model = linear_model()

    def metric(logits):
        return logits[:, 0, 3] - 2 * logits[:, 1, 7]

    exact = edge_effects(model, CLEAN, metric, corrupt=CORRUPT, scored=SCORED)
    found = estimates(model, metric, method=method, steps=3)
    torch.testing.assert_close(found.per_example, exact.per_example, rtol=1e-8, atol=1e-6)
    assert exact.per_example.abs().max() > 1


def edge_total(model, metric):
    """Effect of cutting every edge under "patch": the corrupt run."""
    with torch.no_grad():
        clean, corrupt = model(CLEAN)[:, SCORED], model(CORRUPT)[:, SCORED]
    return metric(corrupt) - metric(clean)


def test_shares_of_all_edges_add_up_to_cutting_all():
    model = tiny_model(scale=0.3)
    found = estimates(model, method="eap-ig-activations", steps=40)
    total = edge_total(model, next_token_loss)
    torch.testing.assert_close(found.per_example.sum(0), total, rtol=1e-2, atol=1e-2)


def test_shares_of_the_embeddings_edges_add_up_to_changing_the_input():
    model = tiny_model(scale=0.3)
    found = estimates(model, method="eap-ig-inputs", steps=40)
    rows = torch.tensor((found.table["source"] == "embed").to_numpy())
    total = edge_total(model, next_token_loss)
    torch.testing.assert_close(found.per_example[rows].sum(0), total, rtol=1e-2, atol=1e-2)
    assert not torch.allclose(found.per_example.sum(0), total, rtol=1e-1, atol=1e-1)


def test_integrated_gradients_see_edges_that_saturation_hides_from_eap():
    known = induction_head()
    for block in known.model.blocks:
        block.attn.W_Q *= 0.2  # Attention of 0.9998, with a slope to match.
    batches = {"corrupt": known.corrupt, "scored": known.scored}

    def effect(result):
        return result.table.set_index("edge")["effect"]["embed->L1H0.q"]

    exact = effect(edge_effects(known.model, known.clean, "loss", **batches))
    eap = effect(edge_gradients(known.model, known.clean, "loss", method="eap", **batches))
    ig = effect(edge_gradients(known.model, known.clean, "loss", steps=20, **batches))
    assert exact > 1
    assert abs(eap) < 0.05 * exact
    assert ig > 0.3 * exact


def nearly_alike(size):
    """A model whose tokens hardly differ, so that what edges carry hardly varies."""
    model = tiny_model()
    with torch.no_grad():
        model.embed.W_E.copy_(model.embed.W_E[:1] + size * model.embed.W_E)
    return model


def test_for_small_changes_eap_is_exact():
    def worst(size):
        model = nearly_alike(size)
        exact = edge_effects(model, CLEAN, "loss", corrupt=CORRUPT, scored=SCORED).per_example
        found = estimates(model, method="eap").per_example
        return ((found - exact).abs().max() / exact.abs().max()).item()

    assert worst(1e-4) < 1e-3
    assert worst(1e-3) / worst(1e-4) == pytest.approx(10, rel=0.2)  # Second order is left out.


def test_for_small_changes_curvature_gives_kl_where_the_slope_is_zero():
    model = nearly_alike(1e-3)
    exact = edge_effects(model, CLEAN, "kl", ablation="mean", scored=SCORED).table["effect"]
    found = estimates(model, "kl", ablation="mean", method="curvature", steps=100).table["effect"]
    assert spearmanr(exact, found)[0] > 0.97
    assert found.sum() == pytest.approx(exact.sum(), rel=0.1)
    assert found.min() >= 0


@pytest.mark.parametrize("method", METHODS)
def test_a_small_memory_budget_changes_nothing(model, method):
    def run(**kwargs):
        return estimates(model, method=method, steps=2, ablation="resample", **kwargs)

    whole = run().per_example
    if method == "curvature":  # Draws depend on the parts; the slope does not.
        assert run(memory_budget=100_000).per_example.shape == whole.shape
    else:
        torch.testing.assert_close(run(memory_budget=100_000).per_example, whole)


def test_a_metric_that_closes_over_targets_sees_the_whole_batch(model):
    seen = []

    def metric(logits):
        seen.append(logits.shape[0])
        return next_token_loss(logits)

    own = estimates(model, metric, method="eap", memory_budget=100_000)
    assert set(seen) == {5}
    torch.testing.assert_close(own.per_example, estimates(model, method="eap").per_example)


def test_merged_edges_are_sums_of_their_parts(model):
    heads = estimates(model, method="eap").table.set_index("edge")["effect"]
    merged = estimates(model, method="eap", granularity="layer").table.set_index("edge")["effect"]
    assert len(merged) == 15
    assert merged["A0->M1"] == pytest.approx(heads["L0H0->M1"] + heads["L0H1->M1"])
    parts = heads[[f"M0->L1H{head}.{x}" for head in (0, 1) for x in "qkv"]]
    assert merged["M0->A1"] == pytest.approx(parts.sum())


def test_works_in_inference_mode_and_leaves_the_model_as_found(model):
    state = torch.get_rng_state()
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.inference_mode():
        found = estimates(model, method="eap-ig-inputs", steps=2)
    torch.testing.assert_close(
        found.per_example, estimates(model, method="eap-ig-inputs", steps=2).per_example
    )
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
        assert parameter.requires_grad


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"method": "eap-ig"}, "method='eap-ig' is not known; near matches: eap, eap-ig-inputs"),
        ({"method": None}, "method=None is not known; near matches: eap, eap-ig-inputs"),
        ({"steps": 2.5}, "steps=2.5 is float: give an integer"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"metric": "kl", "method": "eap"}, "metric='kl' has no slope at the clean run"),
        (
            {"metric": "logit_diff", "method": "curvature"},
            "method='curvature' needs metric='kl' or 'loss', not 'logit_diff'",
        ),
        ({"memory_budget": 10}, "memory_budget=10 bytes is too small"),
        ({"metric": lambda x: x.detach()[:, 0, 0]}, "metric has no gradient"),
        ({"corrupt": None}, "ablation='patch' needs corrupt="),
    ],
)
def test_bad_input_is_named(model, kwargs, message):
    kwargs = {"corrupt": CORRUPT, "scored": SCORED, "metric": "loss"} | kwargs
    with pytest.raises(InputError, match=message):  # As users meet it, without checks of axes.
        edge_gradients.__wrapped__(model, CLEAN, **kwargs)
