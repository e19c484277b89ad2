"""An MLP reached through one head only: its first matrix shrinks to d_head rows.

A norm is linear up to one factor a token. So W_in's product with the base run's stream is computed
once, a head's change goes through W_O W_in (d_head x d_mlp), and the factor is that of the changed
stream. The result is the exact one, to rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from circuits.attention_math import At, take
from circuits.model_weights import ModelWeights
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
        self.bias = self.W.new_zeros(self.W.shape[-1])
        if not self.mlp.gated:
            self.bias = self.bias + self.mlp.b_in
        if norm.b is not None:
            self.bias = self.bias + norm.b @ self.mlp.W_in

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
        pre = torch.addcmul(self.bias, take(self.base, at), factor)
        start = 0
        for z, held in zip(dz, heads, strict=True):
            stop = start + z.shape[0]
            flat = (z.transpose(-2, -3).flatten(-2) * factor[start:stop]).flatten(0, -2)
            pre[start:stop].view(-1, pre.shape[-1]).addmm_(flat, self.W[list(held)].flatten(0, 1))
            start = stop
        return self.mlp.from_pre(pre).sub_(take(self.mlp_out, at))
