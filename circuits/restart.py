"""One recorded forward pass, and the rest of a pass started again from any point of it.

An intervention in layer 3 leaves layers 0 to 2 as they were. So the clean pass is recorded once,
and every intervention computes only what comes after it, at the scored positions alone where
nothing else is read: in plain tensors where the model carries no hook and is of a kind that they
know, and through TransformerLens's own blocks, with all their hooks, otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.model_weights import read_weights
from circuits.plain_pass import PlainPass

STREAMS = {
    "resid_pre": "hook_resid_pre",
    "resid_mid": "hook_resid_mid",
    "attn_out": "hook_attn_out",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
    "z": "attn.hook_z",
    "pattern": "attn.hook_pattern",
    "v": "attn.hook_v",
}
_SELF_CHECK_EXAMPLES = 2


@dataclass(frozen=True)
class Recording:
    """What one forward pass left behind.

    Attributes:
        streams: the recorded activations of each kind, one tensor a layer.
        logits: `batch scored d_vocab`, in float32 or better.
        shortformer_pos_embed: positions of a shortformer model, which every block reads.
    """

    streams: dict[str, tuple[Tensor, ...]]
    logits: Tensor
    shortformer_pos_embed: Tensor | None

    def __getitem__(self, stream: str) -> tuple[Tensor, ...]:
        return self.streams[stream]


@torch.no_grad()
def record(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    scored: Sequence[int],
    streams: Sequence[str],
) -> Recording:
    """Runs the model once and keeps some of its activations.

    Costs one forward pass. Hooks that were on the model stay there and act.

    Args:
        model: a HookedTransformer.
        tokens: the batch.
        scored: positions whose logits are kept, in that order.
        streams: kinds of activation to keep, keys of `STREAMS`.

    Returns:
        The recording. Its tensors are the model's own: read them, never write to them.
    """
    kept: dict[str, list[Tensor]] = {stream: [] for stream in streams}
    positions: list[Tensor] = []

    def keeper(store: list[Tensor]) -> Any:
        def keep(activation: Tensor, hook: Any) -> None:
            store.append(activation)

        return keep

    hooks = [
        (f"blocks.{layer}.{STREAMS[stream]}", keeper(kept[stream]))
        for stream in streams
        for layer in range(model.cfg.n_layers)
    ]
    if model.cfg.positional_embedding_type == "shortformer":
        hooks.append(("hook_pos_embed", keeper(positions)))
    final = model.run_with_hooks(tokens, fwd_hooks=hooks, stop_at_layer=model.cfg.n_layers)
    return Recording(
        {stream: tuple(tensors) for stream, tensors in kept.items()},
        read_out(model, final[:, list(scored)]),
        positions[0] if positions else None,
    )


@dataclass(frozen=True)
class Restart:
    """The rest of a forward pass, from some point on to the logits at the scored positions.

    Attributes:
        model: a HookedTransformer.
        scored: positions whose logits are wanted, in that order.
        shortformer_pos_embed: from the recording, one example (it is the same for all).
        plain: the same in plain tensors, where the model is of a kind that they know.
    """

    model: Any
    scored: tuple[int, ...]
    shortformer_pos_embed: Tensor | None = None
    plain: PlainPass | None = None

    @torch.no_grad()
    def from_resid_pre(
        self, layer: int, resid_pre: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs blocks `layer` and later; `layer` may be the number of layers."""
        if self.plain is not None and not hooked(self.model):
            return self.plain.from_resid_pre(layer, resid_pre)
        last = self.model.cfg.n_layers - 1
        residual = resid_pre
        for index in range(layer, last):
            residual = self.model.blocks[index](
                residual, shortformer_pos_embed=self.places(residual)
            )
        if layer <= last:
            return self._last_block(residual)
        return read_out(self.model, residual[:, list(self.scored)])

    @torch.no_grad()
    def from_attn_out(
        self,
        layer: int,
        resid_pre: Float[Tensor, "batch pos d_model"],
        attn_out: Float[Tensor, "batch pos d_model"],
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs everything after the attention of block `layer`."""
        resid_pre, attn_out = self._trimmed(layer, resid_pre), self._trimmed(layer, attn_out)
        if self.plain is not None and not hooked(self.model):
            return self.plain.from_attn_out(layer, resid_pre, attn_out)
        block = self.model.blocks[layer]
        attn_out = block.hook_attn_out(attn_out)
        cfg = self.model.cfg
        if cfg.parallel_attn_mlp:
            mlp_out = block.apply_mlp(block.ln2(_mlp_in(block, resid_pre)))
            return self._after_block(layer, resid_pre + attn_out + mlp_out)
        if cfg.attn_only:
            return self._after_block(layer, resid_pre + attn_out)
        return self._after_mid(layer, block.hook_resid_mid(resid_pre + attn_out))

    @torch.no_grad()
    def from_resid_mid(
        self, layer: int, resid_mid: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch scored d_vocab"]:
        """Runs the MLP of block `layer` and everything after it (blocks in sequence only)."""
        resid_mid = self._trimmed(layer, resid_mid)
        if self.plain is not None and not hooked(self.model):
            return self.plain.from_resid_mid(layer, resid_mid)
        return self._after_mid(layer, resid_mid)

    @torch.no_grad()
    def attn_out(
        self, layer: int, z: Float[Tensor, "batch pos head_index d_head"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """Gives what the attention of block `layer` writes when its heads carry `z`."""
        block = self.model.blocks[layer]
        weight = block.attn.W_O.flatten(0, 1).T
        out = F.linear(z.flatten(2).to(weight.dtype), weight, block.attn.b_O)
        return block.ln1_post(out) if self.model.cfg.use_normalization_before_and_after else out

    def _last_block(self, residual: Tensor) -> Tensor:
        """Attention at all positions, then the MLP and the rest at the scored ones alone."""
        layer = self.model.cfg.n_layers - 1
        block, places = self.model.blocks[layer], self.places(residual)
        if self.model.cfg.use_attn_in or self.model.cfg.use_split_qkv_input:
            residual = block(residual, shortformer_pos_embed=places)
            return read_out(self.model, residual[:, list(self.scored)])
        residual = block.hook_resid_pre(residual)
        normed = block.ln1(residual)
        placed = normed if places is None else normed + places
        attn_out = block.attn(query_input=placed, key_input=placed, value_input=normed)
        if self.model.cfg.use_normalization_before_and_after:
            attn_out = block.ln1_post(attn_out)
        return self.from_attn_out(layer, residual, attn_out)

    def _after_mid(self, layer: int, resid_mid: Tensor) -> Tensor:
        block = self.model.blocks[layer]
        mlp_out = block.apply_mlp(block.ln2(_mlp_in(block, resid_mid)))
        return self._after_block(layer, resid_mid + mlp_out)

    def _after_block(self, layer: int, resid_post: Tensor) -> Tensor:
        resid_post = self.model.blocks[layer].hook_resid_post(resid_post)
        if layer == self.model.cfg.n_layers - 1:
            return read_out(self.model, resid_post)
        return self.from_resid_pre(layer + 1, resid_post)

    def _trimmed(self, layer: int, stream: Tensor) -> Tensor:
        """After the last attention positions no longer speak to each other."""
        last = layer == self.model.cfg.n_layers - 1
        return stream[:, list(self.scored)] if last else stream

    def places(self, residual: Tensor) -> Tensor | None:
        """The position embeddings that a block of a shortformer model reads beside its input."""
        if self.shortformer_pos_embed is None:
            return None
        return self.shortformer_pos_embed[:1].expand(residual.shape[0], -1, -1)


def restart_of(
    model: Any, tokens: Int[Tensor, "batch pos"], clean: Recording, scored: tuple[int, ...]
) -> Restart:
    """Gives the restarts that belong to a recording, after checking them against the model.

    From every recorded stream of every layer the logits of the first examples are computed again,
    and have to agree with a plain forward pass of the model.

    Raises:
        InputError: if they do not, because the model's blocks are built in another way, or a hook
            on the model changes an activation further each time it is applied.
    """
    places = None if clean.shortformer_pos_embed is None else clean.shortformer_pos_embed[:1]
    restart = Restart(model, scored, places, _plain_pass(model, scored, places))
    few = slice(_SELF_CHECK_EXAMPLES)
    with torch.no_grad():
        wanted = model(tokens[few])[:, list(scored)].to(clean.logits.dtype)
    tolerance = 2e-2 if model.cfg.dtype in (torch.bfloat16, torch.float16) else 1e-4
    scale = max(1.0, float(wanted.abs().max()))
    for stream, layers in clean.streams.items():
        for layer in range(model.cfg.n_layers) if stream in _RESTARTS else ():
            resid_pre = clean["resid_pre"][layer][few]
            found = _RESTARTS[stream](restart, layer, resid_pre, layers[layer][few])
            error = float((found - wanted).abs().max())
            if not error <= tolerance * scale:
                raise InputError(
                    f"starting again from {stream} of layer {layer} gives other logits than the "
                    f"model itself (off by {error:.2g}): either its blocks are not of a supported "
                    f"form (original_architecture={model.cfg.original_architecture!r}), or a hook "
                    "that you put on it adds to an activation each time it runs; remove the hook"
                )
    return restart


_RESTARTS: dict[str, Callable[[Restart, int, Tensor, Tensor], Tensor]] = {
    "z": lambda run, layer, pre, z: run.from_attn_out(layer, pre, run.attn_out(layer, z)),
    "resid_pre": lambda run, layer, pre, same: run.from_resid_pre(layer, same),
    "attn_out": lambda run, layer, pre, out: run.from_attn_out(layer, pre, out),
    "resid_mid": lambda run, layer, pre, mid: run.from_resid_mid(layer, mid),
}


def _plain_pass(model: Any, scored: tuple[int, ...], places: Tensor | None) -> PlainPass | None:
    """Nothing for a kind of model that plain tensors refuse, or one of low precision."""
    if model.cfg.dtype not in (torch.float32, torch.float64):
        return None
    try:
        return PlainPass(read_weights(model), scored, places)
    except InputError:
        return None


def hooked(model: Any) -> bool:
    """Whether anybody has put a hook on the model."""
    return any(point.fwd_hooks for point in model.hook_dict.values())


def _mlp_in(block: Any, residual: Tensor) -> Tensor:
    return block.hook_mlp_in(residual.clone()) if block.cfg.use_hook_mlp_in else residual


def read_out(
    model: Any, residual: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "batch pos d_vocab"]:
    """Final norm, unembedding and soft cap of a stream; float32 at the least.

    Args:
        model: a HookedTransformer.
        residual: the residual stream, at any positions.

    Returns:
        Logits at those positions.
    """
    with torch.no_grad():
        logits = model(residual, start_at_layer=model.cfg.n_layers)
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
