"""Circuits to other tools' forms and back."""

import builtins
import json

import pytest

from circuits.errors import InputError
from circuits.graph import Circuit, Graph
from circuits.interchange import from_eap_json, from_networkx, to_eap_json, to_networkx

GRAPHS = [
    Graph(2, 2),
    Graph(1, 1),
    Graph(3, 2, parallel=True),
    Graph(2, 3, attn_only=True),
]


def some(graph):
    return Circuit.of(graph, [edge.name for edge in graph.edges[::3]])


def scores_of(graph):
    return {edge.name: i / 7 - 1 for i, edge in enumerate(graph.edges)}


@pytest.mark.parametrize("graph", GRAPHS)
def test_eap_json_comes_back_with_scores(graph):
    circuit, scores = some(graph), scores_of(graph)
    back = from_eap_json(to_eap_json(circuit, 16, scores))
    assert back.circuit == circuit
    assert back.scores == scores


@pytest.mark.parametrize("graph", [*GRAPHS, Graph(2, 2, granularity="layer")])
def test_networkx_comes_back_with_scores(graph):
    circuit, scores = some(graph), scores_of(graph)
    back = from_networkx(to_networkx(circuit, scores))
    assert back.circuit == circuit
    assert back.scores == {name: scores[name] for name in circuit.names}
    assert from_networkx(to_networkx(circuit)).scores == {}


def test_eap_json_is_in_their_words():
    circuit = Circuit.of(Graph(2, 2), ["embed->L0H1.q", "L0H1->L1H0.v", "M0->M1", "L1H1->logits"])
    written = json.loads(to_eap_json(circuit, 16))
    assert written["cfg"] == {
        "n_layers": 2,
        "n_heads": 2,
        "parallel_attn_mlp": False,
        "d_model": 16,
        "attn_only": False,
    }
    chosen = [name for name, edge in written["edges"].items() if edge["in_graph"]]
    assert sorted(chosen) == sorted(
        ["input->a0.h1<q>", "a0.h1->a1.h0<v>", "m0->m1", "a1.h1->logits"]
    )
    assert len(written["edges"]) == len(Graph(2, 2).edges)
    assert set(written["nodes"]) == {
        "input", "a0.h0", "a0.h1", "m0", "a1.h0", "a1.h1", "m1", "logits",
    }  # fmt: skip
    assert written["nodes"]["a0.h0"] == {"in_graph": False}
    assert written["nodes"]["input"] == {"in_graph": True}


def test_a_file_as_eap_ig_writes_it_is_read():
    text = json.dumps(
        {
            "cfg": {"n_layers": 1, "n_heads": 1, "parallel_attn_mlp": False, "d_model": 8},
            "nodes": {name: {"in_graph": True} for name in ("input", "a0.h0", "m0", "logits")},
            "edges": {
                "input->a0.h0<q>": {"score": 0.5, "in_graph": False},
                "input->a0.h0<v>": {"score": -1.5, "in_graph": True},
                "a0.h0->m0": {"score": 0.25, "in_graph": True},
                "m0->logits": {"score": 1.0, "in_graph": True},
            },
        }
    )
    found = from_eap_json(text)
    assert found.circuit == Circuit.of(Graph(1, 1), ["embed->L0H0.v", "L0H0->M0", "M0->logits"])
    assert found.scores["embed->L0H0.v"] == -1.5
    assert found.scores["embed->L0H0.q"] == 0.5


def test_networkx_graphs_can_be_used_as_such():
    import networkx as nx

    circuit = Circuit.of(Graph(1, 2), ["embed->L0H1.q", "embed->L0H1.k", "L0H1->logits"])
    graph = to_networkx(circuit, scores_of(circuit.graph))
    assert graph.number_of_edges() == 3
    assert nx.has_path(graph, "embed", "logits")
    assert not nx.has_path(graph, "embed", "M0")
    assert graph.nodes["L0H1"] == {"kind": "head", "layer": 0, "index": 1}
    assert graph.edges["embed", "L0H1", "embed->L0H1.q"]["reader"] == "L0H1.q"
    graph.remove_edge("embed", "L0H1", key="embed->L0H1.k")
    assert from_networkx(graph).circuit.names == ["embed->L0H1.q", "L0H1->logits"]


def eap(**changes):
    values = json.loads(to_eap_json(some(Graph(1, 1)), 8))
    for key, value in changes.items():
        values[key] = values[key] | value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "EAP-IG JSON must be an object with 'cfg'"),
        ("[]", "EAP-IG JSON must be an object with 'cfg'"),
        (json.dumps({"cfg": {}, "nodes": {}, "edges": {}}), "EAP-IG JSON must be an object"),
        (
            eap(edges={"a0.h0->a7.h0<q>": {"score": 0, "in_graph": True}}),
            "edge 'L0H0->L7H0.q' is not in this graph of 8 edges; near matches",
        ),
        (
            eap(nodes={"m0": {"in_graph": True, "neurons": [True, False]}}),
            "leaves out neurons of 'm0': only circuits of whole nodes are read",
        ),
    ],
)
def test_bad_eap_json_is_named(text, message):
    with pytest.raises(InputError, match=message):
        from_eap_json(text)


def test_neurons_that_are_all_kept_are_no_obstacle():
    text = eap(nodes={"m0": {"in_graph": True, "neurons": [True, True]}})
    assert from_eap_json(text).circuit == some(Graph(1, 1))


def test_merged_heads_cannot_be_written_for_eap_ig():
    with pytest.raises(InputError, match="granularity='layer' has no counterpart in EAP-IG"):
        to_eap_json(some(Graph(2, 2, granularity="layer")), 8)


def test_scores_have_to_cover_what_is_written():
    with pytest.raises(InputError, match=r"effects lacks 'embed->L0H0\.q'"):
        to_eap_json(some(Graph(1, 1)), 8, {"embed->M0": 1.0})


def test_a_foreign_networkx_graph_is_refused():
    import networkx as nx

    with pytest.raises(InputError, match="carries no description of its circuit graph"):
        from_networkx(nx.MultiDiGraph())


def test_without_networkx_the_message_says_so(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "networkx":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match="networkx is not installed: `pip install networkx`"):
        to_networkx(some(Graph(1, 1)))
