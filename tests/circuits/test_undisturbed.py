"""The model is left exactly as it was found, whatever happens."""

import pytest
import torch

from circuits import (
    Circuit,
    Graph,
    InputError,
    edge_effects,
    edge_gradients,
    faithfulness,
    prune,
)
from circuits.edge_plan import Plan
from circuits.model_weights import read_weights
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from tests.circuits.models import random_tokens, tiny_model

CLEAN, CORRUPT = random_tokens(3, 6), random_tokens(3, 6, seed=2)


def snapshot(model):
    """Everything that a careless tool could leave changed."""
    hooks = {
        name: (
            [hook.hook for hook in point.fwd_hooks],
            len(point.bwd_hooks),
            len(point._forward_hooks),
        )
        for name, point in model.hook_dict.items()
    }
    return {
        "parameters": {
            k: (id(p), p._version, p.requires_grad) for k, p in model.named_parameters()
        },
        "values": {k: v.clone() for k, v in model.state_dict().items()},
        "hooks": hooks,
        "module hooks": {
            name: (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
            for name, m in model.named_modules()
        },
        "flags": model.cfg.to_dict(),
        "tables": [getattr(b.attn, "alibi", None) for b in model.blocks],
        "training": [m.training for m in model.modules()],
        "grad mode": torch.is_grad_enabled(),
        "random": torch.get_rng_state(),
    }


def assert_unchanged(before, after):
    assert before.keys() == after.keys()
    for key in before:
        if key == "random":
            assert torch.equal(before[key], after[key])
        elif key == "values":
            assert before[key].keys() == after[key].keys()
            assert all(torch.equal(before[key][k], after[key][k]) for k in before[key])
        elif key == "tables":
            assert all(a is b for a, b in zip(before[key], after[key], strict=True))
        else:
            assert before[key] == after[key], key


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["standard", "alibi", "rotary"])
def test_after_success(training, kind):
    model = tiny_model(positional_embedding_type=kind, rotary_dim=4 if kind == "rotary" else None)
    model.train(training)
    model.cfg.use_split_qkv_input = training
    calls = []
    model.add_hook("blocks.0.hook_mlp_out", lambda x, hook: calls.append(x.shape))
    before = snapshot(model)
    edge_effects(model, CLEAN, "kl", corrupt=CORRUPT)
    assert_unchanged(before, snapshot(model))
    model(CLEAN)
    assert calls  # The user's own hook is still there and still fires.


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["hook", "metric"])
def test_after_an_exception_or_ctrl_c(error, where):
    model = tiny_model(positional_embedding_type="alibi")

    def fail(*_args, **_options):
        torch.rand(3)
        raise error("from the user's code")

    if where == "hook":
        model.add_hook("blocks.1.attn.hook_pattern", fail)
    before = snapshot(model)
    with pytest.raises(error):
        edge_effects(model, CLEAN, "kl" if where == "hook" else fail, corrupt=CORRUPT)
    assert_unchanged(before, snapshot(model))


QUESTIONS = {
    "edge_effects": lambda model, metric: edge_effects(model, CLEAN, metric, corrupt=CORRUPT),
    "edge_gradients": lambda model, metric: edge_gradients(
        model, CLEAN, metric, corrupt=CORRUPT, steps=2
    ),
    "prune": lambda model, metric: prune(model, CLEAN, metric, budget=0.5),
    "faithfulness": lambda model, metric: faithfulness(
        model, every_second_edge(model), CLEAN, metric, n_random=1
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("how", ["success", "hook raises", "hook gets Ctrl-C", "metric raises"])
def test_every_public_question_leaves_the_model_as_found(question, how):
    model = tiny_model(positional_embedding_type="alibi")
    error = {"hook gets Ctrl-C": KeyboardInterrupt, "success": None}.get(how, ValueError)
    fired = []

    def users_own(activation, hook):
        fired.append(hook.name)
        if how.startswith("hook"):
            torch.rand(3)
            raise error("from the user's hook")

    def metric(logits):
        if how == "metric raises":
            raise ValueError("from the user's metric")
        return logits.log_softmax(-1)[:, -1, 3]

    model.add_hook("blocks.1.attn.hook_pattern", users_own)
    before = snapshot(model)
    if error is None:
        QUESTIONS[question](model, metric)
    else:
        with pytest.raises(error):
            QUESTIONS[question](model, metric)
    assert_unchanged(before, snapshot(model))
    assert fired


def test_after_bad_input():
    model = tiny_model()
    before = snapshot(model)
    with pytest.raises(InputError):
        edge_effects(model, CLEAN, "kl", corrupt=CLEAN)
    assert_unchanged(before, snapshot(model))


def test_gradients_can_be_taken_afterwards():
    model = tiny_model()
    result = edge_effects(model, CLEAN, "kl", corrupt=CORRUPT)
    assert not result.per_example.requires_grad
    model(CLEAN).sum().backward()
    assert model.embed.W_E.grad is not None
    (result.per_example * torch.ones(3, dtype=torch.float64, requires_grad=True)).sum().backward()


def test_input_tensors_and_cached_streams_are_never_mutated():
    model = tiny_model()
    clean, corrupt = CLEAN.clone(), CORRUPT.clone()
    with undisturbed(model):
        prepared = prepare(model, clean, "kl", ablation="patch", corrupt=corrupt)
        kept = [t.clone() for t in _tensors(prepared)]
        prepared.measure(every_second_edge(model))
        edges = Graph.of(model).edges
        Plan(prepared, edges, None, None).run()
    assert all(torch.equal(a, b) for a, b in zip(kept, _tensors(prepared), strict=True))
    assert torch.equal(clean, CLEAN)
    assert torch.equal(corrupt, CORRUPT)


def every_second_edge(model):
    graph = Graph.of(model)
    return Circuit.of(graph, graph.edges[::2])


def _tensors(prepared):
    streams = [prepared.clean, prepared.replacements.corrupt]
    for run in streams:
        yield from (run.embed, run.logits, run.logits_in, *run.resid)
        for layer in run.layers:
            yield from (layer.q, layer.k, layer.v, layer.z, layer.pattern, layer.mlp_out)


def test_training_after_reading_weights_does_not_depend_on_the_copy():
    """Weights that were read are not in the graph of anything."""
    weights = read_weights(tiny_model())
    assert not weights.W_U.requires_grad
    assert not weights.attention[0].W_qkv.requires_grad
