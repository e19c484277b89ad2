"""Circuits run by adding up what is kept, against TransformerLens hooks that remove what is cut."""

import pytest
import torch

from circuits.ablation import partners
from circuits.circuit_measure import CircuitMeasure, check_circuit
from circuits.errors import InputError
from circuits.graph import Circuit, Graph
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from circuits.wiring import Wiring
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.slow_edges import edge_names, replacements, slow_logits

CLEAN, CORRUPT = random_tokens(4, 7), random_tokens(4, 7, seed=2)
SCORED = (2, 5, 4)
ABLATIONS = ("zero", "mean", "resample", "patch")


def measure_of(model, ablation="mean", granularity="head"):
    with undisturbed(model):
        prepared = prepare(
            model,
            CLEAN,
            "kl",
            graph=Graph.of(model, granularity),
            ablation=ablation,
            corrupt=CORRUPT if ablation == "patch" else None,
            scored=SCORED,
        )
        return CircuitMeasure.of(prepared)


def run_logits(measure, edges, previous=None):
    with torch.no_grad():
        return measure.logits(measure.run(edges, previous))


def some_edges(graph, share, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(len(graph.edges), generator=generator) < share
    return [edge for edge, kept in zip(graph.edges, drawn.tolist(), strict=True) if kept]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_circuit_run_equals_hooks_on_every_architecture(name):
    model = tiny_model(**ARCHITECTURES[name])
    for i, ablation in enumerate(ABLATIONS):
        measure = measure_of(model, ablation)
        graph = measure.prepared.graph
        tokens, corrupt = CLEAN[:, :6], CORRUPT[:, :6]
        values = replacements(model, ablation, tokens, corrupt, partners(4, 0))
        kept = some_edges(graph, (0.5, 0.8, 0.3, 0.6)[i], seed=i)
        cut = [edge.name for edge in graph.edges if edge not in kept]
        slow = slow_logits(model, tokens, cut, values)[:, list(SCORED)]
        torch.testing.assert_close(run_logits(measure, kept), slow, rtol=1e-9, atol=1e-9)


def test_full_circuit_is_the_model_and_empty_one_the_corrupt_run():
    model = tiny_model()
    measure = measure_of(model, "patch")
    graph = measure.prepared.graph
    with torch.no_grad():
        clean, corrupt = model(CLEAN)[:, list(SCORED)], model(CORRUPT)[:, list(SCORED)]
    torch.testing.assert_close(run_logits(measure, graph.edges), clean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(run_logits(measure, ()), corrupt, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(clean, corrupt)


@pytest.mark.parametrize("config", [{"n_layers": 3}, {"parallel_attn_mlp": True}])
def test_running_again_recomputes_enough(config):
    measure = measure_of(tiny_model(**config), "resample")
    graph = measure.prepared.graph
    kept = some_edges(graph, 0.8, seed=0)
    with torch.no_grad():
        before = measure.run(kept)
    for seed in range(8):
        fewer = [edge for edge in kept if edge not in some_edges(graph, 0.05, seed)]
        more = some_edges(graph, 0.9, seed)
        for edges in (fewer, more):
            again = run_logits(measure, edges, before)
            torch.testing.assert_close(again, run_logits(measure, edges), rtol=1e-12, atol=1e-12)


def test_nodes_that_nobody_hears_are_not_computed():
    measure = measure_of(tiny_model())
    graph = measure.prepared.graph
    with torch.no_grad():
        run = measure.run([graph.edge("embed->L0H1.v"), graph.edge("embed->logits")])
    assert set(run.excess) == {0}


def test_merged_heads_are_cut_together():
    model = tiny_model()
    whole, apart = measure_of(model, granularity="layer"), measure_of(model)
    merged = [whole.prepared.graph.edge(name) for name in ("embed->A1", "A0->M1", "M0->logits")]
    heads = [
        edge
        for edge in apart.prepared.graph.edges
        if edge.name.startswith(("embed->L1", "L0H0->M1", "L0H1->M1", "M0->logits"))
    ]
    assert len(heads) == 6 + 2 + 1
    torch.testing.assert_close(run_logits(whole, merged), run_logits(apart, heads))


def test_wiring_covers_every_edge_once():
    for granularity in ("head", "layer", "layer-qkv"):
        graph = Graph.of(tiny_model(), granularity)
        total = Wiring(graph).kept(graph.edges)
        parts = sum(Wiring(graph).kept([edge]) for edge in graph.edges)
        assert torch.equal(total, parts)
        assert int(total.sum()) == len(edge_names(tiny_model()))


def test_circuit_of_another_shape_is_refused():
    circuit = Circuit.of(Graph.of(tiny_model(n_layers=1)))
    with pytest.raises(InputError, match="circuit belongs to a model of another shape"):
        check_circuit("circuit", circuit, tiny_model())
    with pytest.raises(InputError, match="circuit is list: give a Circuit"):
        check_circuit("circuit", [], tiny_model())
