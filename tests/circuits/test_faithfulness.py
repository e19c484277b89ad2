"""Faithfulness: ends of the scale, hooks as a second route, controls, and undefined shares."""

import pytest
import torch

from circuits.circuit_faithfulness import faithfulness
from circuits.edge_ablation import edge_effects
from circuits.errors import InputError
from circuits.faithfulness_curve import MIB_SHARES, areas, faithfulness_curve
from circuits.graph import Circuit, Graph
from circuits.random_circuits import random_circuits
from circuits.recovery import recovered
from tests.circuits.known_circuits import bigram_head, induction_head
from tests.circuits.models import random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_logits

CLEAN = random_tokens(32, 7)
SCORED = [3, 5]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_full_and_empty_circuit_are_the_ends_of_the_scale(model):
    graph = Graph.of(model)
    full = faithfulness(model, Circuit.of(graph), CLEAN, scored=SCORED, n_random=0)
    empty = faithfulness(model, Circuit.of(graph, []), CLEAN, scored=SCORED, n_random=0)
    assert full["kl"]["circuit"] == pytest.approx(0, abs=1e-12)
    assert full["kl"]["recovered"] == pytest.approx(1)
    assert full["kl"]["complement_recovered"] == pytest.approx(0)
    assert empty["kl"]["recovered"] == pytest.approx(0)
    assert empty["kl"]["complement_recovered"] == pytest.approx(1)
    assert list(full.controls.columns) == ["kind", "measure", "mean", "low", "high", "as_good"]
    assert len(full.controls) == 0


def test_values_equal_hooks_and_definitions(model):
    graph = Graph.of(model)
    circuit = random_circuits(Circuit.of(graph, [e.name for e in graph.edges[:20]]), 1)[0]
    report = faithfulness(model, circuit, CLEAN, "logit_diff", scored=SCORED, n_random=0)
    tokens, target = CLEAN[:, :6], CLEAN[:, [4, 6]]
    values = replacements(model, "mean", tokens)

    def at_scored(cut):
        return slow_logits(model, tokens, cut, values)[:, SCORED]

    for column, cut in {
        "full": [],
        "circuit": (~circuit).names,
        "complement": circuit.names,
        "empty": [edge.name for edge in graph.edges],
    }.items():
        logits = at_scored(cut)
        log_p, log_full = logits.log_softmax(-1), at_scored([]).log_softmax(-1)
        loss = -log_p.gather(-1, target[..., None]).mean().item()
        kl = (log_full.exp() * (log_full - log_p)).sum(-1).mean().item()
        accuracy = (logits.argmax(-1) == target).double().mean().item()
        assert report["loss"][column] == pytest.approx(loss)
        assert report["kl"][column] == pytest.approx(kl, abs=1e-12)
        assert report["accuracy"][column] == pytest.approx(accuracy)
    assert list(report.table["measure"]) == ["kl", "loss", "accuracy", "logit_diff"]
    kl = report["kl"]
    share = (kl["circuit"] - kl["empty"]) / (kl["full"] - kl["empty"])
    assert kl["recovered"] == pytest.approx(share)
    assert kl["low"] <= kl["circuit"] <= kl["high"]
    assert report.per_example["kl"].shape == (32,)


@pytest.mark.parametrize("build", [induction_head, bigram_head])
def test_known_circuits_recover_all_and_their_complements_and_random_ones_nothing(build):
    known = build(batch=96)
    circuit = Circuit.of(Graph.of(known.model), known.edges["mean"])
    report = faithfulness(known.model, circuit, known.clean, scored=known.scored, n_random=10)
    for measure in ("kl", "loss"):
        assert report[measure]["recovered"] == pytest.approx(1, abs=1e-3)
        assert report[measure]["complement_recovered"] == pytest.approx(0, abs=1e-3)
    assert report["accuracy"]["circuit"] == report["accuracy"]["full"]
    controls = report.controls.set_index(["kind", "measure"])
    assert controls.loc[("uniform", "kl"), "as_good"] == 0
    assert controls.loc[("uniform", "kl"), "mean"] > 0.5
    assert set(report.controls["kind"]) == {"uniform", "same layers"}


def test_a_full_circuits_controls_are_as_good_as_itself(model):
    graph = Graph.of(model)
    report = faithfulness(model, Circuit.of(graph), CLEAN, scored=SCORED, n_random=3)
    assert (report.controls["as_good"] == 1).all()


def test_random_circuits_match_in_size_or_also_in_layers():
    graph = Graph(3, 2)
    circuit = Circuit.of(graph, [edge.name for edge in graph.edges[::4]])

    def makeup(some):
        counts = {}
        for edge in some:
            key = (edge.reader.kind, edge.reader.layer, edge.reader.input)
            counts[key] = counts.get(key, 0) + 1
        return counts

    plain, layered = (random_circuits(circuit, 5, same_layers=same) for same in (False, True))
    assert {len(one) for one in plain + layered} == {len(circuit)}
    assert all(makeup(one) == makeup(circuit) for one in layered)
    assert any(makeup(one) != makeup(circuit) for one in plain)
    assert len({frozenset(one.names) for one in layered}) == 5
    assert random_circuits(circuit, 5, same_layers=True) == layered
    with pytest.raises(InputError, match="n=-1 random circuits cannot be drawn"):
        random_circuits(circuit, -1)


def test_a_share_is_undefined_where_the_gap_is_within_its_noise():
    noise = torch.tensor([0.3, -0.2, 0.1, -0.25], dtype=torch.float64)
    full = torch.ones(4, dtype=torch.float64)
    share = recovered(full, full, full + noise)
    assert not share.defined
    assert share.value != share.value
    assert share.note.startswith("undefined: full - empty is 0.0125 +- 0.13, not clearly above")
    clear = recovered(full - 1.5, full, full - 2 + 0.1 * noise)
    assert clear.defined
    # (-0.5 - mean(-1 + 0.1 noise)) / (1 - mean(-1 + 0.1 noise)), with mean(0.1 noise) = -0.00125.
    assert clear.value == pytest.approx(0.50125 / 2.00125)
    assert clear.low < clear.value < clear.high


def test_rounding_is_no_gap():
    full = torch.full((4,), 100.0, dtype=torch.float64)
    assert recovered(full, full, full + 1e-5).note.startswith("undefined")
    assert recovered(full, full, full + 1).defined
    assert "one example" in recovered(full[:1], full[:1], full[:1] + 1).note


def test_a_model_that_knows_nothing_gives_undefined_shares():
    report = faithfulness(
        tiny_model(scale=1e-4),
        Circuit.of(Graph(2, 2), []),
        CLEAN,
        "loss",
        scored=SCORED,
        n_random=0,
    )
    assert report["loss"]["recovered"] != report["loss"]["recovered"]
    assert report["loss"]["note"].startswith("undefined")


def test_loss_and_accuracy_need_the_next_token(model):
    report = faithfulness(model, Circuit.of(Graph.of(model)), CLEAN, scored=[6], n_random=0)
    assert list(report.table["measure"]) == ["kl"]


def test_padding_is_left_out():
    model = tiny_model()
    mask = torch.ones_like(CLEAN)
    mask[::2, 5:] = 0
    padded = CLEAN.clone()
    padded[::2, 5:] = 0
    circuit = Circuit.of(Graph.of(model))
    found = faithfulness(model, circuit, padded, attention_mask=mask, ablation="zero", n_random=0)
    short = faithfulness(model, circuit, CLEAN[::2, :5], ablation="zero", n_random=0)
    torch.testing.assert_close(found.per_example["loss"][::2], short.per_example["loss"])


def curve_of(model, **kwargs):
    scores = edge_effects(model, CLEAN, "kl", ablation="mean", scored=SCORED)
    return faithfulness_curve(model, scores, CLEAN, scored=SCORED, **kwargs)


def test_the_curve_runs_from_the_empty_to_the_full_circuit(model):
    curve = curve_of(model)
    graph = Graph.of(model)
    assert list(curve.table["size"]) == [int(s * len(graph.edges)) for s in MIB_SHARES]
    first, last = curve.table.iloc[0], curve.table.iloc[-1]
    for row, circuit in ((first, Circuit.of(graph, [])), (last, Circuit.of(graph))):
        report = faithfulness(model, circuit, CLEAN, scored=SCORED, n_random=0)
        assert row["value"] == pytest.approx(report["kl"]["circuit"], abs=1e-12)
    assert first["recovered"] == pytest.approx(0)
    assert last["recovered"] == pytest.approx(1)
    assert curve.note == ""
    assert curve.cpr, curve.cmd == areas(MIB_SHARES, list(curve.table["recovered"]))
    assert (curve.table["connected"] <= curve.table["size"]).all()
    assert curve.per_example.shape == (len(MIB_SHARES), 32)


def test_areas_worked_by_hand():
    # Trapezoids under 0, 0.5, 1.5 at 0, 0.5, 1: 0.125 + 0.5; under 1, 0.5, 0.5: 0.375 + 0.25.
    assert areas([0.0, 0.5, 1.0], [0.0, 0.5, 1.5]) == pytest.approx((0.625, 0.625))
    assert areas(MIB_SHARES, [1.0] * 10) == pytest.approx((0.999, 0.0))


def test_a_known_circuits_curve_beats_that_of_shuffled_scores():
    known = induction_head()
    graph = Graph.of(known.model)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(len(graph.edges), generator=generator).tolist()
    shuffled = {edge.name: score for edge, score in zip(graph.edges, noise, strict=True)}
    good = {name: score + 10 * (name in known.edges["mean"]) for name, score in shuffled.items()}

    def curve(scores):
        return faithfulness_curve(
            known.model, scores, known.clean, scored=known.scored, graph=graph
        )

    best, chance = curve(good), curve(shuffled)
    n, found = len(graph.edges), best.table.set_index("size")["recovered"]
    assert found[int(0.2 * n)] == pytest.approx(1, abs=1e-3)
    assert best.cpr > 0.84 > chance.cpr + 0.2
    assert best.cmd < 0.16 < chance.cmd


@pytest.mark.parametrize("shares", [(0.5,), (0.5, 0.1), (0.1, 1.5), (-0.1, 1.0)])
def test_bad_shares_are_named(model, shares):
    with pytest.raises(InputError, match="must be two or more ascending numbers between 0 and 1"):
        curve_of(model, shares=shares)


def test_a_circuit_of_another_model_is_refused(model):
    with pytest.raises(InputError, match="circuit belongs to a model of another shape"):
        faithfulness(model, Circuit.of(Graph(1, 1)), CLEAN)
