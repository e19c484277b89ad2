"""The rest of a forward pass in plain tensors: faster than hooked blocks, where nobody hooks them.

TransformerLens's blocks spend about half of their time on attention and norms that plain tensors do
in a third of it. Whoever uses this checks it against the model first (`restart.restart_of`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.attention_math import (
    Placement,
    all_columns,
    attention_pattern,
    head_outputs,
    project,
    score_bias,
)
from circuits.model_weights import ModelWeights


@dataclass(frozen=True)
class PlainPass:
    """A model without hooks, read at some positions.

    Attributes:
        weights: the model's weights.
        scored: positions whose logits are wanted, in that order.
        pos_embed: position embeddings that queries and keys get in a shortformer model, for one
            example.
    """

    weights: ModelWeights
    scored: tuple[int, ...]
    pos_embed: Float[Tensor, "1 pos d_model"] | None = None

    def from_resid_pre(
        self, layer: int, resid: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs blocks `layer` and later; the last one at the scored positions alone."""
        last = self.weights.n_layers - 1
        for index in range(layer, last):
            resid = self._block(index, resid, tuple(range(resid.shape[1])))
        if layer > last:
            return self.weights.unembed(resid[:, list(self.scored)])
        at = tuple(sorted(self.scored))
        logits = self.weights.unembed(self._block(last, resid, at))
        return logits if at == self.scored else logits[:, [at.index(p) for p in self.scored]]

    def from_attn_out(
        self,
        layer: int,
        resid_pre: Float[Tensor, "batch at d_model"],
        attn_out: Float[Tensor, "batch at d_model"],
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs all after the attention of block `layer`; in the last one `at` are those scored."""
        if not self.weights.mlps:
            return self._after(layer, resid_pre + attn_out)
        mid = resid_pre + attn_out
        mlp_out = self.weights.mlps[layer](resid_pre if self.weights.parallel else mid)
        return self._after(layer, mid + mlp_out)

    def from_resid_mid(
        self, layer: int, resid_mid: Float[Tensor, "batch at d_model"]
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs the MLP of block `layer` and all after it; in the last one `at` are those scored."""
        return self._after(layer, resid_mid + self.weights.mlps[layer](resid_mid))

    def _after(self, layer: int, resid_post: Tensor) -> Tensor:
        if layer == self.weights.n_layers - 1:
            return self.weights.unembed(resid_post)
        return self.from_resid_pre(layer + 1, resid_post)

    def _block(self, layer: int, resid: Tensor, at: tuple[int, ...]) -> Tensor:
        """One block, its output at the positions `at` (ascending)."""
        attention, n_heads = self.weights.attention[layer], self.weights.n_heads
        placement = Placement(resid.shape[1], self.pos_embed, None, None)
        columns, every = all_columns(n_heads), tuple(range(resid.shape[1]))
        here = resid if at == every else resid[:, list(at)]
        if at == every:
            q, k, v = project(attention, placement, resid, columns, every).split(n_heads, dim=-3)
        else:
            q = project(attention, placement, here, columns[:n_heads], at)
            kv = project(attention, placement, resid, columns[n_heads:], every)
            k, v = kv.split(n_heads, dim=-3)
        bias = score_bias(attention, placement)[..., list(at), :]
        z = torch.matmul(attention_pattern(attention, q, k, bias, False), v)
        out = here + head_outputs(attention, z) + attention.b_O
        if not self.weights.mlps:
            return out
        return out + self.weights.mlps[layer](here if self.weights.parallel else out)
