import numpy as np
import pandas as pd
import pytest

from analyses.laws.power import lack_of_fit, line, power_law
from analyses.laws.resamples import seed_resamples
from circuits.errors import InputError

X = (100, 200, 400, 800)


def planted(exponent=1.2, seeds=3, noise=0.1, crossed=True, seed=0, by_seed=0.0):
    """Times 3 x^exponent with log-normal noise; seeds may differ in their exponent as well."""
    generator = np.random.default_rng(seed)
    own = by_seed * generator.standard_normal(seeds)
    rows = []
    for at, x in enumerate(X):
        for s in range(seeds):
            log_time = np.log(3) + exponent * np.log(x) + own[s] * np.log(x / 283)
            log_time += noise * generator.normal()
            name = f"seed {s}" if crossed else f"seed {at * seeds + s}"
            rows.append({"x": float(x), "time": np.exp(log_time), "seed": name})
    return pd.DataFrame(rows)


def test_an_exact_law_is_found_exactly():
    found = power_law(planted(1.2, noise=0.0), exponent=1.2)
    assert found["exponent"] == pytest.approx(1.2)
    assert found["amplitude"] == pytest.approx(3.0)
    assert found["agrees"]
    assert found["r2"] == pytest.approx(1.0)
    assert power_law(planted(1.2, noise=0.0), exponent=1.0)["agrees"] is False


def test_weighted_lines_are_those_of_repeated_points():
    generator = np.random.default_rng(0)
    x, y = generator.random(8), generator.random(8)
    counts = generator.multinomial(8, np.full(8, 1 / 8), size=5)
    slopes, starts = line(x, y, counts.astype(float))
    for slope, start, count in zip(slopes, starts, counts, strict=True):
        expected = np.polyfit(np.repeat(x, count), np.repeat(y, count), 1)
        np.testing.assert_allclose([slope, start], expected)


def _coverage(n=100, **options):
    inside = []
    for seed in range(n):
        found = power_law(planted(1.2, seed=seed, **options), n_resamples=300)
        inside.append(found["low"] <= 1.2 <= found["high"])
    return np.mean(inside)


@pytest.mark.parametrize("crossed", [True, False])
def test_the_interval_holds_the_planted_exponent_as_often_as_it_says(crossed):
    # 100 draws at 95 % scatter by 2.2 points.
    assert _coverage(crossed=crossed) >= 0.89


def test_seeds_that_differ_in_their_exponent_are_drawn_whole():
    assert _coverage(by_seed=0.2, noise=0.02) >= 0.88
    # Points resampled as if they were independent, as the paper does, say far too much.
    inside = []
    for seed in range(100):
        found = power_law(planted(1.2, seed=seed, by_seed=0.2, noise=0.02), n_resamples=200)
        inside.append(found["points_low"] <= 1.2 <= found["points_high"])
    assert np.mean(inside) < 0.85


def test_one_run_for_each_x_has_no_interval_over_seeds():
    found = power_law(planted(seeds=1), exponent=1.2)
    assert found["design"] == "single"
    assert np.isnan(found["low"])
    assert found["agrees"] is None
    assert found["points_low"] < found["exponent"] < found["points_high"]


def test_designs_are_told_apart():
    assert seed_resamples(planted(), 10).design == "crossed"
    assert seed_resamples(planted(crossed=False), 10).design == "nested"
    gone = planted().drop(index=[0])  # one seed lacks one x
    resampled = seed_resamples(gone, 50)
    assert resampled.design == "nested"
    at = np.flatnonzero(gone["x"] == 200)
    assert (resampled.weights[:, at].sum(1) == 3).all()


PAPER_K = (3, 5, 7, 10, 13, 15, 17, 20, 25, 30, 36)
PAPER_TAU = (450, 800, 1050, 1850, 2100, 2600, 3300, 3950, 5250, 6950, 8750)


def test_the_papers_own_table_gives_the_papers_exponent():
    runs = pd.DataFrame({"x": PAPER_K, "time": PAPER_TAU, "seed": "42"}).astype({"x": float})
    found = power_law(runs, exponent=1.0)
    assert found["exponent"] == pytest.approx(1.194, abs=1e-3)
    assert found["points_low"] == pytest.approx(1.137, abs=0.01)
    assert found["points_high"] == pytest.approx(1.308, abs=0.02)


def test_a_curve_that_is_no_power_law_is_noticed():
    bent = planted(noise=0.02)
    bent["time"] *= np.exp(0.3 * np.log(bent["x"] / 300) ** 2)
    assert power_law(bent)["lack_of_fit_p"] < 1e-3
    p_values = [power_law(planted(seed=s), n_resamples=100)["lack_of_fit_p"] for s in range(40)]
    assert 0.3 < np.mean(p_values) < 0.7


def test_lack_of_fit_by_hand():
    x, y = np.array([0.0, 0, 1, 1, 2, 2]), np.array([0.0, 1, 2, 3, 0, 1])
    slope, start = np.polyfit(x, y, 1)
    # Means 0.5, 2.5, 0.5 about their line at 7/6: 2 (4 + 16 + 4) / 9 between, 1.5 within.
    from scipy.stats import f

    expected = f.sf((16 / 3) / 1 / (1.5 / 3), 1, 3)
    assert lack_of_fit(x, y, y - start - slope * x) == pytest.approx(expected)


def test_what_is_refused():
    with pytest.raises(InputError, match=r"power law needs runs at 3 or more different x, but 2"):
        power_law(planted().query("x < 300"))
    with pytest.raises(InputError, match=r"time holds inf; a power law needs positive finite"):
        power_law(planted().assign(time=np.inf))
