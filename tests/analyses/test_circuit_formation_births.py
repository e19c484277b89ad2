import numpy as np
import pandas as pd
import pytest
import torch

from analyses.formation.bounded_series import BoundedSeries
from analyses.formation.changes_of_hands import hands
from analyses.formation.events import leads
from analyses.formation.lifetimes import births
from analyses.formation.simultaneous import (
    bonferroni_value,
    critical_value,
    largest_deviations,
    standard_errors,
)
from circuits.errors import InputError

STEPS = (0, 10, 20, 30, 40, 50)


def _series(values, half=0.1, kind="edge", steps=STEPS):
    value = np.atleast_2d(np.asarray(values, dtype=float))
    names = tuple(f"e{i}" for i in range(len(value)))
    return BoundedSeries(kind, names, steps, value, value - half, value + half)


def _measured(per_example, width=None):
    """A series from values `"step row batch"`, as the analysis makes it from checkpoints."""
    draws = np.stack([largest_deviations(one, n_resamples=200) for one in per_example])
    q = critical_value(draws, per_example.shape[2]) if width is None else width
    table = pd.DataFrame(
        {
            "step": np.repeat(STEPS[: len(per_example)], per_example.shape[1]),
            "edge": [f"e{i}" for i in range(per_example.shape[1])] * len(per_example),
            "effect": per_example.double().mean(2).flatten().numpy(),
            "se": torch.cat([standard_errors(one) for one in per_example]).numpy(),
        }
    )
    return BoundedSeries.of(table, "edge", "edge", "effect", q)


@pytest.mark.parametrize(
    ("values", "born", "died"),
    [
        ([0, 0, 1, 1, 1, 1], 20, None),
        ([0, 0, 0, 0, 0, 1], 50, None),
        ([0, 0, 0, 0, 0, 0], None, None),
        ([0, 0.15, 0.15, 0.2, 0.19, 0.1], None, None),  # bounds touch the band throughout
        ([0, 1, 1, 0, 0, 0], 10, 30),
        ([0, 1, 0, 1, 1, 1], 30, None),  # out at 10, but it does not stay out
        ([0, 1, 0, 1, 0, 0], 30, 40),
        ([0, -1, -1, 1, 1, 1], 10, None),  # below the band is out of it, too
    ],
)
def test_planted_births_and_deaths(values, born, died):
    row = births(_series(values)).iloc[0]
    assert (None if pd.isna(row["born"]) else row["born"]) == born
    assert (None if pd.isna(row["died"]) else row["died"]) == died
    assert (row["band_low"], row["band_high"]) == pytest.approx((-0.1, 0.1))


@pytest.mark.parametrize(
    ("values", "halves", "born", "died"),
    [
        ([0, 1, 1, 1, 1, 1], [0.1, 0.1, 0.1, 0.1, 0.1, 2.0], 10, None),  # poorly known, not gone
        ([0, 1, 1, 1, 1, 0.05], [0.1, 0.1, 0.1, 0.1, 0.1, 2.0], 10, 50),  # gone, poorly known
        ([0, 1, 1, 1, 1, 1], [0.1, 0.1, 2.0, 0.1, 0.1, 0.1], 10, None),  # one life, not two
        ([0, 1, 1, 1, 1, 1], [0.1, 2.0, 2.0, 2.0, 2.0, 2.0], None, None),  # never known to be out
        ([0, 1, 1, 1, 1, 1], [0.1, 2.0, 2.0, 0.1, 2.0, 2.0], 30, None),
    ],
)
def test_wide_bounds_are_no_death(values, halves, born, died):
    row = births(_series(values, half=np.array([halves]))).iloc[0]
    assert (None if pd.isna(row["born"]) else row["born"]) == born
    assert (None if pd.isna(row["died"]) else row["died"]) == died


def test_a_birth_lies_after_the_checkpoint_before_it_and_has_a_peak():
    row = births(_series([0.0, 1.0, 0.0, 1.0, -3.0, 2.0])).iloc[0]
    assert (row["born_after"], row["born"], row["first_out"]) == (20, 30, 10)
    assert (row["peak_step"], row["peak_effect"], row["last_effect"]) == (40, -3.0, 2.0)


def test_early_checkpoints_and_the_margin_widen_the_band():
    values = [0, 0.5, 0.6, 0.6, 0.6, 0.6]
    assert births(_series(values)).iloc[0]["born"] == 10
    assert pd.isna(births(_series(values), early=2).iloc[0]["born"])
    assert pd.isna(births(_series(values), margin=0.45).iloc[0]["born"])
    assert births(_series(values), margin=0.35).iloc[0]["born"] == 20


def test_nothing_is_born_where_nothing_is_known_of_the_noise():
    found = births(_series([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]], half=[[np.nan], [0.1]]))
    assert found["component"].tolist() == ["e1", "e0"]  # the one that was born comes first
    assert found["born"].isna().tolist() == [False, True]
    assert found["band_low"].isna().tolist() == [False, True]


@pytest.mark.parametrize("skewed", [False, True])
def test_pure_noise_is_born_at_most_at_the_stated_rate_and_plain_intervals_fail(skewed):
    generator = torch.Generator().manual_seed(0)
    found, plain = 0, 0
    for _ in range(40):
        noise = torch.randn(4, 24, 48, generator=generator)
        noise = noise.exp() if skewed else noise
        found += births(_measured(noise))["born"].notna().any()
        plain += births(_measured(noise, width=1.96 / 2**0.5))["born"].notna().any()
    assert found <= 0.05 * 40
    assert plain > 0.5 * 40


def test_the_bounds_cover_all_means_together_at_the_stated_rate():
    generator = torch.Generator().manual_seed(1)
    covered = []
    for _ in range(100):
        shared = torch.randn(1, 1, 24, generator=generator)  # examples that are hard for all rows
        series = _measured(shared + torch.randn(2, 20, 24, generator=generator))
        covered.append(bool(((series.low <= 0) & (series.high >= 0)).all()))
    assert 0.86 <= np.mean(covered) <= 0.99


def test_correlated_rows_need_less_than_bonferroni_and_independent_ones_as_much():
    generator = torch.Generator().manual_seed(2)
    row = torch.randn(1, 400, generator=generator)
    alone = critical_value(largest_deviations(row)[None], 400)
    same = critical_value(largest_deviations(row.expand(50, 400))[None], 400)
    apart = largest_deviations(torch.randn(50, 400, generator=generator))
    assert same == pytest.approx(alone)
    assert same == pytest.approx(1.96, abs=0.2)
    assert critical_value(apart[None], 400) == pytest.approx(bonferroni_value(50), rel=0.08)
    assert bonferroni_value(1) == pytest.approx(1.959964, abs=1e-5)


def test_few_examples_make_wider_bounds_and_constant_rows_none():
    draws = np.full((1, 1000), 3.0)
    assert critical_value(draws, 8) > critical_value(draws, 128) > 3.0
    assert (largest_deviations(torch.ones(2, 5)) == 0).all()
    with pytest.raises(InputError, match="1 example has no spread"):
        largest_deviations(torch.ones(2, 1))


def test_planted_births_in_noise_are_found_where_they_are():
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(6, 12, 64, generator=generator)
    planted = {0: 10, 1: 30, 2: 50}
    for row, step in planted.items():
        values[STEPS.index(step) :, row] += 3.0
    values[2:4, 3] -= 3.0
    table = births(_measured(values)).set_index("component")
    for row, step in planted.items():
        assert table.at[f"e{row}", "born"] == step
        assert pd.isna(table.at[f"e{row}", "died"])
    assert (table.at["e3", "born"], table.at["e3", "died"]) == (20, 40)
    assert table["born"].notna().sum() == 4


def test_hands_change_beyond_noise_only():
    series = _series(
        [
            [0.0, 1.0, 1.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 1.1, 1.3, 1.3, 1.3],  # ahead at 20, beyond noise at 30
            [0.0, 0.0, 0.0, 0.0, -2.0, -2.0],  # by size
            [0.05, 0.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
    found = hands(series, {"all": ["e0", "e1", "e2", "e3"], "quiet": ["e3"], "one": ["e0"]})
    assert found.to_dict("records") == [
        {"reader": "all", "step": 30, "before": "e0", "after": "e1", "kind": "edge"},
        {"reader": "all", "step": 40, "before": "e1", "after": "e2", "kind": "edge"},
    ]
    # With a first holder asked to be larger, e0 never held the place.
    late = hands(series, {"all": ["e0", "e1", "e2"]}, least=1.0)
    assert late["before"].tolist() == ["e1"]


def test_leads_are_bracketed_by_the_checkpoints():
    born = births(_series([[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0] * 6]))
    events = pd.DataFrame(
        [("falls", 45.0, 42.0, 47.0, "log"), ("never", np.inf, np.inf, np.inf, "log")],
        columns=["event", "step", "low", "high", "source"],
    )
    table = leads(born, events).set_index("component")
    assert table.index.tolist() == ["e0", "e1"]
    assert table.loc["e0", ["lead", "lead_low", "lead_high"]].tolist() == [25, 22, 37]
    assert table.loc["e1", ["lead", "lead_low", "lead_high"]].tolist() == [-5, -8, 7]
    assert table["before"].tolist() == [True, False]


def test_what_is_refused():
    with pytest.raises(InputError, match=r"6 checkpoints, of which the first 6 make the noise"):
        births(_series([0] * 6), early=6)
    with pytest.raises(InputError, match=r"early=0 has to be at least 1, and margin=-1"):
        births(_series([0] * 6), early=0, margin=-1.0)
