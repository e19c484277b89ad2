"""The mechanism section of a trace, on the reference runs: what each checkpoint is known to do."""

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, MarkovChainsConfig
from mechinterp.findings import find_mechanisms, mechanisms_of
from mechinterp.findings.lenses import position_names, token_names
from mechinterp.runs import Run
from mechinterp.tasks import Marginals, MarkovChains
from tests.reference.attributions import REFERENCE


def _found(name, ckpt, n=48, only=None):
    run = Run.open(REFERENCE / name)
    model, task = run.model(run.resolve_step(ckpt)).eval(), run.task()
    pairs = task.pairs(n, torch.Generator().manual_seed(1))
    diagnostics = {} if only else task.diagnostics(model, n, "quick")
    return {f.name: f for f in find_mechanisms(model, task, pairs, diagnostics, only)}


@pytest.fixture(scope="module")
def two_gen():
    return _found("markov-inf", "last")


@pytest.fixture(scope="module")
def two_mem():
    return _found("markov-k4", "last")


def test_each_task_has_its_mechanisms():
    assert list(mechanisms_of(Marginals(MarginalsConfig(k=3, n_b=5)))) == [
        "selector", "heads", "patching", "lens", "attention"
    ]  # fmt: skip
    for variant in ("b_to_a", "a_to_b", "az_to_b"):
        without = mechanisms_of(Marginals(MarginalsConfig(k=3, n_b=5, variant=variant)))
        assert list(without) == ["lens", "attention"]
    assert set(mechanisms_of(MarkovChains(MarkovChainsConfig(k=3)))) == {
        "phase", "induction", "task-vector", "lens", "attention"
    }  # fmt: skip


def test_the_phases_of_the_reference_runs(two_gen, two_mem):
    assert two_gen["phase"].summary[0].startswith("Phase: 2-Gen")
    assert two_mem["phase"].summary[0].startswith("Phase: 2-Mem")


def test_two_mem_needs_the_edges_that_the_paper_expects(two_mem):
    edges = two_mem["phase"].tables["expected_edges"].set_index("edge")
    assert edges["agrees"].all()
    assert edges.loc["A1->M1", "low"] > 10 * edges.loc["A0->A1.k", "high"]


def test_two_gen_matches_and_two_mem_pools(two_gen, two_mem):
    matching, pooling = (
        found["induction"].tables["induction"].set_index("head").loc["L1H0"]
        for found in (two_gen, two_mem)
    )
    assert matching["match"] > 0.8 > 0.1 > pooling["match"]
    assert pooling["evenness"] > 0.9 > matching["evenness"]


def test_the_task_vector_moves_two_mem_and_leaves_two_gen(two_gen, two_mem):
    moved, unmoved = (
        found["task-vector"].tables["task_vector_patch"].set_index(["insert", "reader"])["fraction"]
        for found in (two_mem, two_gen)
    )
    assert moved[("target", "all")] > 0.9
    assert 0.8 > moved[("target", "M1")] > 0.6
    assert moved[("target", "logits")] < 0.3
    assert abs(moved[("random", "all")]) < 0.1 > abs(moved[("own", "all")])
    assert abs(unmoved[("target", "M1")]) < 0.15
    assert unmoved[("target", "all")] < 0.3


def test_the_trace_says_which_readers_meet_the_criterion(two_gen, two_mem):
    whole, paper = two_mem["task-vector"].summary[:2]
    assert whole.startswith("Task vector (A1 into all its readers): another chain's vector moves")
    assert whole.endswith("; meets the criterion of 0.80")
    assert "into M1 alone, the paper's definition: 0.7" in paper
    assert "below the criterion of 0.80; into the logits alone 0.2" in paper
    assert two_gen["task-vector"].summary[0].endswith("below the criterion of 0.80")


def test_three_dimensions_hold_four_chains(two_mem):
    ranks = two_mem["task-vector"].tables["task_vector_rank"].set_index("rank")
    assert list(ranks.index) == [0, 1, 2, 3]
    assert ranks.loc[3, "effect"] < 0.05 < 0.2 < ranks.loc[0, "effect"]
    assert ranks.loc[3, "effect"] < 0.2 * ranks.loc[3, "random"]
    assert "only so many dimensions: 0 " in two_mem["task-vector"].summary[3]


def test_several_heads_of_layer_0_share_the_selector():
    """Zero ablation names L0H3 (see tests/reference); what carries z itself is spread wider."""
    found = _found("marginals-k20", "step_4000", only="selector")["selector"]
    table = found.tables["selector"].set_index("head")
    carried = table["value_patch"]
    assert set(table.loc[carried.nlargest(4).index, "layer"]) == {0}
    assert carried.max() < 0.6 * carried.nlargest(4).sum()
    verdict = found.tables["selector_verdict"].iloc[0]
    assert verdict["leading"] == carried.idxmax() == verdict["value_patch_names"]
    assert verdict["margin_low"] <= verdict["margin"] <= verdict["margin_high"]


def test_the_lenses_of_a_reference_run(two_mem):
    lens = two_mem["lens"].tables["logit_lens"]
    assert lens["probability"].is_monotonic_increasing
    shares = two_mem["lens"].tables["logit_attribution"].set_index("source")["contribution"]
    assert shares.idxmax() == "M1"
    entropy = two_mem["attention"].tables["attention_entropy"].set_index(["head", "query"])
    assert entropy.loc[("L0H0", "last"), "entropy"] < entropy.loc[("L1H0", "last"), "entropy"]
    assert list(two_mem["attention"].figures) == ["Attention, mean", "Attention, one sequence"]


def test_patching_finds_the_selector_at_its_own_positions_first():
    found = _found("marginals-k20", "step_4000", n=16, only="patching")["patching"]
    grid = found.tables["patching_resid_pre"].pivot(index="layer", columns="pos", values="effect")
    assert grid.loc[0].idxmin() in (8, 9)
    assert grid.loc[0, [10, 11, 12, 13, 14]].abs().max() < 1e-5
    assert grid.loc[3].idxmin() not in (8, 9)
    assert "residual stream at L0 z" in found.summary[0]
    rows = found.figures["Patching, residual stream"].data[0]
    assert list(rows.x)[:3] == ["z1", "z2", "SEP"]
    assert list(found.figures) == ["Patching, residual stream", "Patching, head outputs"]


def test_tokens_and_positions_have_names():
    task = Marginals(MarginalsConfig(k=3, n_b=5))
    tokens = task.evaluation(1)[0]
    assert position_names(task, 16) == ["BOS", "B1", "B2", "B3", "B4", "B5", "B6", "SEP", "z1",
                                        "z2", "SEP", "A1", "A2", "A3", "A4", "EOS"]  # fmt: skip
    spelled = token_names(task, tokens)
    assert [spelled[0], spelled[7], spelled[15]] == ["BOS", "SEP", "EOS"]
    assert spelled[1] == "0123456789abcdefghijklmnopqrstuvwxyz"[int(tokens[1]) - 4]
    chains = MarkovChains(MarkovChainsConfig(k=3))
    assert token_names(chains, chains.evaluation(1)[0])[0] == str(int(chains.evaluation(1)[0, 0]))


@pytest.mark.parametrize("variant", ["b_to_a", "a_to_b", "az_to_b"])
@pytest.mark.parametrize("only", ["selector", "heads", "patching"])
def test_a_task_without_a_selector_says_so(variant, only):
    task = Marginals(MarginalsConfig(k=3, n_b=5, variant=variant))
    with pytest.raises(
        InputError, match=r"those that do: lens, attention .its task shows no selec"
    ):
        find_mechanisms(None, task, task.pairs(2, torch.Generator()), {}, only)


def test_a_mechanism_that_does_not_fit_is_refused_by_name():
    run = Run.open(REFERENCE / "markov-k4")
    with pytest.raises(InputError, match="'selector' does not fit this run; those that do: phase"):
        find_mechanisms(
            run.model(0), run.task(), run.task().pairs(2, torch.Generator()), {}, "selector"
        )
