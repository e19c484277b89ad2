from hypothesis import given
from hypothesis import strategies as st

from mechinterp.config import CheckpointConfig
from mechinterp.schedule import checkpoint_steps


def test_a_schedule_written_out():
    config = CheckpointConfig(save_every=100, save_log=3, save_at=(123,))
    # The early ones are the 1/4, 2/4 and 3/4 powers of 100.
    assert checkpoint_steps(config, 250) == (0, 3, 10, 32, 100, 123, 200, 250)


def test_no_regular_steps_leaves_the_early_ones_spread_over_the_whole_run():
    assert checkpoint_steps(CheckpointConfig(save_every=0, save_log=1), 100) == (0, 10, 100)


def test_a_run_of_no_steps_keeps_its_start():
    assert checkpoint_steps(CheckpointConfig(), 0) == (0,)


@given(st.integers(0, 300), st.integers(0, 12), st.integers(0, 500))
def test_steps_are_ordered_unique_and_inside_the_run(every, log, steps):
    kept = checkpoint_steps(CheckpointConfig(save_every=every, save_log=log), steps)
    assert list(kept) == sorted(set(kept))
    assert kept[0] == 0
    assert kept[-1] == steps
