"""Circuits compared with each other, and tried in another model."""

from itertools import combinations

import pytest

from circuits.comparison import jaccard_table, overlap
from circuits.errors import InputError
from circuits.graph import Circuit, Graph
from circuits.transfer import transfer
from tests.circuits.known_circuits import induction_head

GRAPH = Graph(1, 1)  # 8 edges
NAMES = [edge.name for edge in GRAPH.edges]


def circuit(*indices):
    return Circuit.of(GRAPH, [NAMES[i] for i in indices])


def test_overlap_worked_by_hand():
    found = overlap(circuit(0, 1, 2), circuit(2, 3))
    assert found.shared == circuit(2)
    assert found.only_first == circuit(0, 1)
    assert found.only_second == circuit(3)
    assert found.jaccard == 0.25


def test_chance_is_the_mean_over_all_circuits_of_these_sizes():
    first = circuit(0, 1, 2)
    others = [circuit(*chosen) for chosen in combinations(range(len(NAMES)), 2)]
    indices = [first.jaccard(other) for other in others]
    shared = [len(first & other) >= 1 for other in others]
    found = overlap(first, circuit(2, 3))
    assert found.chance == pytest.approx(sum(indices) / len(indices))
    assert found.p_value == pytest.approx(sum(shared) / len(shared))


def test_empty_and_equal_circuits():
    assert overlap(circuit(), circuit()).jaccard == overlap(circuit(), circuit()).chance == 1.0
    same = overlap(circuit(0, 1), circuit(0, 1))
    assert same.jaccard == 1.0
    assert same.p_value == pytest.approx(1 / 28)  # one of all pairs out of 8


def test_circuits_of_two_graphs_do_not_compare():
    with pytest.raises(InputError, match="circuits of two graphs do not combine"):
        overlap(circuit(0), Circuit.of(Graph(2, 1)))


def test_jaccard_table_is_symmetric_with_ones():
    table = jaccard_table({"a": circuit(0, 1), "b": circuit(1, 2), "c": circuit(5)})
    assert table.loc["a", "b"] == table.loc["b", "a"] == pytest.approx(1 / 3)
    assert [table.loc[name, name] for name in "abc"] == [1, 1, 1]
    assert table.loc["a", "c"] == 0


def test_a_circuit_that_fits_transfers_and_one_that_does_not_does_not():
    known = induction_head()
    graph = Graph.of(known.model)
    own = Circuit.of(graph, known.edges["mean"])
    swapped = {"L0H0": "L0H1", "L0H1": "L0H0"}
    elsewhere = [
        "->".join(
            swapped.get(end.split(".")[0], end.split(".")[0]) + end[len(end.split(".")[0]) :]
            for end in name.split("->")
        )
        for name in own.names
    ]
    other = Circuit.of(graph, elsewhere)
    assert other != own
    kwargs = {"scored": known.scored, "n_random": 10}
    good = transfer(own, known.model, known.clean, **kwargs)
    bad = transfer(other, known.model, known.clean, own=own, **kwargs)
    assert list(good.table["circuit"]) == ["full", "transferred", "random", "empty"]
    assert list(bad.table["circuit"]) == ["full", "transferred", "own", "random", "empty"]
    assert good["transferred"]["recovered"] == pytest.approx(1, abs=1e-4)
    assert good["random"]["recovered"] < 0.7
    assert bad["own"]["recovered"] == pytest.approx(1, abs=1e-4)
    assert bad["transferred"]["recovered"] < 0.9
    assert bad["transferred"]["value"] > 0.05
    assert good["empty"]["recovered"] == 0
    assert good["random"]["size"] == len(own)
    assert good.as_good < 0.3
    assert good.per_example.shape == (len(known.clean),)


def test_a_circuit_of_another_shape_is_refused():
    known = induction_head()
    with pytest.raises(InputError, match="circuit belongs to a model of another shape"):
        transfer(circuit(0), known.model, known.clean)
    with pytest.raises(InputError, match="own belongs to a model of another shape"):
        transfer(Circuit.of(Graph.of(known.model)), known.model, known.clean, own=circuit(0))
