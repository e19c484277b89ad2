import json

import pytest

from circuits import Circuit, Graph, InputError
from circuits.graph import Edge, Node, Reader
from tests.circuits.models import tiny_model
from tests.circuits.slow_edges import edge_names


@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        (Graph(4, 4), 479),
        (Graph(2, 4), 110),
        (Graph(2, 4, attn_only=True), 81),
        (Graph(2, 4, parallel=True), 102),
        (Graph(2, 1), 23),
        (Graph(2, 1, granularity="layer"), 15),
        (Graph(2, 4, granularity="layer"), 15),
        (Graph(2, 4, granularity="layer-qkv"), 23),
        (Graph(1, 1, attn_only=True, granularity="layer"), 3),
    ],
)
def test_edge_counts(graph, edges):
    assert len(graph.edges) == len({edge.name for edge in graph.edges}) == edges


def test_every_edge_of_a_two_layer_graph_written_out():
    graph = Graph(2, 1, granularity="layer")
    assert [edge.name for edge in graph.edges] == [
        "embed->A0",
        "embed->M0",
        "A0->M0",
        "embed->A1",
        "A0->A1",
        "M0->A1",
        "embed->M1",
        "A0->M1",
        "M0->M1",
        "A1->M1",
        "embed->logits",
        "A0->logits",
        "M0->logits",
        "A1->logits",
        "M1->logits",
    ]


@pytest.mark.parametrize("config", [{}, {"attn_only": True}, {"parallel_attn_mlp": True}])
def test_edges_of_a_model_are_those_of_the_definition(config):
    model = tiny_model(**config)
    assert [edge.name for edge in Graph.of(model).edges] == edge_names(model)


def test_nodes_write_and_readers_read_in_causal_order():
    graph = Graph(2, 2)
    assert [n.name for n in graph.nodes] == ["embed", "L0H0", "L0H1", "M0", "L1H0", "L1H1", "M1"]
    assert [r.name for r in graph.readers][:7] == (
        ["L0H0.q", "L0H0.k", "L0H0.v", "L0H1.q", "L0H1.k", "L0H1.v", "M0"]
    )
    assert graph.readers[-1].name == "logits"


def test_names_of_nodes_readers_and_edges():
    edge = Edge(Node("head", 0, 3), Reader("head", 2, 1, "q"))
    assert edge.name == str(edge) == "L0H3->L2H1.q"
    assert edge.reader.node == "L2H1"
    assert Reader("logits", 2).node is None
    assert Graph(4, 4).edge("L0H3->L2H1.q") == edge


def test_unknown_edge_lists_near_matches():
    with pytest.raises(InputError, match=r"'L0H3->L2H1' is not in this graph.*L0H3->L2H1\.q"):
        Graph(4, 4).edge("L0H3->L2H1")


def test_selecting_edges_refuses_repeats_and_bare_strings():
    graph = Graph(2, 1)
    with pytest.raises(InputError, match="twice"):
        graph.select(["embed->M0", "embed->M0"])
    with pytest.raises(InputError, match="pass a list of edge names"):
        graph.select("embed->M0")


def test_unknown_granularity_names_the_known_ones():
    with pytest.raises(InputError, match=r"'heads' is not known.*'layer-qkv'"):
        Graph(2, 2, granularity="heads")


def test_graph_of_something_else_is_refused():
    with pytest.raises(InputError, match="model=dict has no cfg"):
        Graph.of({})


def test_set_algebra():
    graph = Graph(2, 1)
    a = Circuit.of(graph, ["embed->M0", "M0->logits"])
    b = Circuit.of(graph, ["M0->logits", "M1->logits"])
    assert (a | b).names == ["embed->M0", "M0->logits", "M1->logits"]
    assert (a & b).names == ["M0->logits"]
    assert (a - b).names == ["embed->M0"]
    assert (a ^ b).names == ["embed->M0", "M1->logits"]
    assert len(~a) == 21
    assert "embed->M0" in a
    assert "embed->M0" not in b
    assert a & b <= a
    assert not a <= b
    assert a.jaccard(b) == 1 / 3
    assert (a & ~a).jaccard(b & ~b) == 1.0
    assert Circuit.of(graph) == ~Circuit.of(graph, [])


def test_circuits_of_two_graphs_do_not_combine():
    with pytest.raises(InputError, match="two graphs"):
        Circuit.of(Graph(2, 1)) | Circuit.of(Graph(1, 1))


def test_a_circuit_refuses_a_foreign_edge():
    with pytest.raises(InputError, match=r"M3->logits.*is not in this graph"):
        Circuit(Graph(2, 1), frozenset([Graph(4, 1).edge("M3->logits")]))


def test_json_round_trip():
    circuit = Circuit.of(Graph(2, 2, parallel=True), ["embed->L0H1.k", "M1->logits"])
    assert Circuit.from_json(circuit.to_json()) == circuit
    assert json.loads(circuit.to_json())["edges"] == ["embed->L0H1.k", "M1->logits"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"edges": []}', '{"graph": {"layers": 1}, "edges": []}']
)
def test_broken_json_is_one_clear_error(text):
    with pytest.raises(InputError, match=r"circuit JSON must be|does not describe a graph"):
        Circuit.from_json(text)


def test_dangling_edges_go_to_a_fixed_point():
    graph = Graph(3, 1)
    kept = ["embed->M0", "M0->L1H0.v", "L1H0->logits"]
    dangling = ["M0->M1", "L0H0->L1H0.q", "M1->M2", "M2->L2H0.k"]
    circuit = Circuit.of(graph, kept + [e for e in dangling if e in graph._by_name])
    assert circuit.connected().names == kept
    assert Circuit.of(graph).connected() == Circuit.of(graph)
    assert len(Circuit.of(graph, ["M1->M2", "M2->logits"]).connected()) == 0
