import numpy as np

from analyses.waiting.crossings import first_below, held_below, redrawn, shifted

STEPS = np.arange(0.0, 200.0, 10.0)


def _line(dip=None):
    """Falls from 10 to 0.5 by 0.05 a step, with one row pulled down to 0 if asked for."""
    values = 10 - 0.05 * STEPS
    if dip is not None:
        values[dip] = 0.0
    return values[None]


def test_one_noisy_row_is_the_first_but_not_the_one_that_holds():
    assert first_below(STEPS, _line(), 5.0).tolist() == [110]
    assert held_below(STEPS, _line(), 5.0).tolist() == [100]
    assert first_below(STEPS, _line(dip=3), 5.0).tolist() == [30]
    assert held_below(STEPS, _line(dip=3), 5.0).tolist() == [100]


def test_a_held_crossing_lies_on_the_line_between_its_rows():
    for threshold in (9.8, 7.13, 3.01):
        by_hand = np.interp(-threshold, -_line()[0], STEPS)
        np.testing.assert_allclose(held_below(STEPS, _line(), threshold), by_hand)
    assert held_below(STEPS, _line(), 7.13, interpolate=False).tolist() == [60]


def test_never_is_infinite():
    assert np.isinf(first_below(STEPS, _line(), 0.1)).all()
    assert np.isinf(held_below(STEPS, _line(), 0.1)).all()


def test_a_given_hold_has_to_fit_into_the_series():
    # 6 is crossed at 80 and the last row is 190: 110 steps can be seen to hold, 120 cannot.
    assert held_below(STEPS, _line(), 6.0, 100.0, interpolate=False).tolist() == [90]
    assert np.isinf(held_below(STEPS, _line(), 6.0, 110.0)).all()


def test_the_last_row_alone_does_not_hold():
    values = np.full((1, len(STEPS)), 10.0)
    values[0, -1] = 0.0
    assert np.isinf(held_below(STEPS, values, 5.0)).all()
    values[0, -2] = 0.0
    assert held_below(STEPS, values, 5.0).tolist() == [175]


def test_a_series_that_starts_below_is_below_from_its_first_step():
    assert held_below(STEPS, _line(), 20.0).tolist() == [0]


def test_a_shifted_series_keeps_its_shape_and_a_redrawn_one_does_not():
    se = np.full(len(STEPS), 0.5)
    moved = shifted(_line()[0], se)
    np.testing.assert_array_equal(moved[20], _line()[0])
    np.testing.assert_allclose(moved[-1] - moved[0], 2 * 1.959964 * 0.5)
    fresh = redrawn(_line()[0], se, 4000, seed=0)
    np.testing.assert_allclose(fresh.std(0), 0.5, rtol=0.1)
    assert abs(np.corrcoef(fresh[:, 0], fresh[:, 1])[0, 1]) < 0.1
