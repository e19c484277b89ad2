"""Before anything is computed: is the input sound, and is the factored run the model's own run?"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.attention_math import Placement
from circuits.errors import InputError
from circuits.heads import check_model
from circuits.model_weights import ModelWeights
from circuits.streams import Batch, Streams, run_streams

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 0.03,
    torch.bfloat16: 0.1,
}
"""Largest gap to the model's own logits, over the largest logit, by the model's dtype."""


def check_tokens(model: Any, name: str, tokens: Any, like: Tensor | None = None) -> None:
    """Raises InputError for anything but a batch of token ids that the model can read.

    Args:
        model: the model that will read them.
        name: of the argument, for the message.
        tokens: the batch.
        like: another batch that it must match row by row.
    """
    check_model(model)
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name} is {type(tokens).__name__}: give a tensor 'batch pos' of ids")
    if tokens.dim() != 2:
        raise InputError(f"{name} has shape {tuple(tokens.shape)}: give a tensor 'batch pos'")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise InputError(f"{name} has dtype {tokens.dtype}: token ids must be integers")
    if tokens.dtype == torch.uint8:  # TransformerLens looks tokens up by indexing.
        raise InputError(f"{name} has dtype torch.uint8, which torch reads as a mask: use .long()")
    if tokens.numel() == 0:
        raise InputError(f"{name} is empty, shape {tuple(tokens.shape)}: give at least one token")
    device = next(model.parameters()).device
    if tokens.device != device:
        raise InputError(f"{name} is on {tokens.device} but the model is on {device}: move one")
    if like is not None and tokens.shape != like.shape:
        raise InputError(
            f"{name} has shape {tuple(tokens.shape)} but clean has {tuple(like.shape)}: they are "
            "paired row by row and must match"
        )
    low, high, d_vocab = int(tokens.min()), int(tokens.max()), int(model.cfg.d_vocab)
    if low < 0 or high >= d_vocab:
        raise InputError(
            f"{name} holds token id {low if low < 0 else high}: ids must lie in 0..{d_vocab - 1}"
        )


def check_length(model: Any, n_pos: int) -> None:
    """Raises InputError when sequences are longer than the model's context."""
    if n_pos > model.cfg.n_ctx:
        raise InputError(
            f"clean needs {n_pos} positions but the model's n_ctx is {model.cfg.n_ctx}: give "
            "shorter sequences, or score earlier positions only"
        )


def check_mask(mask: Any, tokens: Tensor) -> None:
    """Raises InputError for a mask other than one run of ones a row."""
    if not isinstance(mask, Tensor) or mask.shape != tokens.shape:
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask has shape {shape} but clean has {tuple(tokens.shape)}: give one "
            "0 or 1 a token"
        )
    if mask.is_floating_point() or mask.is_complex():
        raise InputError(f"attention_mask has dtype {mask.dtype}: give integers or booleans")
    if mask.device != tokens.device:
        raise InputError(f"attention_mask is on {mask.device} but clean is on {tokens.device}")
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError("attention_mask must hold 0 (padding) and 1 (token) only")
    ones = mask.long()
    starts = (ones[:, 1:] > ones[:, :-1]).sum(1) + ones[:, 0]
    if bool((starts != 1).any()):
        row = int((starts != 1).nonzero()[0])
        raise InputError(
            f"attention_mask row {row} is not one run of ones: padding must stand on the left or "
            "on the right of at least one token"
        )


def embed_batch(model: Any, weights: ModelWeights, tokens: Tensor, mask: Tensor | None) -> Batch:
    """Embeds tokens as the model does, and says where they stand.

    Padding is handled as TransformerLens does: positions count from the first real token, padding
    gets no position embedding and is never attended to. A model whose tokenizer pads on the left
    makes a mask of its own where none is given.
    """
    if mask is None and getattr(model, "tokenizer", None) is not None:
        mask = model.input_to_embed(tokens)[3]
    real = None if mask is None or bool((mask == 1).all()) else mask.bool()
    ids = None if real is None else (real.long().cumsum(1) - 1).clamp_min(0)
    embed, pos_embed = weights.embed_norm(weights.W_E[tokens.long()]), None
    if weights.W_pos is not None:
        pos_embed = weights.W_pos[: tokens.shape[1]].expand_as(embed)
        if real is not None and ids is not None:
            pos_embed = weights.W_pos[ids] * real[..., None]
        if weights.pos_in_stream:
            embed, pos_embed = embed + pos_embed, None
    return Batch(tokens, embed, Placement(tokens.shape[1], pos_embed, ids, real))


def checked_streams(
    model: Any, weights: ModelWeights, tokens: Tensor, mask: Tensor | None
) -> tuple[Streams, Float[Tensor, "batch pos d_vocab"]]:
    """Runs the factored forward pass and holds it against the model's own logits.

    Args:
        model: the model.
        weights: its weights.
        tokens: the batch, cut to the positions needed.
        mask: 0 at padding.

    Returns:
        The uncut streams and the model's own logits.

    Raises:
        InputError: the two disagree; the message names the layer where they part.
    """
    streams = run_streams(weights, embed_batch(model, weights, tokens, mask))
    resid, own = _own_run(model, tokens, mask)
    if not bool(own.isfinite().all()):
        raise InputError("the model's own logits hold NaN or infinity: check its weights")
    allowed = TOLERANCE[model.cfg.dtype]
    if _gap(streams.logits, own) <= allowed:
        return streams, own
    if _gap(streams.embed, resid.pop(0)) > allowed:
        raise InputError(
            "the factored forward pass differs from the model's own at the embedding: a hook "
            "changes it, or it does something this package does not know; nothing was computed"
        )
    for layer, (ours, theirs) in enumerate(zip(streams.resid, resid, strict=True)):
        if _gap(ours, theirs) > allowed:
            raise InputError(
                f"the factored forward pass differs from the model's own at layer {layer} "
                f"(relative gap {_gap(ours, theirs):.1e}, allowed {allowed:.0e}): a hook changes "
                "that layer, or it does something this package does not know; nothing was computed"
            )
    raise InputError(
        "the factored forward pass agrees with the model up to its last layer but differs in the "
        f"final norm or unembedding (relative gap {_gap(streams.logits, own):.1e}, allowed "
        f"{allowed:.0e}); nothing was computed"
    )


def _own_run(model: Any, tokens: Tensor, mask: Tensor | None) -> tuple[list[Tensor], Tensor]:
    """The model's residual stream before the first and after every block, and its logits."""
    resid: list[Tensor] = []
    handles: list[Any] = []

    def keep_input(_module: Any, args: tuple[Any, ...]) -> None:
        resid.append(args[0].detach())

    def keep(_module: Any, _args: Any, out: Tensor | tuple[Tensor, ...]) -> None:
        resid.append((out[0] if isinstance(out, tuple) else out).detach())

    try:
        handles.append(model.blocks[0].register_forward_pre_hook(keep_input))
        for block in model.blocks:
            handles.append(block.register_forward_hook(keep))
        logits = model(tokens, attention_mask=mask)
    finally:
        for handle in handles:
            handle.remove()
    return resid, logits.detach()


def _gap(ours: Tensor, theirs: Tensor) -> float:
    theirs = theirs.to(ours.dtype)
    scale = theirs.abs().max().clamp_min(torch.finfo(ours.dtype).tiny)
    gap = ((ours - theirs).abs().max() / scale).item()
    return gap if gap == gap else float("inf")
