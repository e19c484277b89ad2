"""An MLP reached through one head only: its first matrix shrinks to d_head rows.

A norm is linear up to one factor a token. So W_in's product with the base run's stream is computed
once, a head's change goes through W_O W_in (d_head x d_mlp), and the factor is that of the changed
stream. The result is the exact one, to rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from circuits.attention_math import At, take
from circuits.model_weights import ModelWeights, in_tiles
from circuits.streams import Streams


class NarrowMLP:
    """One layer's MLP, prepared for changes that come from that layer's heads.

    Args:
        base: the run that the changes are relative to.
        layer: of the MLP.
    """

    def __init__(self, base: Streams, layer: int) -> None:
        self.layer, self.mlp = layer, base.weights.mlps[layer]
        streams, norm = base.layers[layer], self.mlp.norm
        assert streams.mlp_in is not None
        assert streams.mlp_out is not None
        self.mlp_in, self.mlp_out = streams.mlp_in, streams.mlp_out
        self.base = norm.linear_part(self.mlp_in) @ self.mlp.W_in
        self.W = norm.linear_part(base.weights.attention[layer].W_O) @ self.mlp.W_in
        bias = self.W.new_zeros(1, self.W.shape[-1])
        if not self.mlp.gated:
            bias = bias + self.mlp.b_in
        if norm.b is not None:
            bias = bias + norm.b @ self.mlp.W_in
        self.bias = bias

    @staticmethod
    def pays(weights: ModelWeights, n_heads: int) -> bool:
        """Whether `n_heads` heads together are much narrower than the residual stream."""
        d_head, d_model = weights.attention[0].W_O.shape[1:]
        return 2 * n_heads * d_head <= d_model

    def response(
        self, heads: Sequence[Sequence[int]], at: At, total: Tensor, dz: Sequence[Tensor]
    ) -> Tensor:
        """Change of the MLP's output.

        Args:
            heads: for each entry of `dz`, which heads its head axis holds.
            at: positions of the changes.
            total: the changes of the residual stream, `"edge batch at d_model"`.
            dz: the changes of the heads' z, `"edge batch head at d_head"` each.

        Returns:
            `"edge batch at d_model"`.
        """
        factor = self.mlp.norm.factor(take(self.mlp_in, at) + total)
        base, mlp_out = take(self.base, at), take(self.mlp_out, at)
        responses, start = [], 0
        for z, held in zip(dz, heads, strict=True):
            stop = start + z.shape[0]
            W = torch.cat([self.W[list(held)].flatten(0, 1), self.bias])
            scaled = z.transpose(-2, -3).flatten(-2) * factor[start:stop]
            inner = torch.cat([scaled, torch.ones_like(scaled[..., :1])], dim=-1)
            out = self._tiles(base.expand(len(z), *base.shape), factor[start:stop], inner, W)
            responses.append(out.view(*z.shape[:2], len(at), -1).sub_(mlp_out))
            start = stop
        return responses[0] if len(responses) == 1 else torch.cat(responses)

    def _tiles(self, base: Tensor, factor: Tensor, inner: Tensor, W: Tensor) -> Tensor:
        """MLP outputs, a row a token; the bias comes in through the last column of `inner`."""

        def tile(base: Tensor, factor: Tensor, inner: Tensor) -> Tensor:
            return self.mlp.from_pre((base * factor).addmm_(inner, W))

        return in_tiles(tile, base.flatten(0, -2), factor.flatten(0, -2), inner.flatten(0, -2))
