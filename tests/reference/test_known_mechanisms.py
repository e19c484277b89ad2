"""Regression: every mechanism of the reference runs, recomputed from their weights."""

import json

import pytest

from tests.reference.mechanisms import KNOWN, STEPS, mechanisms, mismatches

TOLERANCES = {"rtol": 2e-3, "atol": 1e-3, "counted": 0.05}
CASES = [(name, ckpt) for name, ckpts in STEPS.items() for ckpt in ckpts]


@pytest.fixture(scope="module")
def known():
    return json.loads(KNOWN.read_text())


@pytest.fixture(scope="module")
def found():
    """Each checkpoint is measured once."""
    kept = {}

    def measured(name, ckpt):
        if (name, ckpt) not in kept:
            kept[name, ckpt] = mechanisms(name, ckpt)
        return kept[name, ckpt]

    return measured


@pytest.mark.parametrize(("name", "ckpt"), CASES)
def test_mechanisms_are_what_they_were(known, found, name, ckpt):
    assert not mismatches(found(name, ckpt), known[name][ckpt], **TOLERANCES)


def test_another_checkpoint_does_not_pass_for_this_one(known, found):
    here, there = known["marginals-k20"]["last"], found("marginals-k20", "step_4000")
    numbers = sum(len(row) for row in here.values())
    off = mismatches(there, here, **TOLERANCES)
    assert len(off) > 0.5 * numbers
    for table in ("selector", "selector_verdict", "heads", "logit_lens", "patching_z"):
        assert any(entry[0].startswith(f"{table}/") for entry in off), table


def test_one_run_does_not_pass_for_another(known, found):
    off = mismatches(found("markov-k4", "last"), known["markov-inf"]["last"], **TOLERANCES)
    for table in ("phase", "distances", "induction", "k_composition", "task_vector_patch",
                  "variance_shares", "logit_attribution", "attention_entropy"):  # fmt: skip
        assert any(entry[0].startswith(f"{table}/") for entry in off), table


def test_the_file_holds_every_mechanism(known):
    tables = {row.partition("/")[0] for row in known["markov-k4"]["last"]}
    assert tables >= {
        "phase", "distances", "expected_edges", "induction", "k_composition", "task_vector_patch",
        "task_vector_probe", "task_vector_dimension", "task_vector_rank", "variance_shares",
        "logit_lens", "logit_attribution", "attention_entropy",
    }  # fmt: skip
    tables = {row.partition("/")[0] for row in known["marginals-k20"]["step_4000"]}
    assert tables >= {
        "selector", "selector_verdict", "heads", "patching_resid_pre", "patching_z", "logit_lens",
    }  # fmt: skip
    assert known["markov-k4"]["last"]["phase/says"]["answer"] == "Phase: 2-Mem"
    assert known["markov-inf"]["last"]["phase/says"]["answer"] == "Phase: 2-Gen"


def test_mismatches_see_a_number_a_word_and_a_row():
    known = {"a": {"x": 1.0, "name": "L0H3"}, "b": {"accuracy": 0.5}}
    assert not mismatches(known, known, **TOLERANCES)
    moved = {"a": {"x": 1.01, "name": "L0H3"}, "b": {"accuracy": 0.52}}
    assert mismatches(moved, known, **TOLERANCES) == [("a/x", 1.0, 1.01)]
    renamed = {"a": {"x": 1.0, "name": "L0H1"}, "c": {"accuracy": 0.5}}
    assert len(mismatches(renamed, known, **TOLERANCES)) == 3
