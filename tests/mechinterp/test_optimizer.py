import math

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import ModelConfig, TrainingConfig
from mechinterp.model import build_model
from mechinterp.optimizer import (
    learning_rate,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    set_learning_rate,
)

SMALL = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=8)


def _stepped(config, steps=1):
    model = build_model(SMALL, 11)
    optimizer = make_optimizer(model, config)
    for step in range(steps):
        set_learning_rate(optimizer, learning_rate(config, step))
        model(torch.arange(8)[None]).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_a_factor_scales_the_first_update_of_its_parameters_alone():
    before = dict(build_model(SMALL, 11).named_parameters())
    config = TrainingConfig(weight_decay=0.0, lr_factor=(r"blocks\.0\.attn\.W_[QK]=0.1",))
    slowed, plain = _stepped(config)[0], _stepped(TrainingConfig(weight_decay=0.0))[0]
    for (name, a), b in zip(slowed.named_parameters(), plain.parameters(), strict=True):
        ratio = 0.1 if name in ("blocks.0.attn.W_Q", "blocks.0.attn.W_K") else 1.0
        moved, full = (a - before[name]).abs().sum(), (b - before[name]).abs().sum()
        torch.testing.assert_close(moved, ratio * full, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("W_Q", "it has to be PATTERN=FACTOR"),
        ("W_Q=fast", "it has to be PATTERN=FACTOR"),
        ("W_Q=-1", "it has to be PATTERN=FACTOR"),
        ("(=1", "it has to be PATTERN=FACTOR"),
        ("W_X=0.5", "'W_X' decides no parameter's rate; names look like embed.W_E"),
    ],
)
def test_a_factor_that_means_nothing_is_refused(text, wording):
    with pytest.raises(InputError, match=wording):
        make_optimizer(build_model(SMALL, 11), TrainingConfig(lr_factor=(text,)))


def test_warm_up_then_cosine_written_out():
    config = TrainingConfig(lr=1.0, lr_schedule="cosine", warmup=2, steps=6)
    rates = [learning_rate(config, step) for step in range(6)]
    half = math.sqrt(0.5) / 2
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.5 + half, 0.5, 0.5 - half])
    assert learning_rate(TrainingConfig(lr=0.3), 7999) == 0.3


def test_the_optimizer_continues_bit_for_bit_from_its_stored_state():
    config = TrainingConfig()
    model, optimizer = _stepped(config, steps=3)
    state = {name: tensor.clone() for name, tensor in optimizer_state(model, optimizer).items()}
    twin, fresh = build_model(SMALL, 11), None
    twin.load_state_dict(model.state_dict())
    fresh = make_optimizer(twin, config)
    restore_optimizer(twin, fresh, state)
    for m, o in ((model, optimizer), (twin, fresh)):
        m(torch.arange(8)[None]).square().sum().backward()
        o.step()
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )


def test_an_incomplete_state_is_refused():
    model, optimizer = _stepped(TrainingConfig())
    state = optimizer_state(model, optimizer)
    del state["exp_avg/embed.W_E"]
    with pytest.raises(InputError, match=r"lacks exp_avg/embed\.W_E"):
        restore_optimizer(model, optimizer, state)
