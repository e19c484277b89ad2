import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analyses.bypass.outcomes import PLAIN
from analyses.ledger import chain_runs
from analyses.ledger.abrupt_claims import abrupt_share
from analyses.ledger.capacity_claims import capacity_of
from analyses.ledger.claim import Estimate, Part, verdict_of
from analyses.ledger.criteria import above, below, contains, every, inside, most, number, shown
from analyses.ledger.seeds import (
    geometric_over_seeds,
    over_seeds,
    overall,
    per_setting,
    seeds_in,
    share,
    truth,
)
from analyses.ledger.store import EvidenceStore
from analyses.ledger.traced import ESSENTIAL
from analyses.ledger.waiting import ratio
from mechinterp.findings import phase

MID = Estimate(1.2, 1.1, 1.3)


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ((True, True), "reproduced"),
        ((True, False), "in part"),
        ((True, None), "in part"),
        ((False, None), "not reproduced"),
        ((False, False), "not reproduced"),
        ((None, None), "not testable at this scale"),
        ((), "not testable at this scale"),
    ],
)
def test_the_verdict_follows_from_the_statements(held, verdict):
    assert verdict_of([Part("", one) for one in held]) == verdict


@pytest.mark.parametrize(
    ("found", "answer"), [(1.1, True), (1.0, True), (1.31, False), (1.2, None)]
)
def test_a_whole_interval_decides(found, answer):
    assert above(MID, found) is answer
    opposite = {True: False, False: True, None: None}[answer]
    assert below(MID, found) is (opposite if found != 1.1 else None)


def test_ranges_and_unknown_intervals():
    assert inside(MID, 1.0, 2.0) is True
    assert inside(MID, 2.0, 3.0) is False
    assert inside(MID, 1.2, 3.0) is None
    assert contains(MID, 1.25) is True
    assert contains(MID, 1.35) is False
    for rule in (above, below, contains):
        assert rule(Estimate(1.0), 1.0) is None


def test_most_and_every():
    assert most([True] * 4 + [False]) is True
    assert most([True] * 3 + [False]) is None
    assert most([True, False, False]) is False
    assert most([]) is None
    assert every([True, True]) is True
    assert every([True, None]) is None
    assert every([None, False]) is False
    assert every([]) is None


def test_intervals_are_those_of_the_standard_formulas():
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert over_seeds(values) == pytest.approx((7 / 3, low, high))
    assert geometric_over_seeds(values).value == pytest.approx(2.0)
    exact = stats.binomtest(2, 8).proportion_ci(0.95, "exact")
    assert share([True] * 2 + [False] * 6) == pytest.approx((0.25, exact.low, exact.high))
    assert share([False] * 3)[:2] == (0.0, 0.0)
    assert math.isnan(over_seeds([3.0]).low)
    assert math.isnan(over_seeds([]).value)


def test_settings_are_averaged_within_a_seed():
    table = pd.DataFrame(
        {"k": [5, 5, 10, 10], "rank": [0, 1, 0, 1], "value": [1.0, 2.0, 3.0, 6.0],
         "init_seed": [0, 1, 0, 1], "data_seed": [0, 1, 0, 1]}
    )  # fmt: skip
    assert overall(table, "value") == pytest.approx(tuple(over_seeds([2.0, 4.0])))
    each = per_setting(table, "value", ("k",))
    assert list(each["label"]) == ["K 5", "K 10"]
    assert list(each["value"]) == [1.5, 4.5]
    assert list(each["seeds"]) == [2, 2]
    assert seeds_in(table.assign(data_seed=0)) == 1


def test_words_for_true():
    assert truth(pd.Series(["True", "false", 1.0, 0, np.bool_(True)])) == [
        True,
        False,
        True,
        False,
        True,
    ]


def arm(times, last=1000):
    return pd.DataFrame({"rank": range(len(times)), "time": times, "last": last})


def test_ratios_pair_seeds_and_become_bounds():
    slow, fast = arm([200.0, 440.0, 900.0]), arm([100.0, 200.0, 300.0])
    logs = np.log([2.0, 2.2, 3.0])
    found = ratio(slow, fast)
    assert found.bound == "exact"
    assert found.found == pytest.approx(tuple(geometric_over_seeds(np.exp(logs))))
    late = ratio(arm([200.0, 440.0, math.nan]), fast)
    assert (late.bound, late.unreached, late.found.high) == ("at least", 1, math.inf)
    assert late.found.value == pytest.approx(np.exp(np.log([2.0, 2.2, 1000 / 300]).mean()))
    assert ratio(fast, arm([200.0, math.nan, 900.0])).found.low == 0.0
    both = ratio(arm([math.nan] * 3), arm([math.nan] * 3))
    assert both.bound == "undefined"
    assert above(both.found, 1.0) is None


def test_a_time_below_one_unit_is_compared_as_it_is_when_a_step_is_less():
    # Learning rate times tau: 0.3 against 0.5, at a rate of 0.001.
    found = ratio(arm([0.3, 0.3, 0.3]), arm([0.5, 0.5, 0.5]), least=0.001)
    assert found.found.value == pytest.approx(0.6)
    assert ratio(arm([0.3] * 3), arm([0.5] * 3)).found.value == 1.0  # as steps: both at once


def course(width):
    """Rows every 10 steps: 1-Gen up to step 1000, then a straight fall of a given width."""
    steps = np.arange(0, 3000, 10)
    fall = np.clip((steps - 1000) / width, 0.0, 1.0)
    kind = np.where(steps <= 1000, "1-Gen", "2-Gen")
    values = 0.2 - 0.18 * fall
    phase = np.where(values < 0.021, "2-Gen", "mixed")
    return pd.DataFrame(
        {"step": steps, "nearest_phase": kind, "phase": phase, "two_gen_train": values}
    )


@pytest.mark.parametrize("width", [100, 400, 1500])
def test_abruptness_of_a_straight_fall(width):
    # 80 % of it takes 0.8 of its width, the earliest such stretch ending there.
    expected = 0.8 * width / (1000 + 0.8 * width)
    assert abrupt_share(course(width)) == pytest.approx(expected, abs=0.015)


def test_refinement_within_two_gen_counts_unless_it_ends_where_it_is_entered():
    rows = course(400)
    # More goes, slowly, after 2-Gen has been entered.
    rows["two_gen_train"] -= 0.1 * np.clip((rows["step"] - 1400) / 1500, 0.0, 1.0)
    entered = abrupt_share(rows, until_entered=True)
    assert entered == pytest.approx(abrupt_share(course(400)), abs=0.005)
    # 0.28 is lost in all. The shortest stretch with 0.224 has all of the fall (0.18 in 400 steps)
    # and 0.044 of what follows (660 steps).
    assert abrupt_share(rows) == pytest.approx(1060 / 2060, abs=0.02)


def test_no_abruptness_without_both_phases():
    assert math.isnan(abrupt_share(course(100).assign(nearest_phase="2-Mem")))
    assert math.isnan(abrupt_share(course(100).assign(nearest_phase="2-Gen")))


def test_names_and_limits_are_those_of_the_instruments():
    assert chain_runs.PLAIN == PLAIN
    assert ESSENTIAL == phase.ESSENTIAL


@pytest.mark.parametrize(
    ("factors", "name"),
    [("", PLAIN), (math.nan, PLAIN), ("mlp=3", "mlp=3"), ("['a=1', 'b=2']", "a=1, b=2")],
)
def test_arms_are_named_by_their_factors(factors, name):
    assert chain_runs.arm_of(factors) == name


def test_numbers_in_words():
    assert shown(MID) == "1.2 (1.1 to 1.3)"
    assert shown(Estimate(math.nan)) == "unknown"
    assert shown(Estimate(0.12345)) == "0.123"
    assert number(12345.6) == "12346"
    assert number(math.inf) == "inf"


@pytest.mark.parametrize(
    ("least", "largest", "answer"),
    [((8, 16), (32, 64), True), ((8, 16), (8, 16), False), ((0, 4), (0, 4), None),
     ((64, math.inf), (64, math.inf), None)],
)  # fmt: skip
def test_capacities_beyond_the_grid_decide_nothing(least, largest, answer, tmp_path):
    rows = [
        {"k_c": k_c, "low": k_c, "high": high, "d_task": d, "d_hidden": 32, "seeds": 3}
        for d, (k_c, high) in ((1, least), (8, largest))
    ]

    (tmp_path / "minimal-models").mkdir()
    table = pd.DataFrame(rows).assign(run="pool-model")
    table.to_csv(tmp_path / "minimal-models" / "pool-model-capacity.csv", index=False)
    found = capacity_of("d_task", "d_hidden", EvidenceStore(tmp_path))
    assert found.parts[0].held is answer
