import pytest
import torch

from circuits import InputError
from circuits.intervals import mean_interval


def test_mean_and_interval_by_resampling_one_by_one():
    values = torch.randn(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mean, low, high = mean_interval(values, seed=5)
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randint(40, (40, 2000), generator=generator)
    means = torch.stack([values[:, drawn[:, i]].mean(-1) for i in range(2000)], dim=-1)
    torch.testing.assert_close(mean, values.mean(-1))
    torch.testing.assert_close(low, means.quantile(0.025, dim=-1))
    torch.testing.assert_close(high, means.quantile(0.975, dim=-1))


def test_wider_level_wider_interval():
    values = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    _, low, high = mean_interval(values, level=0.95)
    _, lower, higher = mean_interval(values, level=0.99)
    assert lower < low < high < higher


def test_the_interval_of_a_normal_mean_is_about_two_standard_errors_each_way():
    values = torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    _, low, high = mean_interval(values)
    assert ((high - low) / (2 * 1.96 * values.std() / 20)).item() == pytest.approx(1, abs=0.08)


def test_coverage_on_200_resampled_batches():
    """The 95 % interval holds the full-data value 90-98 % of the time, for skewed values too."""
    generator = torch.Generator().manual_seed(0)
    population = torch.randn(20000, dtype=torch.float64, generator=generator).exp()
    batches = torch.stack(
        [population[torch.randint(20000, (128,), generator=generator)] for _ in range(200)]
    )
    _, low, high = mean_interval(batches)
    covered = ((low <= population.mean()) & (population.mean() <= high)).double().mean()
    assert 0.90 <= covered <= 0.98


def test_control_a_shifted_value_is_not_covered():
    generator = torch.Generator().manual_seed(0)
    batches = torch.randn(200, 128, dtype=torch.float64, generator=generator)
    _, low, high = mean_interval(batches)
    assert ((low <= 0.3) & (high >= 0.3)).double().mean() < 0.3


def test_one_example_has_no_interval():
    mean, low, high = mean_interval(torch.tensor([2.0]))
    assert mean == 2.0
    assert low.isnan()
    assert high.isnan()


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    mean_interval(torch.rand(3, 8, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(before, torch.get_rng_state())


def test_bad_input():
    with pytest.raises(InputError, match="no examples"):
        mean_interval(torch.zeros(3, 0))
    with pytest.raises(InputError, match="between 0 and 1"):
        mean_interval(torch.zeros(3), level=95.0)
