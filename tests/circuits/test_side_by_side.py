"""Pieces on several threads: the same numbers, one error out, and torch as it was."""

import threading

import pytest
import torch

from circuits.edge_ablation import edge_effects
from circuits.side_by_side import side_by_side
from tests.circuits.models import random_tokens, tiny_model


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_piece_is_worked_on_once(workers):
    seen = []
    side_by_side(seen.append, iter(range(40)), workers)
    assert sorted(seen) == list(range(40))


def test_workers_meet_only_if_they_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=20)
    side_by_side(lambda _: meeting.wait(), range(2), 2)
    with pytest.raises(threading.BrokenBarrierError):
        side_by_side(lambda _: threading.Barrier(2, timeout=0.05).wait(), range(2), 1)


def test_torch_has_one_thread_and_no_gradients_inside():
    found = []
    weight = torch.ones(1, requires_grad=True)
    side_by_side(
        lambda _: found.append((torch.get_num_threads(), (weight * 2).requires_grad)), range(4), 2
    )
    assert found == [(1, False)] * 4


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_comes_out_and_pieces_not_begun_are_left(error):
    begun = []

    def work(piece):
        begun.append(piece)
        if piece == 3:
            raise error

    with pytest.raises(type(error)):
        side_by_side(work, iter(range(1000)), 2)
    assert len(begun) < 20


@pytest.mark.parametrize("ablation", ["zero", "mean", "resample"])
def test_effects_do_not_depend_on_the_number_of_threads(ablation):
    model, tokens = tiny_model(scale=0.3), random_tokens(40, 7)
    several = edge_effects(model, tokens, "kl", ablation, scored=[3, 5])
    torch.set_num_threads(1)
    one = edge_effects(model, tokens, "kl", ablation, scored=[3, 5])
    torch.set_num_threads(2)
    assert one.per_example.abs().max() > 1e-3
    assert torch.equal(one.per_example, several.per_example)


def test_a_metric_is_never_called_twice_at_once():
    model, tokens = tiny_model(scale=0.3), random_tokens(40, 7)
    inside = threading.Lock()

    def metric(logits):
        assert inside.acquire(blocking=False)
        value = logits[:, -1, 0].clone()
        inside.release()
        return value

    assert len(edge_effects(model, tokens, metric, "zero").table) > 10
