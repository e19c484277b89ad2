"""The mechanism section of a trace, on the reference runs: what each checkpoint is known to do."""

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, MarkovChainsConfig
from mechinterp.findings import find_mechanisms, mechanisms_of
from mechinterp.runs import Run
from mechinterp.tasks import Marginals, MarkovChains
from tests.reference.attributions import REFERENCE


def _found(name, ckpt, n=48):
    run = Run.open(REFERENCE / name)
    model, task = run.model(run.resolve_step(ckpt)).eval(), run.task()
    pairs = task.pairs(n, torch.Generator().manual_seed(1))
    diagnostics = task.diagnostics(model, n, "quick")
    return {f.name: f for f in find_mechanisms(model, task, pairs, diagnostics)}


@pytest.fixture(scope="module")
def two_gen():
    return _found("markov-inf", "last")


@pytest.fixture(scope="module")
def two_mem():
    return _found("markov-k4", "last")


def test_each_task_has_its_mechanisms():
    assert list(mechanisms_of(Marginals(MarginalsConfig(k=3, n_b=5)))) == ["selector"]
    assert not mechanisms_of(Marginals(MarginalsConfig(k=3, n_b=5, variant="b_to_a")))
    assert set(mechanisms_of(MarkovChains(MarkovChainsConfig(k=3)))) == {
        "phase", "induction", "task-vector"
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
    assert moved[("target", "M1")] > 0.6
    assert abs(moved[("random", "M1")]) < 0.1
    assert abs(unmoved[("target", "M1")]) < 0.15


def test_several_heads_of_layer_0_share_the_selector():
    """Zero ablation names L0H3 (see tests/reference); what carries z itself is spread wider."""
    table = _found("marginals-k20", "step_4000")["selector"].tables["selector"].set_index("head")
    carried = table["value_patch"]
    assert set(table.loc[carried.nlargest(4).index, "layer"]) == {0}
    assert carried.max() < 0.6 * carried.nlargest(4).sum()


def test_a_mechanism_that_does_not_fit_is_refused_by_name():
    run = Run.open(REFERENCE / "markov-k4")
    with pytest.raises(InputError, match="'selector' does not fit this run; those that do: phase"):
        find_mechanisms(
            run.model(0), run.task(), run.task().pairs(2, torch.Generator()), {}, "selector"
        )
