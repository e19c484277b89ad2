import pytest
import torch

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention, losses
from mechinterp.minimal_models.symmetric_descent import Descent, descend
from mechinterp.minimal_models.symmetric_landscape import loss_landscape


@pytest.fixture(scope="module")
def sample() -> ChainSample:
    return draw_sample(200, 4, 40, torch.Generator().manual_seed(0))


def test_every_cell_is_the_loss_there(sample: ChainSample):
    table = loss_landscape(sample, (0.0, 2.0), (-1.0, 3.0), alpha=0.2, mu=0.1)
    assert len(table) == 4
    for beta, delta, loss, excess in table.itertuples(index=False):
        mean = losses(SymmetricAttention(beta, delta, 0.2, 0.1), sample).mean().item()
        assert loss == pytest.approx(mean)
        assert excess == pytest.approx(mean - sample.entropy)


def test_without_beta_delta_does_not_matter_and_the_valley_is_where_descent_ends(
    sample: ChainSample,
):
    end = descend(sample, Descent(learning_rate=4.0)).iloc[-1]
    table = loss_landscape(sample, (0.0, float(end["beta"])), (0.0, float(end["delta"])))
    grid = table.pivot(index="beta", columns="delta", values="loss").to_numpy()
    assert grid[0, 0] == pytest.approx(grid[0, 1], abs=1e-14)
    assert grid[1, 1] == pytest.approx(end["loss"])
    assert grid[1, 1] < min(grid[0, 0], grid[1, 0]) - 0.03


def test_an_empty_grid_is_refused(sample: ChainSample):
    with pytest.raises(InputError, match="0 betas and 1 deltas; give at least one of each"):
        loss_landscape(sample, (), (1.0,))
