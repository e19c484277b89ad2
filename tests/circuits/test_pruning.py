"""Pruning: known circuits come back exactly, and what remains cannot be made smaller."""

from dataclasses import replace

import pytest
import torch

from circuits.circuit_measure import CircuitMeasure
from circuits.edge_scores import top_circuit
from circuits.errors import InputError
from circuits.graph import Circuit, Graph
from circuits.prepared import prepare
from circuits.pruning import prune
from circuits.random_circuits import random_circuits
from circuits.undisturbed import undisturbed
from tests.circuits.known_circuits import KNOWN, induction_head, selector_lookup
from tests.circuits.models import random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_logits

CASES = [(name, ablation) for name in KNOWN for ablation in ("zero", "mean", "resample", "patch")]
CLEAN = random_tokens(6, 7)
SCORED = [3, 5]


@pytest.fixture(scope="module")
def model():
    return tiny_model(scale=0.3)


def pruned(known, ablation="mean", **kwargs):
    return prune(
        known.model,
        known.clean,
        ablation=ablation,
        corrupt=known.corrupt if ablation == "patch" else None,
        scored=known.scored,
        **kwargs,
    )


@pytest.mark.parametrize(("name", "ablation"), CASES)
def test_known_circuits_come_back_exactly(name, ablation):
    known = KNOWN[name]()
    circuit = pruned(known, ablation)
    assert set(circuit.names) == set(known.edges[ablation])
    assert circuit.complete
    assert abs(circuit.excess) < 1e-6


def test_plain_greedy_removal_finds_them_too():
    known = induction_head()
    circuit = pruned(known, order="exact")
    assert set(circuit.names) == set(known.edges["mean"])


@pytest.mark.parametrize("name", KNOWN)
def test_random_circuits_of_equal_size_exceed_the_budget(name):
    known = KNOWN[name]()
    circuit = Circuit.of(Graph.of(known.model), known.edges["mean"])
    with undisturbed(known.model):
        measure = CircuitMeasure.of(
            prepare(known.model, known.clean, "kl", ablation="mean", scored=known.scored)
        )
        drawn = random_circuits(circuit, 20, same_layers=False)
        drawn += random_circuits(circuit, 20, same_layers=True)
        for other in drawn:
            if other != circuit:
                assert measure.values(measure.run(other.edges)).mean() > 0.05


def slow_kl(model, cut):
    """KL in nats at the scored positions by hooks, mean ablation."""
    tokens = CLEAN[:, :6]
    values = replacements(model, "mean", tokens)
    full = slow_logits(model, tokens, [], values)[:, SCORED].log_softmax(-1)
    part = slow_logits(model, tokens, cut, values)[:, SCORED].log_softmax(-1)
    return (full.exp() * (full - part)).sum(-1).mean(1)


@pytest.mark.parametrize("order", ["rounds", "exact"])
def test_the_result_is_within_the_budget_and_at_a_fixed_point(model, order):
    budget = 0.02
    circuit = prune(model, CLEAN, scored=SCORED, budget=budget, order=order)
    assert 0 < len(circuit) < len(circuit.graph.edges)
    cut = (~circuit).names
    slow = slow_kl(model, cut)
    torch.testing.assert_close(circuit.per_example, slow, rtol=1e-6, atol=1e-9)
    assert circuit.excess == pytest.approx(slow.mean().item())
    assert circuit.excess <= budget
    assert circuit.interval[0] <= circuit.excess <= circuit.interval[1]
    assert circuit.connected() == Circuit(circuit.graph, circuit.edges)
    for edge in circuit:
        rest = Circuit(circuit.graph, circuit.edges - {edge}).connected()
        assert slow_kl(model, (~rest).names).mean() > budget, edge.name


def test_no_node_is_left_without_an_edge_in_or_out(model):
    circuit = prune(model, CLEAN, scored=SCORED, budget=0.1)
    assert len(circuit)
    read = {edge.reader.node for edge in circuit}
    written = {edge.source.name for edge in circuit}
    assert written - {"embed"} == read - {None}


def test_a_circuit_within_the_budget_is_not_much_larger_than_plain_greedys(model):
    rounds = prune(model, CLEAN, scored=SCORED, budget=0.05)
    exact = prune(model, CLEAN, scored=SCORED, budget=0.05, order="exact")
    assert len(rounds) <= 1.25 * len(exact)


def test_few_rounds_leave_more_edges_and_say_so(model):
    whole = prune(model, CLEAN, scored=SCORED, budget=0.05)
    short = prune(model, CLEAN, scored=SCORED, budget=0.05, rounds=1)
    assert whole.minimal
    assert not short.minimal
    assert short.complete
    assert set(whole) < set(short)
    assert short.excess <= 0.05
    assert short.connected() == Circuit(short.graph, short.edges)
    assert set(prune(model, CLEAN, scored=SCORED, budget=0.05, start=short)) == set(whole)


def test_removed_edges_are_logged_in_order(model):
    circuit = prune(model, CLEAN, scored=SCORED, budget=0.05)
    assert sorted([*circuit.removed["edge"], *circuit.names]) == sorted(
        edge.name for edge in circuit.graph.edges
    )
    assert list(circuit.removed["order"]) == list(range(len(circuit.removed)))
    assert (circuit.removed["excess"] <= 0.05).all()
    assert circuit.removed["excess"].iloc[-1] == circuit.excess
    assert circuit.provenance["budget"] == 0.05


def test_pruning_is_deterministic_and_leaves_the_random_state_alone(model):
    state = torch.get_rng_state()
    first = prune(model, CLEAN, scored=SCORED)
    torch.manual_seed(99)
    second = prune(model, CLEAN, scored=SCORED)
    torch.set_rng_state(state)
    assert first == second
    assert first.removed.equals(second.removed)


def test_a_larger_budget_leaves_fewer_edges_and_none_leaves_a_working_model(model):
    sizes = [len(prune(model, CLEAN, scored=SCORED, budget=b)) for b in (0.02, 0.1, 100.0)]
    assert sizes[0] > sizes[1] > sizes[2] == 0


def stop_after(n):
    calls = []

    def progress(n_edges, excess):
        calls.append((n_edges, excess))
        if len(calls) == n:
            raise KeyboardInterrupt

    return progress, calls


def test_ctrl_c_returns_what_was_found_so_far_and_can_be_gone_on_from():
    known = selector_lookup()
    progress, calls = stop_after(5)
    partial = pruned(known, order="exact", progress=progress)
    assert not partial.complete
    assert partial.provenance["complete"] is False
    assert len(calls) == 5
    assert (len(partial), partial.excess) == calls[-1]
    assert len(partial) > len(known.edges["mean"])
    assert len(partial) == len(partial.graph.edges) - len(partial.removed)
    resumed = pruned(known, start=partial)
    assert resumed.complete
    assert resumed <= Circuit(partial.graph, partial.edges)
    assert set(resumed.names) == set(known.edges["mean"])


def test_ctrl_c_in_the_middle_of_a_run_keeps_the_last_checked_circuit(monkeypatch, model):
    measured = []
    each_removed = CircuitMeasure.each_removed

    def interrupted(self, circuit):
        measured.append(circuit)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return each_removed(self, circuit)

    monkeypatch.setattr(CircuitMeasure, "each_removed", interrupted)
    before = {name: p.clone() for name, p in model.named_parameters()}
    partial = prune(model, CLEAN, scored=SCORED)
    monkeypatch.undo()
    assert not partial.complete
    assert len(partial.removed) > 0
    slow = slow_kl(model, (~partial).names)
    assert partial.excess == pytest.approx(slow.mean().item(), abs=1e-9)
    assert torch.is_grad_enabled()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad
        assert parameter.grad is None
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_dangling_edges_of_the_start_are_dropped():
    known = induction_head()
    graph = Graph.of(known.model)
    start = Circuit.of(graph, [*known.edges["mean"], "L0H1->L1H1.q", "embed->L1H1.k"])
    assert set(pruned(known, start=start).names) == set(known.edges["mean"])


def test_another_metric_is_measured_edge_by_edge():
    known = selector_lookup()
    target = known.clean[:, 5]

    def wrong(logits):
        return -logits[:, 0].log_softmax(-1).gather(-1, target[:, None])[:, 0]

    circuit = prune(known.model, known.clean, wrong, scored=known.scored)
    by_name = prune(known.model, known.clean, "loss", scored=known.scored)
    assert set(circuit.names) == set(by_name.names) == set(known.edges["mean"])


def test_layer_granularity():
    known = induction_head()
    circuit = pruned(known, granularity="layer")
    assert circuit.names == ["embed->A0", "embed->A1", "A0->A1", "A1->logits"]


def test_top_circuit_takes_the_largest_effects():
    graph = Graph(1, 1)
    scores = dict.fromkeys([edge.name for edge in graph.edges], 0.0)
    scores |= {"embed->L0H0.v": -3.0, "L0H0->logits": 2.0, "embed->M0": 1.0}
    assert top_circuit(scores, 2, graph).names == ["embed->L0H0.v", "L0H0->logits"]
    assert top_circuit(scores, 2, graph, absolute=False).names == ["embed->M0", "L0H0->logits"]
    dangling = top_circuit(scores, 3, graph)
    assert "embed->M0" in dangling
    assert top_circuit(scores, 3, graph, connected=True).names == ["embed->L0H0.v", "L0H0->logits"]
    assert len(top_circuit(scores, 0, graph)) == 0
    assert top_circuit(scores, len(graph.edges), graph) == Circuit.of(graph)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"budget": -1.0}, "budget=-1.0 must be 0 or more"),
        ({"budget": float("nan")}, "budget=nan must be 0 or more"),
        ({"rounds": 0}, "rounds=0 must be at least 1"),
        ({"rounds": True}, "rounds=True"),
        ({"rounds": 2, "order": "exact"}, "rounds is of order='rounds'"),
        ({"order": "fast"}, "order='fast' is not known: use 'rounds', or 'exact'"),
        ({"start": Circuit.of(Graph(1, 1))}, "start belongs to a model of another shape"),
        ({"start": Circuit.of(Graph(2, 2), [])}, "start has an excess of .* beyond the budget"),
        (
            {"start": Circuit.of(Graph(2, 2)), "granularity": "layer"},
            "granularity='layer' is not that of start=, 'head': leave it out",
        ),
        ({"metric": "k"}, "metric='k' is not known"),
    ],
)
def test_bad_input_is_named(model, kwargs, message):
    with pytest.raises(InputError, match=message):
        prune(model, CLEAN, scored=SCORED, **kwargs)


@pytest.mark.parametrize(
    ("scores", "n", "message"),
    [
        ({"embed->M0": 1.0}, 1, "effects lacks .* of the graph's 8 edges"),
        ({"embed->M7": 1.0}, 1, "edge 'embed->M7' is not in this graph"),
        ({"embed->M0": 1.0}, 9, "n=9 must lie between 0 and the graph's 8 edges"),
    ],
)
def test_bad_scores_are_named(scores, n, message):
    with pytest.raises(InputError, match=message):
        top_circuit(scores, n, Graph(1, 1))


def test_scores_without_a_graph_are_refused():
    with pytest.raises(InputError, match="does not say which graph it belongs to: pass graph="):
        top_circuit({"embed->M0": 1.0}, 1)


def test_pruned_circuits_combine_like_any_circuit(model):
    circuit = prune(model, CLEAN, scored=SCORED)
    plain = Circuit(circuit.graph, circuit.edges)
    assert type(circuit | plain) is Circuit
    assert circuit.jaccard(plain) == 1.0
    assert Circuit.from_json(circuit.to_json()) == plain
    assert replace(circuit, excess=1.0).edges == circuit.edges
