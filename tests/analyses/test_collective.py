import numpy as np
import pytest
from scipy.stats import binom

from analyses.groups.collective import (
    all_right,
    collective_row,
    holm,
    intraclass,
    mostly_right,
    null_counts,
    spread,
)

K = 10


def _independent(p, groups=200, seed=0):
    return np.random.default_rng(seed).random((groups, K)) < p


def _beta_binomial(p, rho, groups=4000, seed=0):
    """Groups with a rate of their own, whose members are then alike to the degree rho."""
    generator = np.random.default_rng(seed)
    total = 1 / rho - 1
    rate = generator.beta(p * total, (1 - p) * total, size=groups)
    return generator.random((groups, K)) < rate[:, None]


def test_shares_by_hand():
    right = np.array([[10, 8, 7, 0]])
    assert mostly_right(right, K).tolist() == [0.5]
    assert all_right(right, K).tolist() == [0.25]
    np.testing.assert_allclose(spread(right, K), np.var([1.0, 0.8, 0.7, 0.0]))
    assert mostly_right(np.array([[4, 3]]), 5).tolist() == [0.5]  # 4 of 5 is 80 %


@pytest.mark.parametrize("rho", [0.05, 0.3, 0.8])
def test_the_intraclass_correlation_finds_a_planted_one(rho):
    right = _beta_binomial(0.4, rho).sum(1)[None]
    assert intraclass(right, K)[0] == pytest.approx(rho, abs=0.03)


def test_the_intraclass_correlation_of_extremes():
    assert intraclass(np.array([[K, K, 0, 0]]), K)[0] == pytest.approx(1.0)
    assert intraclass(np.array([[5, 5, 5, 5]]), K)[0] == pytest.approx(-1 / (K - 1))
    assert np.isnan(intraclass(np.array([[K, K, K]]), K)[0])


def test_the_null_keeps_the_accuracy_and_follows_the_binomial():
    outcomes = _independent(0.7, groups=300)
    drawn = null_counts(outcomes, 500, seed=1)
    assert (drawn.sum(1) == outcomes.sum()).all()
    p = outcomes.mean()
    assert mostly_right(drawn, K).mean() == pytest.approx(binom.sf(7, K, p), abs=0.004)
    assert all_right(drawn, K).mean() == pytest.approx(p**K, abs=0.004)
    by_slot = null_counts(outcomes, 50, seed=1, by_slot=True)
    assert (by_slot.sum(1) == outcomes.sum()).all()


def test_independent_items_are_called_collective_as_rarely_as_promised():
    p_values = [collective_row(_independent(0.6, 60, seed), 200)["p_spread"] for seed in range(40)]
    assert np.mean(np.array(p_values) < 0.05) <= 0.15
    assert 0.35 < np.mean(p_values) < 0.65


def test_groups_right_together_are_found_where_the_bar_alone_sees_nothing():
    together = np.repeat(_independent(0.3, groups=100)[:, :1], K, axis=1)
    row = collective_row(together, 500)
    assert row["icc"] == pytest.approx(1.0)
    assert row["p_spread"] == row["p_spread_by_slot"] == pytest.approx(1 / 501)
    assert row["groups_100"] > 0.15 > row["null_100_high"]
    # At the same accuracy independent items leave both bars empty: that is no evidence.
    alone = collective_row(_independent(0.3, groups=100), 500)
    assert alone["groups_80"] <= 0.02
    assert alone["p_80"] > 0.05


def test_easy_slots_are_not_taken_for_easy_groups():
    rates = np.linspace(0.05, 0.95, K)
    outcomes = np.random.default_rng(3).random((200, K)) < rates
    row = collective_row(outcomes, 500)
    assert row["icc"] < 0  # members differ, groups do not
    assert 0.01 < row["p_spread_by_slot"] < 0.99
    assert row["p_spread"] > 0.99


def test_intervals_hold_their_value_and_follow_the_seed():
    row = collective_row(_beta_binomial(0.5, 0.3, groups=100), 300)
    for name in ("mean_accuracy", "groups_80", "groups_100", "icc"):
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
    assert row == collective_row(_beta_binomial(0.5, 0.3, groups=100), 300)


def test_nothing_right_is_no_evidence():
    row = collective_row(np.zeros((20, K), dtype=bool), 100)
    assert row["p_spread"] == row["p_80"] == 1.0
    assert np.isnan(row["icc"])
    assert np.isnan(row["icc_low"])


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
