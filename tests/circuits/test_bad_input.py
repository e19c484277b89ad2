"""One clear exception for each mistake, naming the argument; nothing is ignored silently."""

import warnings

import pytest
import torch
from transformer_lens import HookedEncoder, HookedTransformerConfig

from circuits import Circuit, Graph, InputError
from circuits import edge_effects as checked_edge_effects
from tests.circuits.models import random_tokens, tiny_model

# Without the axis checks that only run in tests, as users meet it.
edge_effects = checked_edge_effects.__wrapped__
CLEAN, CORRUPT = random_tokens(3, 6), random_tokens(3, 6, seed=2)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.mark.parametrize(
    ("clean", "message"),
    [
        ([[1, 2]], "clean is list"),
        (CLEAN.double(), "clean has dtype torch.float64: token ids must be integers"),
        (CLEAN > 3, "clean has dtype torch.bool"),
        (CLEAN.to(torch.uint8), r"clean has dtype torch.uint8, .* use .long\(\)"),
        (CLEAN[0], r"clean has shape \(6,\): give a tensor 'batch pos'"),
        (CLEAN[:0], "clean is empty"),
        (CLEAN + 9, "clean holds token id [0-9]+: ids must lie in 0..10"),
        (CLEAN - 20, "clean holds token id -[0-9]+"),
        (CLEAN.to("meta"), "clean is on meta but the model is on cpu"),
        (random_tokens(3, 12), "clean needs 12 positions but the model's n_ctx is 9"),
    ],
)
def test_bad_batches(model, clean, message):
    with pytest.raises(InputError, match=message):
        edge_effects(model, clean, "kl", ablation="zero")


def test_a_long_batch_is_fine_where_only_early_positions_are_scored(model):
    result = edge_effects(model, random_tokens(3, 12), "loss", ablation="zero", scored=[4])
    assert len(result.table) == 46


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "ablation='patch' needs corrupt="),
        ({"corrupt": CORRUPT[:2]}, r"corrupt has shape \(2, 6\) but clean has \(3, 6\)"),
        ({"corrupt": CORRUPT.float()}, "corrupt has dtype torch.float32"),
        ({"corrupt": CLEAN}, "corrupt equals clean in the 6 positions that matter"),
        ({"corrupt": CORRUPT, "ablation": "mean"}, "corrupt is given but ablation='mean'"),
        ({"ablation": "means"}, "ablation='means' is not known; near matches: mean"),
        ({"ablation": "resample", "clean": CLEAN[:1]}, "finds no partner for example 0"),
        ({"corrupt": CORRUPT, "metric": "kld"}, "metric='kld' is not known; near matches: kl"),
        ({"corrupt": CORRUPT, "edges": ["embed->L0H0"]}, r"near matches: embed->L0H0\.v"),
        ({"corrupt": CORRUPT, "edges": []}, "edges is empty"),
        ({"corrupt": CORRUPT, "scored": [6]}, "scored holds 6"),
        ({"corrupt": CORRUPT, "positions": [6]}, r"positions\['6'\]=\[6\] must hold positions in"),
        ({"corrupt": CORRUPT, "positions": {"z": []}}, r"positions\['z'\]"),
        ({"corrupt": CORRUPT, "positions": []}, "positions is empty"),
        ({"corrupt": CORRUPT, "positions": 3}, "positions=3: give a mapping"),
        ({"corrupt": CORRUPT, "positions": [1, 1]}, "positions names '1' twice"),
        ({"corrupt": CORRUPT, "granularity": "node"}, "granularity='node' is not known"),
        ({"corrupt": CORRUPT, "memory_budget": 1000}, "memory_budget=1000 bytes is too small"),
        ({"corrupt": CORRUPT, "metric": lambda x: x.sum()}, r"metric returned \(\)"),
        ({"corrupt": CORRUPT, "metric": lambda x: x[:, 0, 0] / 0}, "metric returned NaN"),
        (
            {"corrupt": CORRUPT, "attention_mask": torch.ones(3, 5)},
            r"attention_mask has shape \(3, 5\)",
        ),
        (
            {"corrupt": CORRUPT, "attention_mask": torch.ones(3, 6)},
            "attention_mask has dtype torch.float32: give integers or booleans",
        ),
        ({"corrupt": CORRUPT, "metric": None}, "metric=None is not known"),
        ({"ablation": None}, "ablation=None is not known; near matches: zero"),
        ({"corrupt": CORRUPT, "scored": [2.7]}, "an entry of scored=2.7 is float: give an int"),
        ({"corrupt": CORRUPT, "scored": [True]}, "an entry of scored=True is bool"),
        ({"corrupt": CORRUPT, "scored": 5}, "scored=5 is int: give a list of integers"),
        ({"corrupt": CORRUPT, "scored": "last"}, "scored='last' is str: give a list of integers"),
        ({"corrupt": CORRUPT, "positions": [1.5]}, "an entry of positions=1.5 is float"),
        ({"corrupt": CORRUPT, "positions": {"z": "a"}}, "an entry of positions='a' is str"),
        ({"corrupt": CORRUPT, "edges": "embed->M0"}, "edges='embed->M0' is one string"),
        ({"corrupt": CORRUPT, "edges": Graph(2, 2).edges[0]}, "is one Edge: pass a list of edges"),
        ({"corrupt": CORRUPT, "memory_budget": "1GB"}, "memory_budget='1GB' is str: give an int"),
        ({"corrupt": CORRUPT, "seed": 1.5}, "seed=1.5 is float: give an integer"),
        ({"corrupt": CORRUPT, "within": ["embed->M0"]}, "within is list: give a Circuit"),
        (
            {"corrupt": CORRUPT, "within": Circuit.of(Graph(2, 2)), "granularity": "layer"},
            "granularity='layer' is not that of within=, 'head': leave it out",
        ),
    ],
)
def test_bad_requests(model, options, message):
    options = {"clean": CLEAN, "metric": "kl"} | options
    with pytest.raises(InputError, match=message):
        edge_effects(model, **options)


def test_an_edge_that_is_cut_already(model):
    graph = Graph.of(model)
    within = ~Circuit.of(graph, ["embed->M0"])
    with pytest.raises(InputError, match="'embed->M0', which within= has cut already"):
        edge_effects(model, CLEAN, "kl", ablation="zero", within=within, edges=["embed->M0"])


def test_a_circuit_of_another_model(model):
    within = Circuit.of(Graph(3, 2))
    with pytest.raises(InputError, match="within is a circuit of another graph"):
        edge_effects(model, CLEAN, "kl", ablation="zero", within=within)


def test_a_corrupt_batch_that_differs_only_after_the_last_scored_position(model):
    corrupt = CLEAN.clone()
    corrupt[:, 4:] = (corrupt[:, 4:] + 1) % 11
    with pytest.raises(InputError, match="corrupt equals clean in the 4 positions that matter"):
        edge_effects(model, CLEAN, "kl", corrupt=corrupt, scored=[1, 3])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_qk_norm": True}, r"query and key normalisation \(use_qk_norm\)"),
        ({"attention_dir": "bidirectional"}, "bidirectional attention"),
        ({"use_attention_sinks": True}, "attention sinks"),
        ({"num_experts": 2, "experts_per_token": 1}, "mixture-of-experts"),
        ({"clip_qkv": 3.0}, "clip_qkv"),
        ({"use_logn_attn": True}, "log-n attention"),
        (
            {"use_normalization_before_and_after": True, "normalization_type": "RMS"},
            "normalisation after attention and MLP",
        ),
        ({"original_architecture": "Olmo2ForCausalLM"}, "post-norm architecture Olmo2"),
        ({"gated_mlp": True, "act_fn": "solu_ln"}, "a gated MLP with a normalised activation"),
    ],
)
def test_unsupported_models_are_refused_by_name(config, message):
    with pytest.raises(InputError, match=f"model uses .*{message}.*nothing was computed"):
        edge_effects(tiny_model(**config), CLEAN, "kl", ablation="zero")


def test_other_things_than_a_decoder_are_refused():
    with pytest.raises(InputError, match="model=dict"):
        edge_effects({}, CLEAN, "kl", ablation="zero")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = HookedEncoder(
            HookedTransformerConfig(
                n_layers=1, d_model=8, d_head=4, n_heads=2, n_ctx=6, d_vocab=11, act_fn="gelu"
            )
        )
    with pytest.raises(InputError, match="model=HookedEncoder is not a TransformerLens decoder"):
        edge_effects(encoder, CLEAN, "kl", ablation="zero")


def test_a_cast_model_is_refused_because_its_tables_stay_behind():
    model = tiny_model(dtype=torch.float32).double()
    with pytest.raises(InputError, match=r"is torch.float64 but cfg.dtype is torch.float32"):
        edge_effects(model, CLEAN, "kl", ablation="zero")


@pytest.mark.parametrize(
    ("hook", "where"),
    [
        ("blocks.1.attn.hook_z", "at layer 1"),
        ("blocks.0.mlp.hook_post", "at layer 0"),
        ("hook_embed", "at the embedding"),
        ("ln_final.hook_normalized", "in the final norm or unembedding"),
    ],
)
def test_a_model_that_computes_something_else_is_named_by_layer(hook, where):
    model = tiny_model()
    model.add_hook(hook, lambda x, hook: x * 1.01)
    with pytest.raises(InputError, match=f"differs .*{where}"):
        edge_effects(model, CLEAN, "kl", ablation="zero")
    model.reset_hooks()
    assert len(edge_effects(model, CLEAN, "kl", ablation="zero").table) == 46


def test_a_model_with_nan_weights_is_refused():
    model = tiny_model()
    with torch.no_grad():
        model.blocks[0].attn.W_O[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="the model's own logits hold NaN"):
        edge_effects(model, CLEAN, "kl", ablation="zero")
