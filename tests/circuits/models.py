"""Small random models of every supported kind, biases everywhere, with effects that are large."""

import warnings
from typing import Any

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

BASE: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 16,
    "d_head": 8,
    "d_mlp": 24,
    "n_ctx": 9,
    "d_vocab": 11,
    "act_fn": "gelu",
    "normalization_type": "LN",
    "dtype": torch.float64,
    "device": "cpu",
}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "LN": {},
    "LNPre": {"normalization_type": "LNPre"},
    "RMS": {"normalization_type": "RMS"},
    "RMSPre": {"normalization_type": "RMSPre"},
    "no norm": {"normalization_type": None},
    "final RMS": {"final_rms": True},
    "final RMSPre": {"normalization_type": "LNPre", "final_rms": True},
    "rotary": {"positional_embedding_type": "rotary", "rotary_dim": 4},
    "rotary, adjacent pairs": {
        "positional_embedding_type": "rotary",
        "rotary_dim": 8,
        "rotary_adjacent_pairs": True,
    },
    "shortformer": {"positional_embedding_type": "shortformer"},
    "alibi": {"positional_embedding_type": "alibi"},
    "attention only": {"attn_only": True},
    "parallel": {"parallel_attn_mlp": True},
    "gated": {"gated_mlp": True, "act_fn": "silu"},
    "solu with norm": {"act_fn": "solu_ln"},
    "one head": {"n_heads": 1, "d_head": 16},
    "d_head * n_heads != d_model": {"d_head": 5},
    "grouped keys and values": {"n_heads": 4, "n_key_value_heads": 2, "d_head": 4},
    "attention soft cap": {"attn_scores_soft_cap": 1.5},
    "logit soft cap": {"output_logits_soft_cap": 2.0},
    "local attention": {
        "use_local_attn": True,
        "attn_types": ["local", "global"],
        "window_size": 3,
    },
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3, "n_heads": 1},
    "unscaled attention": {"use_attn_scale": False},
    "embedding norm": {"post_embedding_ln": True},
}


def tiny_model(seed: int = 0, scale: float = 0.5, **config: Any) -> HookedTransformer:
    """Builds a model from `BASE` and `config`; every parameter, biases too, is drawn at random.

    The global random state is left alone.
    """
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = HookedTransformer(HookedTransformerConfig(**(BASE | config)))
    torch.set_rng_state(state)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            mean = 1.0 if name.endswith(".w") else 0.0
            parameter.copy_((mean + scale * noise).to(parameter.dtype))
    return model


def random_tokens(
    batch: int, n_pos: int, seed: int = 1, d_vocab: int = BASE["d_vocab"]
) -> torch.Tensor:
    """Token ids drawn uniformly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(d_vocab, (batch, n_pos), generator=generator)
