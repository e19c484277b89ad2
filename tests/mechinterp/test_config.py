import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.errors import InputError
from mechinterp.config import (
    MARKOV_MODEL,
    MARKOV_TRAINING,
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
    from_json,
    to_json,
    validate,
)

MARGINALS = RunConfig(MarginalsConfig())


@pytest.mark.parametrize(
    "config",
    [
        MARGINALS,
        RunConfig(MarkovChainsConfig(k="inf"), MARKOV_MODEL, MARKOV_TRAINING),
        RunConfig(
            MarginalsConfig(k=5, variant="az_to_b"),
            ModelConfig(d_head=7, d_mlp=9),
            TrainingConfig(clip=1.0, lr_factor=("W_Q=0.1", "W_K=0.3")),
            CheckpointConfig(save_at=(1, 5)),
        ),
    ],
)
def test_a_configuration_survives_json(config):
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def _altered(section, name, value):
    body = to_json(MARGINALS)
    body[section] = {**body[section], name: value}
    return body


@pytest.mark.parametrize(
    ("section", "name", "value", "wording"),
    [
        ("task", "k", "many", r"config\.task\.k is 'many'; it has to be int"),
        ("task", "k", True, r"config\.task\.k is 'True'"),
        ("task", "name", "copying", "allowed: marginals, markov_chains"),
        ("task", "variant", "z_to_b", "bz_to_a"),
        ("model", "n_layers", 1.5, "it has to be int"),
        ("training", "lr", float("nan"), r"config\.training\.lr is 'nan'"),
        ("training", "speed", 1, r"unknown fields \['speed'\]"),
        ("checkpoints", "save_at", [1.5], "it has to be int"),
    ],
)
def test_a_foreign_value_in_json_is_named(section, name, value, wording):
    with pytest.raises(InputError, match=wording):
        from_json(_altered(section, name, value))


def test_a_missing_field_is_named():
    body = to_json(MARGINALS)
    del body["model"]["d_model"]
    with pytest.raises(InputError, match=r"config\.model lacks \['d_model'\]"):
        from_json(body)
    with pytest.raises(InputError, match="it has to be a JSON object"):
        from_json([])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["task", "model", "training", "name", "k"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_either_a_configuration_or_refused_in_words(body):
    with pytest.raises(InputError):
        from_json(body)


@pytest.mark.parametrize(
    ("section", "changes", "wording"),
    [
        ("model", {"n_layers": 0}, "n_layers is 0; it has to be at least 1"),
        ("model", {"d_model": 130}, "d_model 130 is not a multiple of n_heads 4"),
        ("model", {"init_seed": -1}, "init_seed is -1"),
        ("training", {"steps": -5}, "steps is -5; it has to be at least 0"),
        ("training", {"lr": -0.1}, r"lr is -0\.1; it has to be in \[0, inf\)"),
        ("training", {"beta2": 1.0}, r"beta2 is 1\.0; it has to be in \[0, 1\)"),
        ("training", {"batch": 0}, "batch is 0"),
        ("training", {"clip": float("nan")}, "clip is nan"),
        ("checkpoints", {"save_at": (9000,)}, r"each has to lie in 0\.\.8000"),
        ("checkpoints", {"save_every": -1}, "save_every is -1"),
    ],
)
def test_numbers_out_of_range_are_refused(section, changes, wording):
    part = dataclasses.replace(getattr(MARGINALS, section), **changes)
    with pytest.raises(InputError, match=wording):
        validate(dataclasses.replace(MARGINALS, **{section: part}))


def test_defaults_are_allowed():
    validate(MARGINALS)
    validate(RunConfig(MarkovChainsConfig(), MARKOV_MODEL, MARKOV_TRAINING))
