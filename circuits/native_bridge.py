"""TransformerLens's native bridge, spelled as a HookedTransformer: the one adapter that 4.x needs.

`TransformerBridge.boot_native(cfg)` gives most weights by HookedTransformer's property names. What
it spells otherwise is looked up here: the attention scale, the rotary tables, the activation, and
keys and values that are grouped, not repeated. Whatever else differs is caught when the factored
run is held against the model's own logits.
"""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from circuits.errors import InputError

NATIVE = "TransformerLensNative"
UNBUILT = {
    "parallel_attn_mlp": "parallel attention and MLP",
    "use_local_attn": "local attention",
    "post_embedding_ln": "a norm after the embedding",
}
"""Flags of the configuration that the native model accepts and ignores."""


def hooked_spelling(model: Any) -> Any:
    """Gives a model whose weights can be read by HookedTransformer's property names.

    Args:
        model: anything; only a `TransformerBridge` is changed.

    Returns:
        The model itself, or a view of a native bridge that shares its tensors.

    Raises:
        InputError: a bridge around another architecture than TransformerLens's own, or one whose
            configuration asks for something that the native model does not build.
    """
    if not is_bridge(model):
        return model
    _refuse_foreign(model.cfg)
    cfg = copy.copy(model.cfg)
    cfg.rotary_adjacent_pairs = True  # The only kind that the native model builds.
    return SimpleNamespace(
        cfg=cfg,
        embed=SimpleNamespace(W_E=model.embed.W_E),
        pos_embed=getattr(model, "pos_embed", None),
        blocks=[_block(block, cfg) for block in model.blocks],
        ln_final=_norm(model.ln_final, cfg),
        unembed=model.unembed,
        named_parameters=model.named_parameters,
    )


def is_bridge(model: Any) -> bool:
    """Whether a model is a TransformerBridge; told by its name, as 3.x need not have the class."""
    return type(model).__name__ == "TransformerBridge"


def refuse_padding(model: Any) -> None:
    """Raises InputError for a bridge: it numbers the positions of padded rows in another way."""
    if is_bridge(model):
        raise InputError(
            "attention_mask is not supported with TransformerLens's native bridge, which counts "
            "positions from the padding on: give sequences of one length at a time"
        )


def _refuse_foreign(cfg: Any) -> None:
    architecture = getattr(cfg, "architecture", None)
    if architecture != NATIVE:
        raise InputError(
            f"model=TransformerBridge is built around {architecture}: of TransformerLens's bridges "
            "only those of TransformerBridge.boot_native(cfg) are supported; nothing was computed"
        )
    for flag, feature in UNBUILT.items():
        if getattr(cfg, flag, False):
            raise InputError(
                f"cfg.{flag} asks for {feature}, which TransformerLens's native bridge ignores: "
                "use a HookedTransformer; nothing was computed"
            )


def _block(block: Any, cfg: Any) -> SimpleNamespace:
    parts = {"ln1": _norm(block.ln1, cfg), "attn": _attention(block.attn, cfg)}
    if not cfg.attn_only:
        parts |= {"ln2": _norm(block.ln2, cfg), "mlp": _mlp(block.mlp, cfg)}
    return SimpleNamespace(**parts)


def _norm(norm: Any, cfg: Any) -> SimpleNamespace:
    """A norm; without weights where the bridge's has none."""
    w, b = getattr(norm, "w", None), getattr(norm, "b", None)
    return SimpleNamespace(w=w, b=b, eps=getattr(norm, "eps", cfg.eps))


def _attention(attn: Any, cfg: Any) -> SimpleNamespace:
    inner = attn.original_component
    groups = cfg.n_heads // (cfg.n_key_value_heads or cfg.n_heads)

    def repeated(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(groups, dim=0) if groups > 1 else tensor

    found = SimpleNamespace(
        W_Q=attn.W_Q,
        W_K=repeated(attn.W_K),
        W_V=repeated(attn.W_V),
        W_O=attn.W_O,
        b_Q=attn.b_Q,
        b_K=repeated(attn.b_K),
        b_V=repeated(attn.b_V),
        b_O=attn.b_O,
        attn_scale=inner.scale,
        attn_type="global",
    )
    if inner.rotary is not None:
        found.rotary_sin, found.rotary_cos = inner.rotary.sin_cached, inner.rotary.cos_cached
    return found


def _mlp(mlp: Any, cfg: Any) -> SimpleNamespace:
    inner, W_in, W_out = mlp.original_component, mlp.W_in, mlp.W_out
    ln = getattr(inner, "ln", None)
    return SimpleNamespace(
        W_in=W_in,
        W_gate=mlp.W_gate,
        W_out=W_out,
        b_in=_or_zeros(mlp.b_in, W_in),
        b_out=_or_zeros(mlp.b_out, W_out),
        act_fn=inner.act,
        ln=None if ln is None else SimpleNamespace(w=ln.weight, b=ln.bias, eps=ln.eps),
    )


def _or_zeros(bias: Tensor | None, weight: Tensor) -> Tensor:
    """The bias, or zeros where the model has none."""
    return torch.zeros_like(weight[0]) if bias is None else bias
