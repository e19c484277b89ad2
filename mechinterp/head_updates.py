"""Learning-rate factors for single heads, which share their tensors with the other heads.

torch's optimizers take a rate for each tensor. AdamW's update is proportional to the rate, entry by
entry, weight decay included, so a head's rate is scaled exactly by scaling how far its slice moved.
Scaling its gradient would do nothing: Adam divides by the gradient's own size.
"""

import re
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_PER_HEAD = re.compile(r"blocks\.(\d+)\.attn\.([Wb]_[QKV]|W_O)")

Slices = Sequence[tuple[torch.nn.Parameter, Float[Tensor, " head"]]]
"""Tensors whose heads differ in their rate, and the factor of each head."""


def slice_names(name: str, n_heads: int) -> list[str]:
    """Gives the names of a tensor's heads, `L0H3.W_Q`, or none if it is not split by heads.

    Args:
        name: TransformerLens's name of the tensor.
        n_heads: its length along the first axis.
    """
    match = _PER_HEAD.fullmatch(name)
    if match is None:
        return []
    layer, matrix = match.groups()
    return [f"L{layer}H{head}.{matrix}" for head in range(n_heads)]


def scale_updates(optimizer: torch.optim.Optimizer, slices: Slices) -> None:
    """Makes every step of an optimizer move some heads by a multiple of what it would.

    Exact for AdamW and SGD, whose updates are proportional to the rate. A factor of 0 freezes a
    head bit for bit, and heads with factor 1 are not touched.

    Args:
        optimizer: gets two hooks; its state stays that of unscaled rates.
        slices: what to scale.
    """
    chosen = [(tensor, *_unlike_one(factors, tensor)) for tensor, factors in slices]
    before: list[Tensor] = []

    def remember(*_: object) -> None:
        before[:] = [tensor.detach()[heads] for tensor, heads, _ in chosen]

    @torch.no_grad()
    def scale(*_: object) -> None:
        for (tensor, heads, factors), old in zip(chosen, before, strict=True):
            tensor[heads] = torch.lerp(old, tensor[heads], factors)
        before.clear()

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(scale)


def _unlike_one(factors: Float[Tensor, " head"], tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the heads to scale, and their factors, shaped to multiply the tensor's rows."""
    heads = (factors != 1).nonzero()[:, 0].to(tensor.device)
    column = factors.to(tensor)[heads].view(-1, *[1] * (tensor.ndim - 1))
    return heads, column.expand(len(heads), *tensor.shape[1:])
