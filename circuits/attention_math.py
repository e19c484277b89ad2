"""Queries, keys, values, patterns and head outputs, for any subset of heads and positions.

Residual streams are `"... batch pos d_model"`, head tensors `"... batch head pos d_head"`:
positions are always the last axis but one. Leading axes, where there are any, hold several edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.model_weights import AttentionWeights, soft_cap

Input = Literal["q", "k", "v"]
INPUTS: tuple[Input, ...] = ("q", "k", "v")
At = tuple[int, ...]
"""Token positions, ascending."""


@dataclass(frozen=True)
class Placement:
    """Where the tokens of a batch stand: all that attention knows about positions."""

    n_pos: int
    pos_embed: Float[Tensor, "batch pos d_model"] | None
    """Position embeddings that queries and keys alone get (shortformer)."""
    position_ids: Tensor | None
    """Row of the rotary tables for every token, when a mask shifts them: `"batch pos"`."""
    real: Bool[Tensor, "batch pos"] | None
    """False at padding; None when there is no attention mask."""

    def rows(self, rows: slice) -> "Placement":
        """The same for some examples of the batch."""
        return Placement(
            self.n_pos,
            None if self.pos_embed is None else self.pos_embed[rows],
            None if self.position_ids is None else self.position_ids[rows],
            None if self.real is None else self.real[rows],
        )


def take(x: Tensor, at: At) -> Tensor:
    """Positions `at` of the last axis but one; a view where they are neighbours."""
    if len(at) == x.shape[-2]:
        return x
    if at and at[-1] - at[0] + 1 == len(at):
        return x.narrow(-2, at[0], len(at))
    return x.index_select(-2, torch.tensor(at, dtype=torch.long, device=x.device))


def put(base: Tensor, new: Tensor, at: At) -> Tensor:
    """`base` with its positions `at` replaced by `new`, which may have more leading axes."""
    n_pos = base.shape[-2]
    if len(at) == n_pos:
        return new
    shape = (*new.shape[:-2], n_pos, new.shape[-1])
    if at[-1] - at[0] + 1 == len(at):
        whole = base.expand(shape)
        after = whole[..., at[-1] + 1 :, :]
        return torch.cat([whole[..., : at[0], :], new, after], dim=-2)
    index = torch.tensor(at, dtype=torch.long, device=base.device)
    return base.expand(shape).clone().index_copy_(base.expand(shape).dim() - 2, index, new)


def project(
    layer: AttentionWeights,
    placement: Placement,
    resid: Tensor,
    columns: Sequence[tuple[Input, int]],
    at: At,
) -> Tensor:
    """Queries, keys and values that heads read off a residual stream.

    Args:
        layer: the attention layer.
        placement: of these examples.
        resid: `"... batch at d_model"` before the norm, already at the positions `at`.
        columns: which input of which head, in the order wanted.
        at: the token positions of `resid`.

    Returns:
        `"... batch column at d_head"`.
    """
    x = layer.norm(resid)
    shifted = x
    if placement.pos_embed is not None:
        shifted = x + take(placement.pos_embed, at)
    n_heads, d_head = layer.b_qkv.shape[1:]
    every = len(columns) == 3 * n_heads and list(columns) == all_columns(n_heads)
    qk = [c for c in columns if c[0] != "v"]
    if placement.pos_embed is None or not qk or len(qk) == len(columns):
        out = _columns(layer, shifted if qk else x, None if every else columns, d_head)
    else:
        v = [c for c in columns if c[0] == "v"]
        both = [_columns(layer, shifted, qk, d_head), _columns(layer, x, v, d_head)]
        order = [*(columns.index(c) for c in qk), *(columns.index(c) for c in v)]
        inverse = sorted(range(len(order)), key=lambda i: order[i])
        out = torch.cat(both, dim=-3).index_select(-3, torch.tensor(inverse, device=x.device))
    return _rotate(layer, placement, out, columns, at) if layer.rotary and qk else out


def all_columns(n_heads: int) -> list[tuple[Input, int]]:
    """Every input of every head: q of all heads, then k, then v."""
    return [(x, head) for x in INPUTS for head in range(n_heads)]


def _columns(
    layer: AttentionWeights, x: Tensor, columns: Sequence[tuple[Input, int]] | None, d_head: int
) -> Tensor:
    """Linear maps of a normalised stream, as `"... column pos d_head"`."""
    W, b = layer.W_qkv.flatten(1), layer.b_qkv.flatten()
    if columns is not None:
        kept = tuple(INPUTS.index(x) * layer.b_qkv.shape[1] + head for x, head in columns)
        W = take(layer.W_qkv.flatten(1, 2), kept).flatten(1)
        b = take(layer.b_qkv.flatten(0, 1), kept).flatten()
    out = torch.addmm(b, x.reshape(-1, x.shape[-1]), W)
    return out.view(*x.shape[:-1], -1, d_head).transpose(-2, -3)


def _rotate(
    layer: AttentionWeights,
    placement: Placement,
    out: Tensor,
    columns: Sequence[tuple[Input, int]],
    at: At,
) -> Tensor:
    """Turns the queries and keys among the columns by their positions."""
    rotary = layer.rotary
    assert rotary is not None
    index = torch.tensor(at, dtype=torch.long, device=out.device)
    if placement.position_ids is not None:
        index = placement.position_ids[:, index]
    sin, cos = rotary.sin[index], rotary.cos[index]
    if placement.position_ids is not None:
        sin, cos = sin[:, None], cos[:, None]
    width = sin.shape[-1]
    turned, rest = out[..., :width], out[..., width:]
    if rotary.adjacent:
        flipped = torch.stack([-turned[..., 1::2], turned[..., ::2]], dim=-1).flatten(-2)
    else:
        half = width // 2
        flipped = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
    rotated = torch.cat([turned * cos + flipped * sin, rest], dim=-1)
    is_v = torch.tensor([x == "v" for x, _ in columns], device=out.device)
    return torch.where(is_v[:, None, None], out, rotated)


def score_bias(layer: AttentionWeights, placement: Placement) -> Tensor:
    """What is added to the scores: -inf where a query may not look, and ALiBi.

    Returns:
        `"batch head query key"`; batch and head are 1 where they make no difference.
    """
    n_pos, like = placement.n_pos, layer.W_O
    query = torch.arange(n_pos, device=like.device)[:, None]
    key = torch.arange(n_pos, device=like.device)[None, :]
    seen = key <= query
    if layer.window is not None:
        seen = seen & (key > query - layer.window)
    bias = torch.zeros(1, 1, n_pos, n_pos, dtype=like.dtype, device=like.device)
    if layer.alibi is not None:
        bias = bias + layer.alibi[None, :, None, None] * (key - query).to(like.dtype)
    hidden = ~seen[None, None]
    if placement.real is not None:
        hidden = hidden | ~placement.real[:, None, None, :]
    return torch.where(hidden, -torch.inf, bias)


def attention_pattern(
    layer: AttentionWeights, q: Tensor, k: Tensor, bias: Tensor, padded: bool
) -> Tensor:
    """Where heads look: `"... batch head query key"`; rows with nothing to see are zero."""
    scores = torch.matmul(q / layer.scale, k.transpose(-1, -2))
    if layer.soft_cap is not None:
        scores = soft_cap(scores, layer.soft_cap)
    if not padded:
        return (scores + bias).softmax(-1)
    # Padding on the left leaves queries without any key; a softmax of nothing has no gradient.
    blind = (bias == -torch.inf).all(-1, keepdim=True)
    return (scores + bias.masked_fill(blind, 0.0)).softmax(-1).masked_fill(blind, 0.0)


def head_outputs(layer: AttentionWeights, z: Tensor, heads: Sequence[int] | None = None) -> Tensor:
    """Sum of z W_O over heads: `"... batch head pos d_head"` to `"... batch pos d_model"`."""
    W = layer.W_O if heads is None else layer.W_O[list(heads)]
    flat = z.transpose(-2, -3).reshape(-1, W.shape[0] * W.shape[1])
    out = flat @ W.flatten(0, 1)
    return out.view(*z.shape[:-3], z.shape[-2], W.shape[-1])
