import random
import warnings

import numpy as np
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.errors import InputError
from mechinterp.config import MARKOV_MODEL, ModelConfig
from mechinterp.model import build_model, load_weights, weights_of

SMALL = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=8)


def test_the_paper_model_has_its_parameter_count():
    model = build_model(ModelConfig(), 40)
    assert sum(p.numel() for p in model.parameters()) == 807_720


def test_initial_weights_are_those_of_transformer_lens_at_the_same_seed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        direct = HookedTransformer(
            HookedTransformerConfig(
                n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=64, act_fn="gelu",
                normalization_type="LN", n_ctx=8, d_vocab=11, seed=42, device="cpu",
            )
        )  # fmt: skip
    for name, tensor in weights_of(build_model(SMALL, 11)).items():
        assert torch.equal(tensor, direct.state_dict()[name]), name


def test_building_leaves_every_global_generator_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    build_model(SMALL, 11)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert before[2] == random.getstate()


def test_another_seed_gives_other_weights():
    other = build_model(ModelConfig(**{**SMALL.__dict__, "init_seed": 43}), 11)
    assert not torch.equal(other.W_E, build_model(SMALL, 11).W_E)


@pytest.mark.parametrize("config", [SMALL, MARKOV_MODEL])
def test_weights_hold_no_constant_buffers_and_survive_a_round_trip(config):
    model = build_model(config, 11).eval()
    weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    assert not [n for n in weights if n.endswith(("mask", "IGNORE", "rotary_sin", "rotary_cos"))]
    assert set(weights) == {name for name, _ in model.named_parameters()}
    tokens = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))
    logits = model(tokens)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert not torch.equal(model(tokens), logits)
    assert torch.equal(load_weights(model, weights)(tokens), logits)


@pytest.mark.parametrize("seed", range(5))
def test_initial_weights_are_finite(seed):
    model = build_model(ModelConfig(**{**SMALL.__dict__, "init_seed": seed}), 11)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_weights_that_do_not_fit_are_refused_by_name():
    model = build_model(SMALL, 11)
    weights = dict(weights_of(model))
    weights["head.weight"] = weights.pop("embed.W_E")
    with pytest.raises(InputError, match=r"missing embed\.W_E; unexpected head\.weight"):
        load_weights(model, weights)
    weights = dict(weights_of(model)) | {"embed.W_E": torch.zeros(12, 16)}
    with pytest.raises(InputError, match=r"embed\.W_E is \(12, 16\), the model needs \(11, 16\)"):
        load_weights(model, weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused_and_nothing_is_changed(value):
    model = build_model(SMALL, 11)
    before = model.W_U.clone()
    weights = {name: tensor + 1 for name, tensor in weights_of(model).items()}
    weights["embed.W_E"][0, 0] = value
    with pytest.raises(InputError, match=r"embed\.W_E holds NaN or infinite values"):
        load_weights(model, weights)
    assert torch.equal(model.W_U, before)


def test_an_impossible_architecture_is_an_input_error():
    with pytest.raises(InputError, match="the model configuration is not possible"):
        build_model(ModelConfig(**{**SMALL.__dict__, "act_fn": "sine"}), 11)
