import math

import numpy as np
import pandas as pd
import pytest

from analyses.waiting.tau import DEFINITIONS, tau_table

LN_K = math.log(10)
TAU, WIDTH = 800.0, 40.0


def logistic(tau=TAU, width=WIDTH, last=2000, every=50, se=0.05, level=LN_K):
    """Both losses fall from their level to 0 along a logistic curve."""
    steps = np.arange(0, last + 1, every)
    fall = 1 / (1 + np.exp((steps - tau) / width))
    return pd.DataFrame(
        {
            "step": steps,
            "candidate_loss": LN_K * fall,
            "candidate_loss_se": se * fall,
            "first_token_ce": level * fall,
            "first_token_ce_se": se * fall,
        }
    )


def _planted(share):
    """Where the logistic curve passes a share of its level."""
    return TAU - WIDTH * math.log(share / (1 - share))


def _table(series, **options):
    return tau_table(series, LN_K, **options).set_index("definition")


def test_planted_times_are_found_under_every_definition():
    table = _table(logistic(every=2))
    expected = {
        "a": TAU,
        "b": TAU,
        "c": _planted(0.9),
        "d": 2 * WIDTH * math.log(19),
        "e": _planted(0.3),
    }
    for name, time in expected.items():
        assert table.at[name, "sound"] == pytest.approx(time, abs=0.1)
        assert 0 <= table.at[name, "paper"] - time <= 2 or name == "d"
    assert table.at["d", "paper"] == pytest.approx(expected["d"], abs=2)


def test_the_paper_reads_the_first_row_below():
    series = logistic()
    table = _table(series)
    by_hand = next(s for s, v in zip(series["step"], series["candidate_loss"], strict=True)
                   if v < 0.5 * LN_K)  # fmt: skip
    assert table.at["a", "paper"] == by_hand == 850


def test_noise_fools_the_paper_and_not_the_sound_reading():
    series = logistic()
    series.loc[4, ["candidate_loss", "first_token_ce"]] = 0.1
    table = _table(series)
    assert table.at["a", "paper"] == table.at["c", "paper"] == 200
    assert table.at["a", "sound"] == pytest.approx(_table(logistic()).at["a", "sound"])


def test_the_range_is_where_the_shifted_curve_crosses():
    series = logistic(every=2)
    row = _table(series).loc["a"]
    for end, sign in (("low", -1), ("high", 1)):
        moved = series["candidate_loss"] + sign * 1.959964 * series["candidate_loss_se"]
        by_hand = np.interp(-0.5 * LN_K, -moved, series["step"])
        assert row[f"sound_{end}"] == pytest.approx(by_hand, abs=1e-6)
    assert row["sound_low"] < row["sound"] < row["sound_high"]
    assert row["paper_low"] <= row["paper"] <= row["paper_high"]


def test_fresh_examples_make_the_first_crossing_early():
    noisy = logistic(tau=1500, width=200, last=3000, se=0.3)
    row = _table(noisy, n_examples=32).loc["a"]
    assert (row["fresh_low"] + row["fresh_high"]) / 2 < row["sound"]
    four_times = _table(noisy, n_examples=128).loc["a"]
    assert four_times["fresh_low"] < row["fresh_low"]
    assert np.isnan(_table(noisy).at["a", "fresh_low"])


def test_a_run_that_ends_first_is_infinite_and_e_needs_500_more_steps():
    short = _table(logistic(last=700))
    assert np.isinf(short["paper"].drop("c")).all()
    almost = _table(logistic(last=1200))
    assert np.isinf(almost.at["e", "paper"])
    assert np.isfinite(almost.at["e", "sound"])
    assert almost.at["a", "paper"] == 850


def test_the_sound_first_token_level_is_the_marginals_own():
    table = _table(logistic(level=2.0), marginal_first=2.0)
    assert table.at["b", "sound"] == pytest.approx(TAU, abs=2)
    assert _table(logistic(level=2.0)).at["b", "sound"] > TAU - 50
    assert table.at["c", "paper"] == 0  # 2.0 is below 0.9 ln 10 from the beginning


def test_there_are_the_five_definitions_of_the_notes():
    assert "".join(each.name for each in DEFINITIONS) == "abcde"
