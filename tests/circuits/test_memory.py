"""Memory: flat in the number of edges, within the budget, and nothing kept afterwards."""

import gc

import pytest
import torch

from circuits import Graph, InputError, edge_effects
from circuits.edge_plan import Plan
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from tests.circuits.models import random_tokens, tiny_model
from tests.circuits.peak_memory import peak_of

CONFIG = {"n_layers": 3, "n_heads": 2, "d_model": 32, "d_head": 16, "d_mlp": 128}


def plan(model, clean, edges, budget=None):
    with undisturbed(model):
        prepared = prepare(model, clean, "kl", ablation="mean", scored=[5, 6])
        return Plan(prepared, edges, None, budget)


def test_peak_memory_is_flat_in_the_number_of_edges():
    model, clean = tiny_model(**CONFIG), random_tokens(64, 8)
    edges = [e for e in Graph.of(model).edges if e.reader.kind == "head"]
    few = [e for e in edges if e.reader.layer == 1]
    peaks = [peak_of(plan(model, clean, chosen).run) for chosen in (few, edges)]
    rows = 8 * 64 * (len(edges) - len(few))  # The result itself grows: one number an example.
    assert len(edges) > 2.5 * len(few)
    assert peaks[1] - rows < 1.15 * peaks[0]


def test_the_budget_is_kept():
    model, clean = tiny_model(**CONFIG), random_tokens(64, 8)
    edges = Graph.of(model).edges

    def compute(budget):
        return edge_effects(model, clean, "kl", ablation="mean", memory_budget=budget)

    roomy = peak_of(lambda: compute(None))
    assert roomy > 6_000_000
    for budget in (4_000_000, 5_500_000):
        tight = peak_of(plan(model, clean, edges, budget).run)
        assert tight < budget
    with pytest.raises(InputError, match=r"memory_budget=500000 bytes is too small.*give at least"):
        compute(500_000)


def test_nothing_is_kept_after_many_traces():
    """Five sweeps leave no tensor behind (nnsight#102, TransformerLens#290)."""
    model, clean = tiny_model(), random_tokens(4, 6)

    def alive():
        gc.collect()
        return sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())

    edge_effects(model, clean, "kl", ablation="zero")
    before = alive()
    for _ in range(5):
        edge_effects(model, clean, "kl", ablation="zero")
    assert alive() <= before
