"""The public interface as a contract: names, order of arguments, columns, and frozen results."""

import dataclasses
import inspect

import pandas as pd
import pytest
import torch

from circuits import (
    Circuit,
    Edge,
    EdgeEffects,
    Graph,
    InputError,
    Node,
    Reader,
    edge_effects,
    edge_gradients,
    faithfulness,
    prune,
)
from tests.circuits.models import random_tokens, tiny_model

CLEAN, CORRUPT = random_tokens(6, 7), random_tokens(6, 7, seed=2)
COLUMNS = ["edge", "source", "reader", "effect", "low", "high"]


def metric(logits):
    return logits.log_softmax(-1)[:, -1, 3]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_edge_effects(model):
    table = edge_effects(
        model,
        CLEAN,
        metric,
        ablation="patch",
        corrupt=CORRUPT,
        edges=None,
        positions=None,
        scored=None,
    )
    assert isinstance(table, EdgeEffects)
    assert list(table.table.columns) == COLUMNS
    assert table.table.edge.tolist() == [edge.name for edge in Graph.of(model).edges]
    assert table.per_example.shape == (46, 6)
    means = torch.tensor(table.table.effect.to_numpy())
    torch.testing.assert_close(table.per_example.mean(1), means)
    assert (
        (table.table.low <= table.table.effect) & (table.table.effect <= table.table.high)
    ).all()


@pytest.mark.parametrize("method", ["eap", "eap-ig-inputs"])
def test_edge_gradients(model, method):
    approx = edge_gradients(model, CLEAN, metric, corrupt=CORRUPT, method=method, steps=30)
    assert list(approx.table.columns) == COLUMNS
    assert approx.per_example.shape == (46, 6)
    assert approx.provenance["method"] == method


def test_prune_and_faithfulness(model):
    circuit = prune(model, CLEAN, metric="kl", ablation="mean", budget=0.05)
    assert isinstance(circuit, Circuit)
    assert 0 < len(circuit) <= 46
    report = faithfulness(model, circuit, CLEAN, metric, ablation="mean")
    assert {"kl", "loss", "accuracy"} <= set(report.table.measure)
    assert report["kl"]["circuit"] == pytest.approx(circuit.excess, abs=1e-9)
    assert {"measure", "full", "circuit", "complement", "recovered"} <= set(report.table.columns)
    assert len(report.controls)


def test_defaults_are_those_that_are_documented():
    defaults = {
        function.__name__: {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        for function in (edge_effects, edge_gradients, prune, faithfulness)
    }
    assert defaults["edge_effects"]["ablation"] == "patch"
    assert defaults["edge_gradients"]["steps"] == 30
    assert (
        defaults["prune"] | {"metric": "kl", "ablation": "mean", "budget": 0.05}
        == (defaults["prune"])
    )
    assert defaults["faithfulness"]["ablation"] == "mean"


def test_results_are_frozen_and_say_what_they_were_computed_with(model):
    results = [
        edge_effects(model, CLEAN, "kl", corrupt=CORRUPT, edges=["embed->M0"]),
        edge_gradients(model, CLEAN, "loss", corrupt=CORRUPT, method="eap"),
        prune(model, CLEAN),
        faithfulness(model, Circuit.of(Graph.of(model)), CLEAN, n_random=0),
    ]
    for result, ablation in zip(results, ("patch", "patch", "mean", "mean"), strict=True):
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.provenance = {}
        facts = result.provenance
        assert facts["ablation"] == ablation
        assert facts["dtype"] == "float64"
        assert facts["device"] == "cpu"
        assert len(facts["batch_sha256"]) == len(facts["weights_sha256"]) == 64
        assert facts["torch"] == torch.__version__
        assert facts["transformer_lens"].startswith("3.")
        assert facts["weight_processing"].keys() >= {"layer_norm_folded", "unembedding_centred"}
    assert all(isinstance(result.table, pd.DataFrame) for result in (*results[:2], results[3]))


def test_graph_nodes_readers_and_edges(model):
    graph = Graph.of(model, granularity="head")
    assert len(graph.edges) == 46
    edge = graph.edge("L0H1->M1")
    assert edge == Edge(Node("head", 0, 1), Reader("mlp", 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        edge.source = graph.nodes[0]
    names = {"embed->L0H0.q", "L0H1->M1", "M0->L1H1.k", "M1->logits"}
    assert names <= {found.name for found in graph.edges}
    with pytest.raises(InputError, match=r"near matches: .*L0H1->M1"):
        graph.edge("L0H1->M2")
    one_head = tiny_model(n_heads=1, d_head=16)
    assert len(Graph.of(one_head, "layer").edges) == 15
    assert len(Graph.of(one_head, "layer-qkv").edges) == len(Graph.of(one_head).edges) == 23


@pytest.mark.parametrize("threads", [1, 2])
def test_questions_can_be_asked_inside_inference_mode(model, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        plain = edge_effects(model, CLEAN, "kl", "mean").per_example
        with torch.inference_mode():
            inside = edge_effects(model, CLEAN, "kl", "mean").per_example
            circuit = prune(model, CLEAN)
            faithfulness(model, circuit, CLEAN, n_random=0)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(plain, inside, rtol=0, atol=1e-12)
    assert not inside.is_inference()


def test_a_mistake_is_one_line(model):
    with pytest.raises(InputError) as mistake:
        edge_effects(model, CLEAN, "kl", "patch")
    assert isinstance(mistake.value, ValueError)
    assert "\n" not in str(mistake.value)
