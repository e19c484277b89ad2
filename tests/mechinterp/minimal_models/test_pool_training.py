import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.encode_pool_decode import EncodePoolDecode
from mechinterp.minimal_models.pool_capacity import measured
from mechinterp.minimal_models.pool_training import PoolTraining, TrainedPool, train_pool

QUICK = PoolTraining(steps=800, batch=64, positions=8)


def trained(k: int, d_task: int, training: PoolTraining = QUICK) -> dict[str, float | bool]:
    task = MarkovChainsConfig(n_states=4, k=k, length=48)
    model = EncodePoolDecode(4, d_task, d_hidden=64, d_encoder=64)
    return measured(train_pool(model, task, training, torch.Generator().manual_seed(0)), task, 128)


def test_it_becomes_two_mem_for_few_chains_and_one_number_is_too_narrow_a_task_vector():
    wide, narrow = trained(8, 8), trained(8, 1)
    assert wide["kl_two_mem"] < 0.05
    assert wide["kl_two_mem"] < 0.4 * wide["kl_two_gen"] < 0.4 * wide["kl_one_gen"]
    assert wide["kl_truth"] < 0.08
    assert wide["memorised"]
    assert narrow["kl_two_mem"] > 2.5 * wide["kl_two_mem"]
    assert not narrow["memorised"]
    # What was memorised is of no use on new chains.
    assert wide["kl_truth_new"] > 4 * wide["kl_truth"]
    assert not wide["generalises"]


def test_training_is_a_function_of_the_seed_and_leaves_the_generator_alone():
    task = MarkovChainsConfig(n_states=3, k=2, length=12)
    model = EncodePoolDecode(3, 2, d_hidden=8, d_encoder=8)
    short = PoolTraining(steps=40, batch=4, positions=3)
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    first, second = (train_pool(model, task, short, generator) for _ in range(2))
    other = train_pool(model, task, short, torch.Generator().manual_seed(4))
    assert torch.equal(generator.get_state(), state)
    assert torch.equal(first.losses, second.losses)
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert not torch.equal(first.losses, other.losses)


def test_first_loss_is_that_of_knowing_nothing():
    task = MarkovChainsConfig(n_states=3, k="inf", length=12)
    model = EncodePoolDecode(3, 4, d_hidden=32, d_encoder=16)
    training = PoolTraining(steps=1, batch=256, positions=8)
    first = train_pool(model, task, training, torch.Generator().manual_seed(0)).losses[0].item()
    assert first == pytest.approx(torch.tensor(3.0).log().item(), abs=0.15)


def test_late_gain_by_hand():
    losses = torch.tensor([9.0, 8.0, 5.0, 3.0, 2.5, 1.5, 1.0, 0.0])
    assert TrainedPool({}, losses).late_gain == pytest.approx(2.0 - 0.5)


def test_errors_say_what_is_allowed():
    with pytest.raises(
        InputError, match="model has n_states 5 and the task 4; they have to be equal"
    ):
        train_pool(
            EncodePoolDecode(5), MarkovChainsConfig(n_states=4, k=2), QUICK, torch.Generator()
        )
    with pytest.raises(InputError, match="lr is 0; it has to be positive"):
        PoolTraining(lr=0.0)
    with pytest.raises(InputError, match="positions is 0; it has to be at least 1"):
        PoolTraining(positions=0)
