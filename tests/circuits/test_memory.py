"""Memory: flat in the number of edges, within the budget, and nothing kept afterwards."""

import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from circuits import Graph, InputError, edge_effects
from circuits.edge_plan import Plan
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from tests.circuits.models import random_tokens, tiny_model

CONFIG = {"n_layers": 3, "n_heads": 2, "d_model": 32, "d_head": 16, "d_mlp": 128}


class Peak(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, made while the mode is on."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key = storage._cdata
        if key in self.seen:
            return
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        self.seen[key] = weakref.finalize(storage, self._free, key, size)

    def _free(self, key, size):
        self.now -= size
        self.seen.pop(key, None)


def peak_of(function):
    with Peak() as meter:
        function()
    return meter.peak


def plan(model, clean, edges, budget=None):
    with undisturbed(model):
        prepared = prepare(model, clean, "kl", ablation="mean", scored=[5, 6])
        return Plan(prepared, edges, None, budget)


def test_peak_memory_is_flat_in_the_number_of_edges():
    model, clean = tiny_model(**CONFIG), random_tokens(64, 8)
    edges = [e for e in Graph.of(model).edges if e.reader.kind == "head"]
    few = [e for e in edges if e.reader.layer == 1 and e.source.name in ("embed", "L0H0")]
    peaks = [peak_of(plan(model, clean, chosen).run) for chosen in (few, edges)]
    rows = 8 * 64 * (len(edges) - len(few))  # The result itself grows: one number an example.
    assert len(edges) > 5 * len(few)
    assert peaks[1] - rows < 1.35 * peaks[0]


def test_the_budget_is_kept():
    model, clean = tiny_model(**CONFIG), random_tokens(64, 8)
    edges = Graph.of(model).edges

    def compute(budget):
        return edge_effects(model, clean, "kl", ablation="mean", memory_budget=budget)

    roomy = peak_of(lambda: compute(None))
    assert roomy > 6_000_000
    for budget in (3_500_000, 5_000_000):
        tight = peak_of(plan(model, clean, edges, budget).run)
        assert tight < budget
    with pytest.raises(InputError, match=r"memory_budget=500000 bytes is too small.*give at least"):
        compute(500_000)


def test_nothing_is_kept_after_many_traces():
    """Five sweeps leave no tensor behind (nnsight#102, TransformerLens#290)."""
    model, clean = tiny_model(), random_tokens(4, 6)

    def alive():
        gc.collect()
        return sum(isinstance(x, torch.Tensor) for x in gc.get_objects())

    edge_effects(model, clean, "kl", ablation="zero")
    before = alive()
    for _ in range(5):
        edge_effects(model, clean, "kl", ablation="zero")
    assert alive() <= before
