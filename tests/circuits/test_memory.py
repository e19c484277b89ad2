"""Memory: flat in the number of edges, within the budget, and nothing kept afterwards."""

import gc

import psutil
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


def test_resident_memory_is_flat_over_fifty_checkpoints():
    """Fifty models traced in one process (TransformerLens#290, nnsight#389)."""
    clean, process = random_tokens(16, 8), psutil.Process()

    def trace(seed):
        model = tiny_model(seed, **CONFIG | {"d_mlp": 512, "dtype": torch.float32})
        edge_effects(model, clean, "kl", ablation="mean", edges=["embed->M0", "M0->logits"])
        return sum(p.numel() * p.element_size() for p in model.parameters())

    for seed in range(10):  # Allocators and caches settle.
        size = trace(seed)
    gc.collect()
    before = process.memory_info().rss
    for seed in range(50):
        trace(seed)
    gc.collect()
    assert size > 400_000
    assert process.memory_info().rss - before < 20 * size  # Keeping them would take 50 of these.
