"""Training killed at random moments: readable, nothing lost, and the same bits in the end."""

import random
import time

import pytest

from tests.faults.children import SMALL, finish, grow, kill_after
from tests.faults.state import Toll, content, repair, strays

KILLS = 60
"""For each of the two tasks."""


@pytest.mark.parametrize("which", SMALL)
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    which, grown, tmp_path, capsys, count
):
    whole = content(grown / which)
    chance = random.Random(f"training {which}")
    toll, removed = Toll(), 0
    began = time.monotonic()
    assert finish(grow, which, tmp_path / "timed" / which) == 0
    duration = time.monotonic() - began  # A busy machine takes longer.
    while toll.kills < KILLS:
        folder = tmp_path / str(len(toll.steps))
        path, killed = folder / which, True
        while killed and toll.kills < KILLS:
            killed = kill_after(duration * chance.uniform(0.03, 0.7), grow, which, path)
            toll.kills += killed
            toll.look(path)
            if chance.random() < 0.3:
                removed += repair(folder, capsys)
        assert not killed or finish(grow, which, path) == 0
        toll.look(path)
        assert content(path) == whole
        toll.identical += 1
        removed += repair(folder, capsys)
    left = len(strays(tmp_path))
    count("kills", **toll.numbers(), stray_files_after_repair=left, in_training=toll.kills)
    assert (toll.unreadable, toll.lost, left) == (0, 0, 0)
    assert toll.identical == len(toll.steps) > 1
    assert removed > 0  # The kills did leave something behind.
