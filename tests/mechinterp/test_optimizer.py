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


def _walk(config, prepare=lambda model: None, steps=5):
    """Some steps in double precision, so that two routes can be told to agree."""
    model = build_model(SMALL, 11, dtype=torch.float64)
    optimizer = make_optimizer(model, config)
    for step in range(steps):
        set_learning_rate(optimizer, learning_rate(config, step))
        model(torch.arange(8)[None]).square().sum().backward()
        prepare(model)
        optimizer.step()
        optimizer.zero_grad()
    return dict(model.named_parameters())


HEADS = TrainingConfig(
    weight_decay=0.1,
    warmup=3,
    lr_factor=(r"L0H1\.W_[QO]=0.1", r"L1H0\.b_V=0", r"L1H1\.=3", r"mlp=0.5"),
)
FACTORS = {"L0H1.W_Q": 0.1, "L0H1.W_O": 0.1, "L1H0.b_V": 0.0}
FACTORS |= {f"L1H1.{name}": 3.0 for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")}


def test_heads_with_rates_of_their_own_move_as_under_an_optimizer_of_their_own():
    """Every head of every tensor is a leaf of its own here, with AdamW of its own rate."""

    def own(leaf):
        return torch.optim.AdamW([leaf], weight_decay=0.1, fused=True)

    model = build_model(SMALL, 11, dtype=torch.float64)
    optimizer, generator = make_optimizer(model, HEADS), torch.Generator().manual_seed(0)
    leaves, others = {}, {}
    for name, parameter in model.named_parameters():
        layer, matrix = name.split(".")[1], name.split(".")[-1]
        split = ".attn." in name and matrix != "b_O"
        pieces = parameter.detach().clone().unbind() if split else (parameter.detach().clone(),)
        for head, leaf in enumerate(pieces):
            rate = 0.5 if ".mlp." in name else FACTORS.get(f"L{layer}H{head}.{matrix}", 1.0)
            leaves[name, head] = leaf.requires_grad_()
            others[name, head] = own(leaf), rate
    for step in range(6):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            n_leaves = sum(key[0] == name for key in leaves)
            for head in range(n_leaves):
                leaves[name, head].grad = parameter.grad[head] if n_leaves > 1 else parameter.grad
        set_learning_rate(optimizer, learning_rate(HEADS, step))
        optimizer.step()
        for other, rate in others.values():
            other.param_groups[0]["lr"] = rate * learning_rate(HEADS, step)
            other.step()
    found = dict(model.named_parameters())
    for (name, head), leaf in leaves.items():
        mine = found[name] if leaf.shape == found[name].shape else found[name][head]
        torch.testing.assert_close(mine, leaf, rtol=1e-12, atol=1e-14)


def test_a_frozen_head_keeps_its_bits_and_its_neighbours_move_as_without_factors():
    before = dict(build_model(SMALL, 11).named_parameters())
    frozen = dict(_stepped(TrainingConfig(lr_factor=("L0H1=0",)), 3)[0].named_parameters())
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        key = f"blocks.0.attn.{name}"
        assert torch.equal(frozen[key][1], before[key][1])
        assert not torch.equal(frozen[key][0], before[key][0])
    once = dict(_stepped(TrainingConfig(lr_factor=("L0H1=0",)))[0].named_parameters())
    plain = dict(_stepped(TrainingConfig())[0].named_parameters())
    for name, tensor in once.items():
        rest = (tensor[0], plain[name][0]) if ".0.attn.W" in name else (tensor, plain[name])
        if not name.startswith("blocks.0.attn.b_"):
            assert torch.equal(*rest)


def test_scaling_the_gradient_is_no_substitute_for_the_rate():
    """The control: Adam divides a gradient by its own size, so a multiple of it moves as far."""

    def shrink(model):
        model.blocks[0].attn.W_Q.grad[1] *= 0.1

    name = "blocks.0.attn.W_Q"
    plain, shrunk = _walk(TrainingConfig()), _walk(TrainingConfig(), shrink)
    slowed = _walk(TrainingConfig(lr_factor=(r"L0H1\.W_Q=0.1",)))
    start = dict(build_model(SMALL, 11, dtype=torch.float64).named_parameters())[name][1]
    far = (plain[name][1] - start).norm()
    assert (shrunk[name][1] - start).norm() > 0.9 * far
    assert (slowed[name][1] - start).norm() < 0.15 * far


def test_the_first_pattern_decides_whether_it_names_a_head_or_its_tensor():
    head_first = TrainingConfig(lr_factor=(r"L0H1\.W_Q=0", r"attn\.W_Q=0.5"))
    tensor_first = TrainingConfig(lr_factor=(r"attn\.W_[QK]=0", r"L0H1=0.5"))
    before = dict(build_model(SMALL, 11).named_parameters())["blocks.0.attn.W_Q"]
    moved = [
        dict(_stepped(config)[0].named_parameters())["blocks.0.attn.W_Q"] - before
        for config in (head_first, tensor_first)
    ]
    assert [bool(move[head].any()) for move in moved for head in (0, 1)] == [True, False] + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("W_Q", "it has to be PATTERN=FACTOR"),
        ("W_Q=fast", "it has to be PATTERN=FACTOR"),
        ("W_Q=-1", "it has to be PATTERN=FACTOR"),
        ("(=1", "it has to be PATTERN=FACTOR"),
        ("W_X=0.5", "'W_X' decides no parameter's rate; names look like embed.W_E"),
        ("L0H2.W_Q=0.5", "'L0H2.W_Q' decides no .* those of heads like L0H0.W_Q"),
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
