"""The factored forward pass is the model's own, with any set of edges cut."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.checked_run import embed_batch
from circuits.graph import Circuit, Graph, Reader
from circuits.model_weights import read_weights
from circuits.streams import cuts_of, run_streams
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_logits, split_inputs


def streams_of(model, tokens, mask=None, **options):
    with torch.no_grad():
        weights = read_weights(model)
        return run_streams(weights, embed_batch(model, weights, tokens, mask), **options)


def by_node(values):
    return lambda node: values[node.name]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_edge_cut_gives_the_clean_logits(name):
    model, tokens = tiny_model(**ARCHITECTURES[name]), random_tokens(3, 8)
    with torch.no_grad():
        own = model(tokens)
    torch.testing.assert_close(streams_of(model, tokens).logits, own, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_edge_cut_under_patch_gives_the_corrupt_logits(name):
    model, clean, corrupt = (
        tiny_model(**ARCHITECTURES[name]),
        random_tokens(3, 8),
        random_tokens(3, 8, seed=2),
    )
    there = streams_of(model, corrupt)
    cuts = cuts_of(Graph.of(model).edges, model.cfg.n_heads)
    run = streams_of(model, clean, cuts=cuts, value=there.output)
    torch.testing.assert_close(run.logits, there.logits, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(run.logits, streams_of(model, clean).logits, atol=1e-3)


@pytest.mark.parametrize("name", ["LN", "parallel", "attention only", "shortformer", "one layer"])
def test_outputs_before_a_reader_add_up_to_what_it_reads(name):
    """Sources, plus the attention biases before it, are the residual stream at every reader."""
    model, tokens = tiny_model(**ARCHITECTURES[name]), random_tokens(3, 8)
    streams, graph = streams_of(model, tokens), Graph.of(model)
    with torch.no_grad(), split_inputs(model):
        _, cache = model.run_with_cache(tokens)
    for reader in graph.readers:
        sources = [e.source for e in graph.edges if e.reader == reader]
        total = sum(streams.output(source) for source in sources)
        own_layer = reader.kind == "mlp" and not graph.parallel
        for layer in range(reader.layer + own_layer):
            total = total + model.blocks[layer].attn.b_O.detach()
        torch.testing.assert_close(streams.reader_input(reader), total, rtol=1e-10, atol=1e-10)
        if reader.kind == "logits":
            own = cache["resid_post", -1]
        elif reader.kind == "mlp":
            own = cache[f"blocks.{reader.layer}.hook_mlp_in"]
        else:
            own = cache[f"blocks.{reader.layer}.hook_{reader.input}_input"][:, :, reader.index]
        torch.testing.assert_close(total, own, rtol=1e-10, atol=1e-10)


def test_nothing_is_counted_twice_in_the_residual_stream():
    """resid_pre + attention = resid_mid, + MLP = resid_post (TransformerLens#1639)."""
    model, tokens = tiny_model(n_layers=3), random_tokens(3, 8)
    streams = streams_of(model, tokens)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    before = streams.embed
    for layer in range(3):
        heads = sum(streams.output(node) for node in Graph.of(model).nodes if _head(node, layer))
        middle = before + heads + model.blocks[layer].attn.b_O.detach()
        torch.testing.assert_close(middle, cache["resid_mid", layer], rtol=1e-10, atol=1e-10)
        before = streams.resid[layer]
        torch.testing.assert_close(before, cache["resid_post", layer], rtol=1e-10, atol=1e-10)
        mlp_out = streams.layers[layer].mlp_out
        torch.testing.assert_close(middle + mlp_out, before, rtol=1e-10, atol=1e-10)


def _head(node, layer):
    return node.kind == "head" and node.layer == layer


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_any_set_of_edges_cut_agrees_with_hooks(name):
    model, clean, corrupt = (
        tiny_model(**ARCHITECTURES[name]),
        random_tokens(3, 8),
        random_tokens(3, 8, seed=2),
    )
    graph = Graph.of(model)
    generator = torch.Generator().manual_seed(4)
    for share in (0.1, 0.5, 0.9):
        drawn = torch.rand(len(graph.edges), generator=generator) < share
        cut = [edge for edge, chosen in zip(graph.edges, drawn, strict=True) if chosen]
        values = replacements(model, "patch", clean, corrupt)
        slow = slow_logits(model, clean, [edge.name for edge in cut], values)
        fast = streams_of(
            model, clean, cuts=cuts_of(cut, model.cfg.n_heads), value=by_node(values)
        ).logits
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-9)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.data())
def test_random_architectures_cut_at_random(data):
    draw = data.draw
    n_heads = draw(st.sampled_from([1, 2, 3, 4]))
    config = {
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": n_heads,
        "d_head": draw(st.sampled_from([2, 4, 6])),
        "normalization_type": draw(st.sampled_from(["LN", "LNPre", "RMS", "RMSPre"])),
        "positional_embedding_type": draw(
            st.sampled_from(["standard", "rotary", "shortformer", "alibi"])
        ),
        "act_fn": draw(st.sampled_from(["gelu", "relu", "silu", "gelu_new", "solu_ln"])),
    }
    config["rotary_dim"] = 2 if config["positional_embedding_type"] == "rotary" else None
    config["gated_mlp"] = draw(st.booleans()) and config["act_fn"] != "solu_ln"
    config["parallel_attn_mlp"] = draw(st.booleans())
    config["attn_only"] = draw(st.booleans()) and not config["parallel_attn_mlp"]
    config["n_key_value_heads"] = draw(st.sampled_from([None, 1, n_heads]))
    config["attn_scores_soft_cap"] = draw(st.sampled_from([-1.0, 2.0]))
    model = tiny_model(seed=draw(st.integers(0, 99)), **config)
    clean, corrupt = random_tokens(2, 6), random_tokens(2, 6, seed=2)
    graph = Graph.of(model)
    cut = draw(st.lists(st.sampled_from(graph.edges), unique=True, max_size=12))
    values = replacements(model, "patch", clean, corrupt)
    slow = slow_logits(model, clean, [edge.name for edge in cut], values)
    cuts = cuts_of(cut, n_heads)
    fast = streams_of(model, clean, cuts=cuts, value=by_node(values)).logits
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    everything = cuts_of(graph.edges, n_heads)
    there = streams_of(model, corrupt)
    run = streams_of(model, clean, cuts=everything, value=there.output)
    torch.testing.assert_close(run.logits, there.logits, rtol=1e-9, atol=1e-9)


def test_offsets_give_gradients_of_reader_inputs():
    """The same gradients as TransformerLens's backward hooks on its split inputs."""
    model, tokens = tiny_model(), random_tokens(3, 8)
    weights = read_weights(model)
    batch = embed_batch(model, weights, tokens, None)
    readers = [Reader("head", 1, 1, "k"), Reader("head", 0, 0, "v"), Reader("mlp", 0)]
    zeros = {r: torch.zeros_like(batch.embed, requires_grad=True) for r in readers}
    run_streams(weights, batch, offsets=zeros).logits[:, -1].logsumexp(-1).sum().backward()
    grads = {}

    def keep(grad, hook):
        grads[hook.name] = grad

    names = ["blocks.1.hook_k_input", "blocks.0.hook_v_input", "blocks.0.hook_mlp_in"]
    with split_inputs(model), model.hooks(bwd_hooks=[(name, keep) for name in names]):
        model(tokens)[:, -1].logsumexp(-1).sum().backward()
    expected = [grads[names[0]][:, :, 1], grads[names[1]][:, :, 0], grads[names[2]]]
    for reader, own in zip(readers, expected, strict=True):
        torch.testing.assert_close(zeros[reader].grad, own, rtol=1e-9, atol=1e-12)


def test_given_outputs_take_the_place_of_what_nodes_write():
    model, clean, corrupt = tiny_model(), random_tokens(3, 8), random_tokens(3, 8, seed=2)
    here, there = streams_of(model, clean), streams_of(model, corrupt)
    graph = Graph.of(model)
    head = graph.nodes[1]
    from_output = streams_of(model, clean, outputs={head: there.output(head)})
    edges = [edge for edge in graph.edges if edge.source == head]
    from_edges = streams_of(
        model, clean, cuts=cuts_of(edges, model.cfg.n_heads), value=there.output
    )
    torch.testing.assert_close(from_output.logits, from_edges.logits, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(from_output.logits, here.logits, atol=1e-3)


def test_cutting_a_merged_edge_is_cutting_its_parts():
    model, clean, corrupt = tiny_model(), random_tokens(3, 8), random_tokens(3, 8, seed=2)
    merged = Graph.of(model, "layer").edge("A0->A1")
    parts = [e for e in Graph.of(model).edges if e.name.startswith("L0") and "->L1" in e.name]
    assert cuts_of([merged], 2) == cuts_of(parts, 2)
    assert len(parts) == 12
    there = streams_of(model, corrupt)
    run = streams_of(model, clean, cuts=cuts_of([merged], 2), value=there.output)
    values = replacements(model, "patch", clean, corrupt)
    slow = slow_logits(model, clean, [e.name for e in parts], values)
    torch.testing.assert_close(run.logits, slow, rtol=1e-10, atol=1e-10)


def test_a_circuit_of_everything_cuts_nothing():
    model = tiny_model()
    assert cuts_of((~Circuit.of(Graph.of(model))).edges, 2) == {}
