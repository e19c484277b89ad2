"""The same seed on the same machine with the same threads: the same bits; else, nearly."""

import hashlib

import torch

from mechinterp.runs import Run
from tests.faults.children import finish, grow
from tests.faults.state import content

TOLERANCE = 1e-3
"""Largest difference of a weight over the largest of its tensor, and of the loss, after ten steps
with another number of threads. It grows with the steps: training blows rounding up."""


def digest(run) -> str:
    return hashlib.sha256(repr(sorted(content(run).items())).encode()).hexdigest()


def test_the_same_seed_and_threads_give_the_same_hash_twice(grown, tmp_path, count):
    for which in ("lookup", "chains"):
        for again in range(2):
            assert finish(grow, which, tmp_path / f"{which}-{again}") == 0
        digests = {digest(tmp_path / f"{which}-{again}") for again in range(2)}
        assert digests == {digest(grown / which)}
        count("repeats", trained_again=2, with_the_same_hash=2)
    # The control: another run has another hash.
    assert digest(grown / "lookup") != digest(grown / "chains")


def test_another_number_of_threads_gives_nearly_the_same_weights(tmp_path, count):
    for threads in (1, 2):
        assert finish(grow, "wide", tmp_path / str(threads), threads) == 0
    one, two = (Run.open(tmp_path / str(threads)) for threads in (1, 2))
    assert (one.meta["threads"], two.meta["threads"]) == (1, 2)
    last, other, first = one.weights(one.steps[-1]), two.weights(two.steps[-1]), one.weights(0)
    # The gradient of a key bias is 0 but for rounding, which Adam scales up to full steps.
    names = [name for name in last if not name.endswith("attn.b_K")]
    largest = max(relative(other[name], last[name]) for name in names)
    assert largest < TOLERANCE
    # The control: training itself moved the weights far more than that.
    assert relative(last["embed.W_E"], first["embed.W_E"]) > 30 * TOLERANCE
    losses = [run.metrics()["train_loss"].iloc[-1] for run in (one, two)]
    assert abs(losses[0] / losses[1] - 1) < TOLERANCE
    count("repeats", with_other_threads_within_tolerance=1)


def relative(given: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference over the largest value."""
    return ((given - other).abs().max() / other.abs().max()).item()
