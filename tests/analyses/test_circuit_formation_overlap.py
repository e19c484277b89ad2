import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from analyses.circuit_formation import stratum
from analyses.formation.gradient_trust import trust
from analyses.formation.overlaps import overlap
from circuits.graph import Circuit, Graph
from circuits.random_circuits import random_circuits

GRAPH = Graph(2, 2)
NAMES = [edge.name for edge in GRAPH.edges]


def _overlap(effects, significant=None, top=10):
    effects = np.asarray(effects, dtype=float)
    marked = np.abs(effects) > 1 if significant is None else significant
    strata = [stratum(name) for name in NAMES]
    return overlap(range(effects.shape[1]), effects, marked, strata, top)


def _top(effects, n):
    order = np.argsort(-np.abs(effects), kind="stable")[:n]
    return Circuit.of(GRAPH, [NAMES[i] for i in order])


def test_jaccard_and_rank_correlation_by_another_route():
    effects = np.random.default_rng(0).normal(size=(len(NAMES), 3))
    table = _overlap(effects)
    assert table[["step_a", "step_b"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    for row in table.to_dict("records"):
        a, b = effects[:, row["step_a"]], effects[:, row["step_b"]]
        assert row["jaccard"] == _top(a, 10).jaccard(_top(b, 10))
        assert row["spearman"] == pytest.approx(spearmanr(np.abs(a), np.abs(b)).statistic)
        assert row["signed_spearman"] == pytest.approx(spearmanr(a, b).statistic)
        first, second = (np.flatnonzero(np.abs(x) > 1) for x in (a, b))
        shared = len(set(first) & set(second)) / len(set(first) | set(second))
        assert row["significant_jaccard"] == shared
        assert (row["size_a"], row["size_b"]) == (len(first), len(second))


@pytest.mark.parametrize(("low", "high", "same"), [
    ("null_low", "null_high", False), ("matched_low", "matched_high", True),
])  # fmt: skip
def test_nulls_are_where_random_circuits_fall(low, high, same):
    rng = np.random.default_rng(1)
    # Edges into the second layer are the stronger ones at both steps.
    late = np.array([1.0 + 2 * edge.reader.layer for edge in GRAPH.edges])[:, None]
    effects = late * (0.5 + rng.random((len(NAMES), 2)))
    row = _overlap(effects, top=14).iloc[0]
    first, second = _top(effects[:, 0], 14), _top(effects[:, 1], 14)
    drawn = np.array(
        [
            a.jaccard(b)
            for a, b in zip(
                random_circuits(first, 600, seed=0, same_layers=same),
                random_circuits(second, 600, seed=1, same_layers=same),
                strict=True,
            )
        ]
    )
    inside = (drawn >= row[low] - 1e-9) & (drawn <= row[high] + 1e-9)
    assert inside.mean() >= 0.93
    assert (drawn > row[low] + 1e-9).mean() <= 0.99  # no wider than it has to be
    assert (drawn < row[high] - 1e-9).mean() <= 0.99


def test_what_layers_alone_give_is_above_the_plain_null_and_inside_the_matched_one():
    rng = np.random.default_rng(2)
    late = np.array([5.0 * (edge.reader.kind == "logits") for edge in GRAPH.edges])[:, None]
    row = _overlap(late + rng.random((len(NAMES), 2)), top=10).iloc[0]
    assert row["jaccard"] > row["null_high"]
    assert row["matched_low"] <= row["jaccard"] <= row["matched_high"]


def test_empty_sets_and_effects_that_do_not_vary_have_no_number():
    row = _overlap(np.zeros((len(NAMES), 2))).iloc[0]
    assert np.isnan(row["spearman"])
    assert np.isnan(row["significant_jaccard"])
    assert np.isnan(row["significant_null_high"])
    assert row["jaccard"] == 1.0  # the same first edges of equal ones


def test_strata_are_those_of_random_circuits():
    by_stratum = {}
    for edge in GRAPH.edges:
        key = (edge.reader.kind, edge.reader.layer, edge.reader.input)
        by_stratum.setdefault(stratum(edge.name), set()).add(key)
    assert all(len(keys) == 1 for keys in by_stratum.values())
    assert len(by_stratum) == len(
        {(e.reader.kind, e.reader.layer, e.reader.input) for e in GRAPH.edges}
    )


def _agreement(values, overlap=1.0, ceiling=0.8):
    return pd.DataFrame(
        {
            "step": range(len(values)),
            "method": "eap",
            "spearman": values,
            "overlap": overlap,
            "spearman_chance": 0.2,
            "spearman_ceiling": ceiling,
            "overlap_chance": 0.2,
            "overlap_ceiling": 1.0,
        }
    )


@pytest.mark.parametrize(
    ("table", "step", "share"),
    [
        (_agreement([0.1, 0.73, 0.5, 0.73, 0.8]), 3, 0.6),  # 0.9 of 0.8 is 0.72
        (_agreement([0.8, 0.8, 0.1]), None, 2 / 3),
        (_agreement([0.8, 0.8], overlap=0.85), None, 0.0),  # the top set has to agree as well
        (_agreement([0.19, 0.21], ceiling=0.1), 1, 0.5),  # above chance, where the ceiling is low
        (_agreement([0.8, np.nan, 0.8]), 2, 2 / 3),
    ],
)
def test_when_gradients_become_trustworthy(table, step, share):
    row = trust(table).iloc[0]
    assert (None if pd.isna(row["step"]) else row["step"]) == step
    assert row["share"] == pytest.approx(share)
    assert "0.9" in row["criterion"]
