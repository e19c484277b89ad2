"""Logits at the scored positions only: nothing that cannot reach them is computed."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer


def whole_logits(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], scored: Int[Tensor, " scored"]
) -> Float[Tensor, "batch scored d_vocab"]:
    """Gives the model's logits at some positions, through its own forward pass.

    Only the final norm and the unembedding are left out elsewhere.

    Args:
        model: any HookedTransformer.
        tokens: sequences; positions after the last scored one are not read.
        scored: positions, ascending.
    """
    read = tokens[:, : int(scored[-1]) + 1]
    resid = model(read, stop_at_layer=model.cfg.n_layers)
    return _read_out(model, resid[:, scored])


def scored_logits(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], scored: Int[Tensor, " scored"]
) -> Float[Tensor, "batch scored d_vocab"]:
    """Gives the same logits, up to rounding, and computes less.

    In the last layer other positions are wanted for their keys and values alone, so queries, the
    MLP and all that follows are computed where it counts. With 5 of 15 positions scored that is a
    quarter of the work of two layers. Hooks of the last layer do not fire. Models that are not
    covered (see `covers`) take the model's own forward pass.

    Args:
        model: any HookedTransformer; its weights receive gradients as usual.
        tokens: sequences; positions after the last scored one are not read.
        scored: positions, ascending.
    """
    n_read = int(scored[-1]) + 1
    if not covers(model) or len(scored) == n_read:
        return whole_logits(model, tokens, scored)
    resid = model(tokens[:, :n_read], stop_at_layer=model.cfg.n_layers - 1)
    return _read_out(model, _last_block(model.blocks[-1], resid, scored))


def covers(model: HookedTransformer) -> bool:
    """Whether `scored_logits` computes less for this model: plain attention, learned positions."""
    cfg = model.cfg
    return (
        cfg.positional_embedding_type == "standard"
        and not cfg.parallel_attn_mlp
        and not cfg.use_local_attn
        and cfg.n_key_value_heads is None
        and cfg.attn_scores_soft_cap <= 0
        and cfg.output_logits_soft_cap <= 0
    )


def _last_block(
    block: Any, resid: Float[Tensor, "batch pos d_model"], scored: Tensor
) -> Float[Tensor, "batch scored d_model"]:
    attn = block.attn
    read = block.ln1(resid)
    q = _heads(read[:, scored], attn.W_Q, attn.b_Q)
    k, v = _heads(read, attn.W_K, attn.b_K), _heads(read, attn.W_V, attn.b_V)
    seen = torch.arange(resid.shape[1]) <= scored[:, None]
    scale = 1.0 / float(attn.attn_scale)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.to(q.device), scale=scale)
    written = z.transpose(1, 2).flatten(2) @ attn.W_O.flatten(0, 1) + attn.b_O
    resid = resid[:, scored] + written
    return resid if block.cfg.attn_only else resid + block.mlp(block.ln2(resid))


def _heads(
    read: Float[Tensor, "batch some d_model"],
    weight: Float[Tensor, "head d_model d_head"],
    bias: Float[Tensor, "head d_head"],
) -> Float[Tensor, "batch head some d_head"]:
    joined = read @ weight.transpose(0, 1).flatten(1) + bias.flatten()
    return joined.unflatten(-1, bias.shape).transpose(1, 2)


def _read_out(model: HookedTransformer, resid: Tensor) -> Tensor:
    return model.unembed(model.ln_final(resid) if model.cfg.normalization_type else resid)
