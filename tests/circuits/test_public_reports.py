"""Reports about other tools, as tests of this one. Numbers are those of the public trackers."""

import pytest
import torch

from circuits import Circuit, Graph, edge_effects
from circuits.checked_run import embed_batch
from circuits.model_weights import read_weights
from circuits.streams import cuts_of, run_streams
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_logits

CLEAN, CORRUPT = random_tokens(4, 7), random_tokens(4, 7, seed=2)


def effects(model, ablation="patch"):
    corrupt = CORRUPT if ablation == "patch" else None
    return edge_effects(model, CLEAN, "kl", ablation=ablation, corrupt=corrupt).per_example


@pytest.mark.parametrize("flag", ["use_split_qkv_input", "use_attn_result", "use_hook_mlp_in"])
@pytest.mark.parametrize("name", ["LN", "grouped keys and values"])
def test_flags_do_not_change_effects(flag, name):
    """Split inputs changed results and crashed grouped keys (TransformerLens#519, #558, #659)."""
    model = tiny_model(**ARCHITECTURES[name])
    plain = effects(model)
    setattr(model.cfg, flag, True)
    torch.testing.assert_close(effects(model), plain, rtol=1e-10, atol=1e-12)
    assert getattr(model.cfg, flag)


def test_heads_and_bias_add_up_to_the_attention_output():
    """The sum over heads, plus b_O, is what attention adds (TransformerLens#659, #667)."""
    model = tiny_model()
    weights = read_weights(model)
    with torch.no_grad():
        streams = run_streams(weights, embed_batch(model, weights, CLEAN, None))
        _, cache = model.run_with_cache(CLEAN)
    for layer in range(2):
        nodes = [n for n in Graph.of(model).nodes if n.kind == "head" and n.layer == layer]
        total = sum(streams.output(node) for node in nodes) + model.blocks[layer].attn.b_O.detach()
        torch.testing.assert_close(total, cache["attn_out", layer], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ablation", ["zero", "mean", "patch"])
def test_the_complete_graph_is_the_clean_run_and_the_empty_one_is_not(ablation):
    """Position embeddings and zero ablation corrupted complete graphs (ACDC PR#67, #14)."""
    model = tiny_model()
    graph = Graph.of(model)
    full = edge_effects(
        model,
        CLEAN,
        "kl",
        ablation=ablation,
        corrupt=CORRUPT if ablation == "patch" else None,
        within=Circuit.of(graph),
        edges=["embed->M0"],
    )
    assert full.baseline.abs().max() < 1e-12
    values = replacements(model, ablation, CLEAN, CORRUPT)
    weights = read_weights(model)
    with torch.no_grad():
        run = run_streams(
            weights,
            embed_batch(model, weights, CLEAN, None),
            cuts_of(graph.edges, 2),
            lambda node: values[node.name],
        )
    slow = slow_logits(model, CLEAN, [edge.name for edge in graph.edges], values)
    torch.testing.assert_close(run.logits, slow, rtol=1e-10, atol=1e-10)
    if ablation != "patch":  # Every example then reads the same, whatever its tokens are.
        torch.testing.assert_close(run.logits, run.logits[:1].expand_as(run.logits))


@pytest.mark.parametrize(
    "name", ["rotary", "attention only", "one head", "d_head * n_heads != d_model"]
)
def test_more_than_gpt2(name):
    """Interventions that worked on one architecture only (pyvene#158, EAP-IG's n_heads=1)."""
    model = tiny_model(**ARCHITECTURES[name])
    graph = Graph.of(model)
    assert effects(model).shape == (len(graph.edges), 4)
    assert not (model.cfg.attn_only and any(node.kind == "mlp" for node in graph.nodes))


def test_parallel_blocks_have_no_edges_from_heads_to_their_own_mlp():
    """A naive enumeration gives 110 edges where there are 102."""
    names = {edge.name for edge in Graph(2, 4, parallel=True).edges}
    assert len(names) == 102
    assert "L0H0->M0" not in names
    assert "L0H0->M1" in names


def test_tied_embeddings():
    """One matrix at both ends (TransformerLens#671): reading it as input changes its output."""
    model = tiny_model(d_vocab_out=11)
    with torch.no_grad():
        model.unembed.W_U.copy_(model.embed.W_E.T)
    model.unembed.W_U.data = model.embed.W_E.data.T
    untied = tiny_model(d_vocab_out=11)
    untied.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    torch.testing.assert_close(effects(model), effects(untied), rtol=1e-12, atol=1e-12)


def test_attention_biases_belong_to_no_edge():
    """b_O stays when every head is cut, under zero ablation too."""
    model = tiny_model(n_layers=1, attn_only=True, normalization_type=None)
    weights, graph = read_weights(model), Graph(1, 2, attn_only=True)
    with torch.no_grad():
        batch = embed_batch(model, weights, CLEAN, None)
        cuts = cuts_of(graph.edges, 2)
        run = run_streams(weights, batch, cuts, lambda node: torch.zeros_like(batch.embed))
        alone = model.blocks[0].attn.b_O @ model.W_U + model.b_U
    torch.testing.assert_close(run.logits, alone.expand_as(run.logits))
