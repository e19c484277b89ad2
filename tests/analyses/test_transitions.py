import math

import numpy as np
import pandas as pd
import pytest

from analyses.chains.phase_changes import (
    first_rise,
    last_rise,
    phase_distance,
    spells,
    transience,
    transitions,
    two_gen_time,
    two_mem_time,
)
from mechinterp.nearest_predictor import nearest_phase

NAMES = ("one_gen", "two_gen", "one_mem_stationary", "one_mem_transition", "two_mem")


def planted(every=50, enter=400.0, leave=1500.0, memory=True):
    """1-Gen gives way to 2-Gen at one step and that to 2-Mem at another; logs cross linearly."""
    steps = np.arange(0, 2001, every)
    near = {
        "one_gen": np.full(len(steps), -5.0),
        "two_gen": -5.0 - 0.01 * (steps - enter),
        "two_mem": -5.0 - 0.01 * (steps - enter) - 0.02 * (steps - leave),
        "one_mem_stationary": np.full(len(steps), -1.0),
        "one_mem_transition": np.full(len(steps), -1.0),
    }
    names = NAMES if memory else NAMES[:2]
    table = pd.DataFrame({"step": steps})
    for name in names:
        for which in ("train", "new"):
            table[f"{name}_{which}"] = np.exp(np.clip(near[name], -60, 60))
    lost = np.where(steps > leave, 1 + (steps - leave) / 100, 1.0)
    table["truth_train"], table["truth_new"] = np.exp(-steps / 1000), 0.1 * lost
    labels = [
        nearest_phase(
            {n: row[f"{n}_train"] for n in names},
            {n: row[f"{n}_new"] for n in names},
        )
        for row in table.to_dict("records")
    ]
    table["phase"] = [label.name for label in labels]
    return table


def test_planted_times_are_found_between_rows():
    table = planted()
    found = transitions(table)
    assert found["before"].tolist() == ["1-Gen", "2-Gen"]
    assert found["after"].tolist() == ["2-Gen", "2-Mem"]
    np.testing.assert_allclose(found["crossing"], [400, 1500], atol=1e-6)
    assert (found["last_before"] < found["crossing"]).all()
    assert (found["crossing"] < found["first_after"]).all()
    assert two_gen_time(table) == pytest.approx(400)
    assert two_mem_time(table) == pytest.approx(1500)


def test_a_coarse_grid_gives_the_same_times():
    assert two_mem_time(planted(every=400)) == pytest.approx(1500)


def test_spells_by_hand():
    table = pd.DataFrame({"step": [0, 1, 2, 3, 4], "phase": ["a", "a", "mixed", "a", "b"]})
    assert spells(table).to_numpy().tolist() == [
        ["a", 0, 1, 2], ["mixed", 2, 2, 1], ["a", 3, 3, 1], ["b", 4, 4, 1]
    ]  # fmt: skip


def test_a_mixed_stretch_inside_a_phase_is_no_transition():
    table = planted(leave=1e6)
    table.loc[(table["step"] > 1000) & (table["step"] < 1200), "phase"] = "mixed"
    assert transitions(table)["after"].tolist() == ["2-Gen"]


def test_planted_transience_and_its_controls():
    found = transience(planted())
    assert found["transient"]
    assert found["rise"] == pytest.approx(6.0)
    assert (found["entered"], found["left"]) == (pytest.approx(400), pytest.approx(1500))
    kept = planted()
    kept["truth_new"] = 0.1  # new chains do not suffer
    assert not transience(kept)["transient"]
    worse = planted()
    worse["truth_train"] = np.linspace(1, 2, len(worse))  # everything gets worse: no forgetting
    assert not transience(worse)["transient"]


def test_without_frozen_chains_2_gen_is_never_left():
    table = planted(memory=False)
    assert two_gen_time(table) == pytest.approx(400)
    assert math.isinf(two_mem_time(table))
    assert not transience(table)["transient"]


def test_2_mem_without_2_gen_before_it_is_not_leaving_2_gen():
    table = planted(enter=1e6, leave=-1e6)
    assert math.isinf(two_gen_time(table))
    assert math.isinf(two_mem_time(table))


def test_the_distance_to_a_phase_is_that_of_the_rule():
    table = planted()
    row = table.iloc[3].to_dict()
    rule = nearest_phase({n: row[f"{n}_train"] for n in NAMES}, {n: row[f"{n}_new"] for n in NAMES})
    two = sorted(float(phase_distance(table, p)[3]) for p in ("1-Gen", "2-Gen", "1-Mem", "2-Mem"))[
        :2
    ]
    assert two[1] / two[0] == pytest.approx(rule.margin)


def test_rises_by_hand():
    steps, values = np.array([0, 10, 20, 30, 40]), np.array([-1.0, 1.0, -3.0, 1.0, 2.0])
    assert first_rise(steps, values) == 5
    assert last_rise(steps, values) == 27.5
    assert math.isinf(first_rise(steps, values - 9))
    assert math.isnan(last_rise(steps, values + 9))
    assert first_rise(steps, values + 9) == 0
