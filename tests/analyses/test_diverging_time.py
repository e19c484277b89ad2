import numpy as np
import pandas as pd
import pytest

from analyses.laws.divergence import diverging_time, scan
from analyses.laws.power import power_law
from circuits.errors import InputError

K = np.array([8.0, 16, 32, 64, 80, 90])


def planted(critical=100.0, gamma=2.0, noise=0.0, seeds=1, seed=0):
    generator = np.random.default_rng(seed)
    rows = [
        {"x": k, "time": 5e5 * (critical - k) ** -gamma * np.exp(noise * generator.normal()),
         "seed": f"{s}"}
        for k in K
        for s in range(seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_a_planted_divergence_is_found(gamma):
    found = diverging_time(planted(gamma=gamma), 100)
    assert found["critical"] == pytest.approx(100, rel=0.01)
    assert found["gamma"] == pytest.approx(gamma, rel=0.05)
    assert found["critical_low"] <= found["critical"] <= found["critical_high"]
    assert found["bounded"]
    assert found["delta_aic"] > 2


def test_intervals_hold_what_was_planted_under_noise():
    held = []
    for seed in range(10):
        found = diverging_time(planted(noise=0.1, seeds=3, seed=seed), 100, seed)
        assert found["design"] == "crossed"
        held.append(
            (
                found["critical_low"] <= 100 <= found["critical_high"],
                found["gamma_low"] <= 2 <= found["gamma_high"],
                found["gamma_seeds_low"] <= 2 <= found["gamma_seeds_high"],
            )
        )
    assert (np.mean(held, axis=0) >= 0.8).all()


def test_a_power_law_has_no_finite_critical_point():
    law = pd.DataFrame({"x": K, "time": 3 * K**1.1, "seed": "0"})
    law["time"] *= np.exp(0.05 * np.random.default_rng(0).standard_normal(len(K)))
    found = diverging_time(law, 100)
    assert found["delta_aic"] < -2
    assert found["rms"] > found["power_rms"]


def test_the_rival_is_the_power_law_of_the_other_fit():
    points = planted(noise=0.1)
    assert diverging_time(points, 100)["power_rms"] == pytest.approx(
        power_law(points, n_resamples=100)["rms"]
    )


def test_the_scan_is_least_squares_at_every_critical_point():
    points = planted(noise=0.2)
    y = np.log(points["time"].to_numpy())
    squares, gammas, starts = scan(K, y, np.array([95.0, 200.0]), np.ones((1, len(K))))
    for at, critical in enumerate((95.0, 200.0)):
        (slope, start), residual, *_ = np.polyfit(-np.log(critical - K), y, 1, full=True)
        np.testing.assert_allclose(
            [gammas[at, 0], starts[at, 0], squares[at, 0]], [slope, start, residual[0]]
        )


def test_few_points_are_refused():
    with pytest.raises(InputError, match=r"diverging time needs runs at 4 or more .* but 3"):
        diverging_time(planted().head(3))
