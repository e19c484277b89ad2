"""Weights of TransformerLens 4's native bridge: its names, its shapes, its order of rotary pairs.

The bridge turns neighbouring numbers of queries and keys together, a HookedTransformer by default
those half a width apart. Scores are the same when the columns of both are put in another order.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from circuits.errors import InputError

MARK = ".attn.q.weight"
"""Only the bridge's state dicts have names that end so."""

_ENDINGS = {
    "W_E": "weight",
    "W_pos": "weight",
    "W_U": "weight",
    "b_U": "bias",
    "w": "weight",
    "b": "bias",
    "W_Q": "q.weight",
    "W_K": "k.weight",
    "W_V": "v.weight",
    "W_O": "o.weight",
    "b_Q": "q.bias",
    "b_K": "k.bias",
    "b_V": "v.bias",
    "b_O": "o.bias",
    "W_in": "in.weight",
    "b_in": "in.bias",
    "W_out": "out.weight",
    "b_out": "out.bias",
}
"""How the bridge calls what HookedTransformer calls so."""


_TURNED = ("W_Q", "W_K", "b_Q", "b_K")


def is_bridge_state(names: Mapping[str, Tensor]) -> bool:
    """Whether a state dict is one of the native bridge."""
    return any(name.endswith(MARK) for name in names)


def in_bridge_order(state: Mapping[str, Tensor], cfg: Any) -> dict[str, Tensor]:
    """Puts queries and keys of a HookedTransformer's state dict in the order that a bridge turns.

    Args:
        state: tensors by HookedTransformer's names.
        cfg: its configuration.
    """
    order = _order(cfg)
    return {name: _turned(name, tensor, order) for name, tensor in state.items()}


def from_bridge(
    state: Mapping[str, Tensor], own: Mapping[str, Tensor], cfg: Any
) -> dict[str, Tensor]:
    """Turns a native bridge's state dict into HookedTransformer's names, shapes and order.

    It is the inverse of `in_bridge_order` and TransformerLens 4's `convert_tl_checkpoint` after it.

    Args:
        state: tensors by the bridge's names, matrices as `torch.nn.Linear` has them.
        own: the weights of a HookedTransformer of the same configuration.
        cfg: that configuration.

    Returns:
        Tensors by HookedTransformer's names; names of the bridge that none stands for are kept, so
        that whoever loads the result can name them.

    Raises:
        InputError: a tensor has another number of elements than the configuration asks for.
    """
    rest, found, order = dict(state), {}, _order(cfg)
    back = None if order is None else order.argsort()
    for name, like in own.items():
        module, _, last = name.rpartition(".")
        key = f"{module}.{_ENDINGS.get(last, last)}"
        if key not in rest:
            continue
        tensor = rest.pop(key)
        if tensor.numel() != like.numel():
            raise InputError(
                f"{key} has {tuple(tensor.shape)} for {name}, the model needs {tuple(like.shape)}"
            )
        found[name] = _turned(name, _reshaped(last, tensor, like, cfg.n_heads), back)
    return found | rest


def _order(cfg: Any) -> Tensor | None:
    """Which number of a query or key goes where in the bridge; None where all stay."""
    if cfg.positional_embedding_type != "rotary" or cfg.rotary_adjacent_pairs:
        return None
    pairs = torch.arange(cfg.rotary_dim).view(2, -1).T.flatten()
    return torch.cat([pairs, torch.arange(cfg.rotary_dim, cfg.d_head)])


def _turned(name: str, tensor: Tensor, order: Tensor | None) -> Tensor:
    turned = order is not None and name.rpartition(".")[2] in _TURNED
    return tensor[..., order].contiguous() if turned else tensor


def _reshaped(last: str, tensor: Tensor, like: Tensor, n_heads: int) -> Tensor:
    if last in ("W_Q", "W_K", "W_V"):
        return tensor.reshape(n_heads, -1, tensor.shape[-1]).transpose(1, 2).contiguous()
    if last in ("W_O", "W_in", "W_out", "W_U"):
        return tensor.T.reshape(like.shape).contiguous()
    return tensor.reshape(like.shape)
