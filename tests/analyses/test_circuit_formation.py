import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from analyses.catalogue import CircuitFormation
from analyses.circuit_formation import answer, chosen_granularity, chosen_steps, formation
from analyses.command import main
from analyses.formation.events import FIRST_FALL, PLATEAU_END
from analyses.formation.measuring import GRADIENT_STEPS, FormationMeasure, top_count
from analyses.formation.scores import score_rows
from circuits import Graph, edge_gradients
from circuits.errors import InputError
from circuits.selector_signals import SIGNALS
from mechinterp.findings import Finding, find_mechanisms
from mechinterp.runs import Run
from mechinterp.tracing import PAIR_SEED
from tests.circuits.slow_edges import replacements, slow_effects

COLUMNS = {
    "edges": "step edge source reader effect low high",
    "heads": "step head effect low high",
    "scores": "step score component value low high",
    "diagnostics": "step name value se",
    "agreement": "step method spearman top_k overlap",
    "births": "component kind born died band_low band_high peak_step peak_effect",
    "hands": "reader step before after",
    "overlap": "step_a step_b jaccard null_low null_high spearman",
}

EXAMPLES = 12
STEPS = (0, 40, 80, 120)


@pytest.fixture(scope="module")
def run(tiny_runs):
    return Run.open("lookup-12", tiny_runs)


@pytest.fixture(scope="module")
def tables(run, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECHINTERP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield formation(run, steps=STEPS, examples=EXAMPLES, jobs=1)


def _pairs(run):
    return run.task().pairs(EXAMPLES, torch.Generator().manual_seed(PAIR_SEED))


def _losses(run):
    """Mean cross-entropy (nats) of each example at the scored positions, written out."""
    tokens, scored = _pairs(run).clean, list(run.task().scored)

    def losses(logits):
        log_probs = logits[:, scored].log_softmax(-1)
        targets = tokens[:, [p + 1 for p in scored]]
        return -log_probs.gather(-1, targets[..., None])[..., 0].mean(-1)

    return losses


def test_tables_begin_with_the_columns_that_are_promised(tables):
    for name, columns in COLUMNS.items():
        assert list(tables[name].columns)[: len(columns.split())] == columns.split(), name
    assert set(tables) == {*COLUMNS, "trust", "events", "leads", "bands"}
    for name in ("edges", "heads", "scores", "diagnostics", "agreement"):
        assert set(tables[name]["step"]) == set(STEPS), name


def test_edges_are_those_of_one_hooked_pass_an_edge(run, tables):
    edges = tables["edges"].set_index(["step", "edge"])
    for step in (0, 120):
        model, tokens = run.model(step), _pairs(run).clean
        values = replacements(model, "zero", tokens)
        slow = slow_effects(model, tokens, _losses(run), values)
        assert set(slow) == {edge.name for edge in Graph.of(model).edges}
        for edge, per_example in slow.items():
            row = edges.loc[(step, edge)]
            assert row["effect"] == pytest.approx(per_example.mean().item(), abs=2e-5)
            assert row["se"] == pytest.approx(per_example.std().item() / EXAMPLES**0.5, abs=2e-5)
            assert row["low"] <= row["effect"] <= row["high"]
            assert edge == f"{row['source']}->{row['reader']}"
    by_step = tables["edges"].pivot(index="edge", columns="step", values="effect")
    assert (by_step[0] - by_step[120]).abs().max() > 0.1  # steps are not mixed up


def test_heads_loss_and_diagnostics_by_a_plain_forward_pass(run, tables):
    model, tokens, losses = run.model(120), _pairs(run).clean, _losses(run)
    clean = losses(model(tokens)).detach()
    heads = tables["heads"].set_index(["step", "head"])
    for head in range(2):

        def silence(z, hook, head=head):
            z[:, :, head] = 0
            return z

        without = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", silence)])
        effect = (losses(without) - clean).mean().item()
        assert heads.at[(120, f"L0H{head}"), "effect"] == pytest.approx(effect, abs=1e-5)
    measured = tables["diagnostics"].set_index(["step", "name"])
    loss = measured.loc[(120, "traced_loss")]
    assert loss["value"] == pytest.approx(clean.mean().item(), abs=1e-5)
    assert loss["se"] == pytest.approx(clean.std().item() / EXAMPLES**0.5, abs=1e-5)
    own = run.task().diagnostics(model, EXAMPLES, "full")
    for name, found in own.items():
        assert measured.at[(120, name), "value"] == pytest.approx(found.value, abs=1e-5)


def test_agreement_by_scipy(run, tables):
    model = run.model(120)
    edges = tables["edges"].query("step == 120").set_index("edge")["effect"]
    rows = tables["agreement"].query("step == 120").set_index("method")
    assert list(rows.index) == ["eap", "eap-ig-inputs"]
    for method, row in rows.iterrows():
        guess = edge_gradients(
            model, _pairs(run).clean, "loss", method=method, steps=GRADIENT_STEPS,
            ablation="zero", scored=run.task().scored,
        ).table.set_index("edge")["effect"].loc[edges.index]  # fmt: skip
        sizes = spearmanr(guess.abs(), edges.abs()).statistic
        assert row["spearman"] == pytest.approx(sizes, abs=0.01)
        assert row["signed_spearman"] == pytest.approx(spearmanr(guess, edges).statistic, abs=0.01)
        k = top_count(len(edges))
        assert row["top_k"] == k
        both = set(guess.abs().nlargest(k).index) & set(edges.abs().nlargest(k).index)
        assert row["overlap"] == pytest.approx(len(both) / k)


def test_scores_are_those_of_the_mechanism_tests(run, tables):
    model, task = run.model(80), run.task()
    (finding,) = find_mechanisms(model, task, _pairs(run), {}, "selector")
    scores = tables["scores"].query("step == 80").set_index(["score", "component"])
    for row in finding.tables["selector"].to_dict("records"):
        found = scores.loc[("value_patch", row["head"])]
        assert found["value"] == pytest.approx(row["value_patch"], abs=1e-5)
        assert found["low"] == pytest.approx(row["value_patch_low"], abs=1e-5)


def test_scores_of_every_shape_of_table():
    shares = pd.DataFrame({"component": ["state"], "share": [0.25], "low": [0.2], "high": [0.3]})
    patch = pd.DataFrame(
        {"insert": ["own"], "reader": ["M1"], "fraction": [0.5], "low": [0.4], "high": [0.6]}
    )
    probe = pd.DataFrame(
        {"position": [0, 9], "accuracy": [0.1, 0.9], "low": [0.0, 0.8], "high": [0.2, 1.0]}
    )
    heads = pd.DataFrame(
        {"head": ["L0H0"], "ablation": [0.7], "ablation_low": [0.6], "ablation_high": [0.8]}
        | {signal: [0.0] for signal in SIGNALS if signal != "ablation"}
    )
    others = pd.DataFrame({"head": [None], "leading": ["L0H0"], "effect": [1.0]})
    found = Finding(
        "all",
        (),
        {"variance_shares": shares, "task_vector_patch": patch, "task_vector_probe": probe,
         "selector": heads, "selector_verdict": others},
    )  # fmt: skip
    rows = pd.DataFrame(score_rows([found])).set_index(["name", "component"])
    assert rows["value"].to_dict() == {
        ("variance_shares", "state"): 0.25,
        ("task_vector_patch", "own into M1"): 0.5,
        ("task_vector_probe", ""): 0.9,
        ("ablation", "L0H0"): 0.7,
        **{(signal, "L0H0"): 0.0 for signal in SIGNALS if signal != "ablation"},
    }
    assert rows.loc[("ablation", "L0H0"), ["low", "high"]].tolist() == [0.6, 0.8]
    assert np.isnan(rows.at[("value_patch", "L0H0"), "low"])


def test_births_follow_from_the_bounds_written_out(tables):
    width = tables["bands"].set_index("kind").at["edge", "width"]
    assert 2.0 < width < 12.0
    wide = tables["edges"].pivot(index="edge", columns="step")
    low = wide["effect"] - width * wide["se"]
    high = wide["effect"] + width * wide["se"]
    table = tables["births"].query("kind == 'edge'").set_index("component")
    assert table["born"].notna().sum() > 0
    for edge in table.index:
        floor, roof = low.at[edge, 0] - 0.01, high.at[edge, 0] + 0.01
        assert (floor, roof) == pytest.approx(tuple(table.loc[edge, ["band_low", "band_high"]]))
        out = [low.at[edge, s] > roof or high.at[edge, s] < floor for s in STEPS]
        born = table.at[edge, "born"]
        if pd.isna(born):
            assert not any(out)
            continue
        died = table.at[edge, "died"]
        beyond = [not floor <= wide.at[edge, ("effect", s)] <= roof for s in STEPS]
        alive = [s >= born and (pd.isna(died) or s < died) for s in STEPS]
        assert [b for b, a in zip(beyond, alive, strict=True) if a] == [True] * sum(alive)
        assert out[STEPS.index(born)]
        assert not out[STEPS.index(born) - 1]
        if not pd.isna(died):
            assert not beyond[STEPS.index(died)]
            assert not any(out[STEPS.index(died) :])


def test_significant_edges_and_the_events_of_the_task(tables):
    width = tables["bands"].set_index("kind").at["edge", "width"]
    edges = tables["edges"]
    beyond = edges["effect"].abs() - width * edges["se"] > 0.01
    assert (edges["significant"] == beyond).all()
    assert beyond.any()
    assert not beyond.all()
    assert tables["events"]["event"].tolist()[:2] == [FIRST_FALL, PLATEAU_END]
    pairs = tables["overlap"].query("step_a == 0 and step_b == 120")
    assert pairs["size_b"].item() == beyond[edges["step"] == 120].sum()


def test_any_number_of_jobs_gives_the_same_bits_and_nothing_is_measured_twice(
    run, tables, monkeypatch
):
    counted = []
    measure = FormationMeasure.__call__

    def counting(self, model):
        counted.append(1)
        return measure(self, model)

    # The cache of this test is its own, so both processes have work to do.
    both = formation(run, steps=STEPS, examples=EXAMPLES, jobs=2)
    monkeypatch.setattr(FormationMeasure, "__call__", counting)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(both[name], table, check_exact=True)
    again = formation(run, steps=STEPS, examples=EXAMPLES, jobs=1, margin=0.02)
    assert counted == []
    pd.testing.assert_frame_equal(again["heads"], tables["heads"])
    formation(run, steps=(0, 40, 88), examples=EXAMPLES, jobs=1)
    assert counted == [1]  # the new checkpoint only


def test_markov_chains_with_one_head_a_layer_are_traced_by_the_papers_nodes(tiny_runs):
    run = Run.open("chains", tiny_runs)
    found = formation(run, steps=(0, 20, 40), examples=8, ablation="patch", methods=(), jobs=1)
    graph = Graph(2, 1, granularity="layer-qkv")
    assert set(found["edges"]["edge"]) == {edge.name for edge in graph.edges}
    assert found["agreement"].empty
    assert found["trust"].empty
    assert {"match", "variance_shares"} <= set(found["scores"]["score"])
    assert "kl_two_gen_new" in set(found["diagnostics"]["name"])
    assert found["events"]["event"].tolist()[0] == FIRST_FALL


def test_a_reference_run_from_the_command(reference, tmp_path, capsys):
    argv = ["circuit-formation", "--run", str(reference / "marginals-k20"), "--examples", "6"]
    argv += ["--steps", "0", "4000", "8000", "--jobs", "1", "--methods", "eap"]
    files = [tmp_path / "a.json", tmp_path / "a.html"]
    assert main([*argv, "--json", str(files[0]), "--html", str(files[1])]) == 0
    out = capsys.readouterr().out
    body = json.loads(files[0].read_text())
    assert out.splitlines() == body["summary"]
    assert "479 edges" in out
    assert "nominally 95 %, less with few examples" in out
    assert len(body["tables"]["edges"]) == 3 * 479
    assert len(body["tables"]["heads"]) == 3 * 16
    assert body["provenance"]["options"]["granularity"] == "head"
    assert list(body["provenance"]["checkpoints"]) == ["0", "4000", "8000"]
    born = {row["component"]: row["born"] for row in body["tables"]["births"]}
    assert born["L0H3"] == 4000  # the regression table of attributions names it, too
    page = files[1].read_text()
    for heading in ("Edges", "Heads", "Time line", "Edges alive", "Overlap", "Gradient methods"):
        assert heading in page


def _refused(run, match, **options):
    with pytest.raises(InputError, match=match) as refusal:
        formation(run, jobs=1, **options)
    assert "\n" not in str(refusal.value)


def test_what_is_refused(run, tiny_runs, monkeypatch):
    _refused(run, r"no checkpoint at step 41; the nearest are .*step_40", steps=(0, 41, 80))
    _refused(run, r"2 checkpoints to trace; circuit-formation needs at least 3", steps=(0, 40))
    _refused(run, r"3 checkpoints .* needs at least 4, 2 for the", steps=(0, 40, 80), early=2)
    _refused(run, r"checkpoints is 2; it has to be at least 3", checkpoints=2)
    _refused(run, r"early is 0; at least 1 checkpoint", early=0)
    _refused(run, r"examples is 1; an interval needs at least 2", examples=1)
    _refused(run, r"granularity='neuron' is not known; choose one of auto", granularity="neuron")
    _refused(run, r"method 'eap-gi' is not known; near matches: eap", methods=("eap-gi",))
    _refused(run, r"ablation='none' is not known; choose one of zero", ablation="none")
    for margin in (-0.1, math.nan, math.inf):
        _refused(run, rf"margin is {margin}; it has to be a number, 0 or more", margin=margin)
    short = Run.open("short", tiny_runs)
    _refused(short, r"short: 2 checkpoints to trace; .* --save-every")
    with pytest.raises(InputError, match="jobs is 0; it has to be at least 1"):
        formation(run, steps=STEPS, jobs=0)


def test_a_wrong_granularity_on_the_command_is_one_line(capsys):
    assert main(["circuit-formation", "--granularity", "neuron"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "neuron" in err


def test_steps_are_spread_evenly_and_granularity_follows_the_heads(run, tiny_runs):
    assert chosen_steps(run, (), 3, 1) == [0, 64, 120]
    assert chosen_steps(run, (), 1000, 1) == run.steps
    assert chosen_steps(run, (80, 0, 40), 1, 1) == [0, 40, 80]
    assert chosen_granularity(run, "auto") == "head"
    assert chosen_granularity(run, "layer") == "layer"
    assert chosen_granularity(Run.open("chains", tiny_runs), "auto") == "layer-qkv"


def test_the_answer_names_what_was_read_and_asked(run, tiny_runs):
    request = CircuitFormation(
        run="lookup-12", root=tiny_runs, steps=STEPS, examples=8, methods=(), jobs=1, quiet=True
    )
    found = answer(request)
    assert found.provenance["options"]["examples"] == 8
    assert found.provenance["checkpoints"] == {str(s): run.checkpoint_hash(s) for s in STEPS}
    assert set(found.figures) == {"Edges", "Heads", "Time line", "Edges alive", "Overlap"}
    assert "noise band" in found.summary[1]
