import math

import pandas as pd
import pytest

from analyses import phases
from analyses.catalogue import Phases
from analyses.phases import log_phases
from circuits.errors import InputError
from mechinterp.runs import Run


def test_a_tiny_run(tiny_runs):
    answer = phases.answer(Phases(run="chains", root=tiny_runs, examples=32))
    table, log = answer.tables["phases"], answer.tables["log"]
    assert table["step"].tolist() == log["step"].tolist() == [0, 10, 20, 30, 40]
    # The log was measured on the same 32 sequences, by the task's own diagnostics.
    for name in ("two_gen_train", "two_mem_new", "truth_train", "margin"):
        pd.testing.assert_series_equal(table[name], log[name], check_exact=False, rtol=1e-4)
    assert table["phase"].tolist() == log["phase"].tolist()
    assert answer.tables["transience"]["source"].tolist() == ["checkpoints", "log"]
    assert set(answer.figures) == {"Training chains", "New chains", "Phases"}


@pytest.fixture(scope="module")
def asked(reference):
    """Answers on both reference runs, of few sequences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECHINTERP_CACHE", "off")
        return {
            name: phases.answer(Phases(run=str(reference / name), examples=64))
            for name in ("markov-inf", "markov-k4")
        }


def test_fresh_chains_end_in_2_gen(asked):
    tables = asked["markov-inf"].tables
    labels = tables["phases"].set_index("step")["phase"]
    assert labels[3000] == "2-Gen"
    assert labels[300] == "1-Gen"
    assert set(tables["transitions"]["source"]) == {"checkpoints", "log"}
    for _, found in tables["transitions"].groupby("source"):
        one = found.iloc[0]
        assert (one["before"], one["after"]) == ("1-Gen", "2-Gen")
        assert 500 < one["crossing"] < 1000
    assert not tables["transience"]["transient"].any()
    assert tables["transience"]["left"].map(math.isinf).all()


def test_four_chains_end_in_2_mem_without_2_gen(asked):
    tables = asked["markov-k4"].tables
    last = tables["phases"].iloc[-1]
    assert last["phase"] == "2-Mem"
    assert last["two_mem_train"] < 0.25 * last["two_gen_train"]
    assert last["truth_new"] > tables["phases"]["truth_new"].iloc[0]
    assert "2-Gen" not in set(tables["phases"]["phase"])
    assert "1-Mem" in set(tables["phases"]["nearest_phase"])
    assert any("2-Mem" in line for line in asked["markov-k4"].summary)


def test_what_is_refused(tiny_runs, monkeypatch):
    with pytest.raises(InputError, match=r"phases needs .*markov_chains, but lookup-6 has .*margi"):
        phases.answer(Phases(run="lookup-6", root=tiny_runs))
    with pytest.raises(InputError, match=r"examples is 1; an interval needs at least 2"):
        phases.answer(Phases(run="chains", root=tiny_runs, examples=1))
    monkeypatch.setattr(Run, "steps", [0, 40])
    with pytest.raises(InputError, match=r"chains has 2 checkpoints; .*at least 3: .*--save-every"):
        phases.answer(Phases(run="chains", root=tiny_runs))


def test_a_run_without_a_log_is_answered_from_its_checkpoints(tiny_runs, monkeypatch):
    monkeypatch.setattr(Run, "metrics", lambda self: pd.DataFrame({"step": []}))
    run = Run.open("chains", tiny_runs)
    assert log_phases(run).empty
    answer = phases.answer(Phases(run="chains", root=tiny_runs, examples=4))
    assert answer.tables["transience"]["source"].tolist() == ["checkpoints"]
