"""Agreement of scores: values worked out by hand, and controls that must look like chance."""

import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from circuits.agreement import agreement
from circuits.edge_ablation import EdgeEffects
from circuits.edge_scores import edge_scores
from circuits.errors import InputError
from circuits.graph import Graph

GRAPH = Graph(2, 2)
NAMES = [edge.name for edge in GRAPH.edges]


def scores(seed, n=46):
    generator = torch.Generator().manual_seed(seed)
    return dict(zip(NAMES[:n], torch.randn(n, generator=generator).tolist(), strict=True))


def test_ranks_and_overlap_worked_by_hand():
    exact = {"a": 5.0, "b": -4.0, "c": 3.0, "d": 2.0, "e": 1.0}
    approx = {"a": 10.0, "b": 7.0, "c": -8.0, "d": 1.0, "e": 2.0}
    found = agreement(exact, approx, top=[1, 2])
    # Sizes rank 5 4 3 2 1 and 5 3 4 1 2: rank differences 0 1 -1 1 -1, so 1 - 6 * 4 / 120.
    assert found["rank correlation"] == pytest.approx(0.8)
    # With signs 5 1 4 3 2 and 5 4 1 2 3: differences 0 -3 3 1 -1, so 1 - 6 * 20 / 120.
    assert found["signed rank correlation"] == pytest.approx(0.0)
    assert found["top-1 overlap"] == 1.0
    assert found["top-2 overlap"] == 0.5  # {a, b} and {a, c}
    assert found.n_edges == 5


def test_rank_correlation_equals_scipys():
    exact, approx = scores(0), scores(1)
    found = agreement(exact, approx)
    assert found["signed rank correlation"] == pytest.approx(
        spearmanr(list(exact.values()), list(approx.values()))[0]
    )


def test_unrelated_scores_look_like_chance_and_equal_ones_do_not():
    exact = scores(0)
    same = agreement(exact, exact, top=[10]).table.set_index("measure")
    other = agreement(exact, scores(2), top=[10]).table.set_index("measure")
    assert (same["value"] == 1).all()
    assert (same["chance_high"] < 0.6).all()
    assert other.loc["top-10 overlap", "chance"] == pytest.approx(10 / len(NAMES), abs=0.05)
    assert (other["value"] <= other["chance_high"]).all()


def test_the_ceiling_is_high_for_steady_effects_and_low_for_noise():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(NAMES), 64, generator=generator)
    steady = torch.tensor(list(scores(0).values()))[:, None]

    def effects(per_example):
        table = pd.DataFrame({"edge": NAMES, "effect": per_example.mean(1).numpy()})
        return EdgeEffects(table, per_example, torch.zeros(64), GRAPH, {})

    def ceiling(per_example):
        found = agreement(effects(per_example), scores(0)).table.set_index("measure")
        return found.loc["rank correlation", "ceiling"]

    assert ceiling(steady + 0.1 * noise) > 0.9
    assert abs(ceiling(noise)) < 0.4


def test_scores_that_do_not_vary_have_no_rank_correlation():
    flat = dict.fromkeys(NAMES, 0.0)
    value = agreement(scores(0), flat)["rank correlation"]
    assert value != value


def test_top_sets_beyond_half_of_the_edges_are_left_out():
    measures = agreement(scores(0), scores(1), top=[5, 23, 24]).table["measure"]
    assert "top-23 overlap" in set(measures)
    assert "top-24 overlap" not in set(measures)


@pytest.mark.parametrize(
    ("exact", "approx", "top", "message"),
    [
        (scores(0), scores(0, 5), [1], "exact and approx score different edges"),
        (scores(0, 2), scores(0, 2), [1], "2 edges cannot be ranked"),
        (scores(0), scores(0), [0], r"top=\[0\] must hold numbers of edges, 1 or more"),
        (3, scores(0), [1], "effects=int is not understood"),
    ],
)
def test_bad_input_is_named(exact, approx, top, message):
    with pytest.raises(InputError, match=message):
        agreement(exact, approx, top)


def test_an_unknown_measure_lists_the_known_ones():
    with pytest.raises(InputError, match="'rank' is not one of"):
        agreement(scores(0), scores(1))["rank"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"edge": ["a"]}), "'edge' and 'effect' are needed"),
        (pd.DataFrame({"edge": ["a", "a"], "effect": [1, 2]}), "'a' more than once"),
        ({"a": float("nan")}, "gives 'a' the score nan: scores must be finite"),
    ],
)
def test_bad_scores_are_named(table, message):
    with pytest.raises(InputError, match=message):
        edge_scores(table)
