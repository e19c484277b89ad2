"""A HookedTransformer's weights as plain tensors, or a refusal that names what is not supported.

With `streams.py` this is the only file of the package that knows how TransformerLens spells things.
Weights are read by HookedTransformer's property names (`blocks[i].attn.W_Q`, `embed.W_E`, ...),
which TransformerLens 4's native bridge mostly shares; `native_bridge.py` has the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError
from circuits.native_bridge import hooked_spelling

NORMALIZATIONS = ("LN", "LNPre", "RMS", "RMSPre", None)
POSITIONS = ("standard", "rotary", "shortformer", "alibi")
TILE = 512
"""Tokens that an MLP works on at once: a few hundred KiB of activations."""
POST_NORM = ("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM")


@dataclass(frozen=True)
class Norm:
    """A normalisation of the last axis; `kind` "none" hands its input on."""

    kind: Literal["layer", "rms", "none"]
    eps: float
    w: Tensor | None = None
    b: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        if self.kind == "none":
            return x
        if self.kind == "layer":
            return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x if self.w is None else x * self.w


@dataclass(frozen=True)
class Rotary:
    """Tables of the rotary embedding, one row a position."""

    sin: Float[Tensor, "n_ctx rotary_dim"]
    cos: Float[Tensor, "n_ctx rotary_dim"]
    adjacent: bool
    """Whether the pairs that turn together are neighbours (GPT-J) or half a width apart."""


@dataclass(frozen=True)
class AttentionWeights:
    """One layer's attention. Grouped keys and values are repeated for every query head."""

    norm: Norm
    W_qkv: Float[Tensor, "d_model three n_heads d_head"]
    b_qkv: Float[Tensor, "three n_heads d_head"]
    W_O: Float[Tensor, "n_heads d_head d_model"]
    b_O: Float[Tensor, " d_model"]
    scale: float
    soft_cap: float | None
    window: int | None
    alibi: Float[Tensor, " n_heads"] | None
    rotary: Rotary | None


@dataclass(frozen=True)
class MLPWeights:
    """One layer's MLP. A gated one has its gate's columns first in `W_in`."""

    norm: Norm
    W_in: Float[Tensor, "d_model d_pre"]
    b_in: Float[Tensor, " d_mlp"]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    gated: bool
    act: Callable[[Tensor], Tensor]
    mid_norm: Norm

    def __call__(self, x: Tensor) -> Tensor:
        """Output for a residual stream x; the norm is applied here.

        Tokens are worked on in tiles, so that hidden activations stay in the processor's cache.
        """
        flat = self.norm(x).reshape(-1, x.shape[-1])
        tiles = [self._tile(part) for part in flat.split(TILE)]
        return (tiles[0] if len(tiles) == 1 else torch.cat(tiles)).view(x.shape)

    def _tile(self, x: Tensor) -> Tensor:
        if self.gated:
            gate, linear = (x @ self.W_in).chunk(2, dim=-1)
            post = self.act(gate) * linear + self.b_in
        else:
            post = self.mid_norm(self.act(torch.addmm(self.b_in, x, self.W_in)))
        return torch.addmm(self.b_out, post, self.W_out)


@dataclass(frozen=True)
class ModelWeights:
    """A whole model as plain tensors, detached and in the dtype that effects are computed in."""

    W_E: Float[Tensor, "d_vocab_in d_model"]
    W_pos: Float[Tensor, "n_ctx d_model"] | None
    """None where positions are not embedded (rotary, ALiBi)."""
    pos_in_stream: bool
    """Whether position embeddings are part of the stream, or given to queries and keys alone."""
    embed_norm: Norm
    attention: tuple[AttentionWeights, ...]
    mlps: tuple[MLPWeights, ...]
    """Empty for attention-only models."""
    final_norm: Norm
    W_U: Float[Tensor, "d_model d_vocab"]
    b_U: Float[Tensor, " d_vocab"]
    logit_cap: float | None
    parallel: bool
    dtype: torch.dtype

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        return len(self.attention)

    @property
    def n_heads(self) -> int:
        """Query heads of each block."""
        return self.attention[0].W_O.shape[0]

    @property
    def numel(self) -> int:
        """Numbers in the large matrices."""
        large = [self.W_E, self.W_U]
        for attention in self.attention:
            large += [attention.W_qkv, attention.W_O]
        for mlp in self.mlps:
            large += [mlp.W_in, mlp.W_out]
        return sum(matrix.numel() for matrix in large)

    def unembed(self, resid: Tensor) -> Tensor:
        """Logits for a final residual stream; the final norm is applied here."""
        x = self.final_norm(resid)
        logits = torch.addmm(self.b_U, x.reshape(-1, x.shape[-1]), self.W_U)
        logits = logits.view(*x.shape[:-1], -1)
        return logits if self.logit_cap is None else soft_cap(logits, self.logit_cap)


def read_weights(model: Any) -> ModelWeights:
    """Reads a model's weights, without changing the model or entering any gradient's graph.

    Weights in bfloat16 or float16 are read in float32, so that effects are float32 numbers. Others
    share the model's memory where they can: read them anew after a training step.

    Args:
        model: a HookedTransformer, or TransformerLens 4's native bridge.

    Returns:
        Its weights as plain detached tensors.

    Raises:
        InputError: a feature that the factored forward pass does not know; the message names it.
    """
    refuse_unsupported(model)
    model = hooked_spelling(model)
    cfg = model.cfg
    dtype = torch.float64 if cfg.dtype == torch.float64 else torch.float32

    def plain(tensor: Tensor) -> Tensor:
        return tensor.detach().to(dtype)

    blocks = list(model.blocks)
    embed_norm = getattr(model.embed, "ln", None)
    embeds_positions = cfg.positional_embedding_type in ("standard", "shortformer")
    return ModelWeights(
        W_E=plain(model.embed.W_E),
        W_pos=plain(model.pos_embed.W_pos) if embeds_positions else None,
        pos_in_stream=cfg.positional_embedding_type == "standard",
        embed_norm=Norm("none", 0.0) if embed_norm is None else _layer_norm(embed_norm, plain),
        attention=tuple(_attention(block, cfg, plain) for block in blocks),
        mlps=() if cfg.attn_only else tuple(_mlp(block, cfg, plain) for block in blocks),
        final_norm=_norm(
            getattr(model, "ln_final", None), cfg, plain, rms=bool(getattr(cfg, "final_rms", False))
        ),
        W_U=plain(model.unembed.W_U).contiguous(),
        b_U=plain(model.unembed.b_U),
        logit_cap=_cap(cfg.output_logits_soft_cap),
        parallel=bool(cfg.parallel_attn_mlp),
        dtype=dtype,
    )


def refuse_unsupported(model: Any) -> None:
    """Raises InputError, naming the feature, for a model that cannot be factored exactly."""
    cfg, embed = getattr(model, "cfg", None), getattr(model, "embed", None)
    if cfg is None or not hasattr(embed, "W_E") or not hasattr(model, "blocks"):
        raise InputError(
            f"model={type(model).__name__} is not a TransformerLens decoder with cfg, embed.W_E "
            "and blocks: pass a HookedTransformer"
        )
    for feature, present in _unsupported(cfg).items():
        if present:
            raise InputError(
                f"model uses {feature}, which exact edge effects do not support: nothing was "
                "computed; use a model without it"
            )
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != cfg.dtype:
            raise InputError(
                f"parameter {name} is {parameter.dtype} but cfg.dtype is {cfg.dtype}: build the "
                f"model with dtype={parameter.dtype} (casting it afterwards leaves its tables and "
                "norms in the old dtype)"
            )


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`."""
    return cap * torch.tanh(x / cap)


def _unsupported(cfg: Any) -> dict[str, bool]:
    """Feature names, and whether the configuration asks for them."""

    def flag(name: str, default: Any = False) -> Any:
        return getattr(cfg, name, default)

    return {
        f"normalization_type={cfg.normalization_type!r}": cfg.normalization_type
        not in NORMALIZATIONS,
        f"positional_embedding_type={cfg.positional_embedding_type!r}": (
            cfg.positional_embedding_type not in POSITIONS
        ),
        f"dtype={cfg.dtype}": cfg.dtype
        not in (torch.float64, torch.float32, torch.bfloat16, torch.float16),
        "bidirectional attention": flag("attention_dir", "causal") != "causal",
        "normalisation after attention and MLP (use_normalization_before_and_after)": bool(
            flag("use_normalization_before_and_after")
        ),
        f"the post-norm architecture {flag('original_architecture', None)}": (
            flag("original_architecture", None) in POST_NORM
        ),
        "query and key normalisation (use_qk_norm)": bool(flag("use_qk_norm")),
        "clipped queries, keys and values (clip_qkv)": flag("clip_qkv", None) is not None,
        "log-n attention scaling (use_logn_attn)": bool(flag("use_logn_attn")),
        "dynamic NTK rotary scaling (use_dynamic_ntk_rope)": bool(flag("use_dynamic_ntk_rope")),
        "attention sinks (use_attention_sinks)": bool(flag("use_attention_sinks")),
        "mixture-of-experts MLPs (num_experts)": bool(flag("num_experts", None)),
        "4-bit weights (load_in_4bit)": bool(flag("load_in_4bit")),
        f"several devices (n_devices={flag('n_devices', 1)})": flag("n_devices", 1) > 1,
        "a gated MLP with a normalised activation": bool(flag("gated_mlp"))
        and str(cfg.act_fn).endswith("_ln"),
    }


def _norm(module: Any, cfg: Any, plain: Callable[[Tensor], Tensor], rms: bool = False) -> Norm:
    """A block's norm, or the final one, which `cfg.final_rms` makes an RMS norm."""
    kind = cfg.normalization_type
    if kind is None or module is None:
        return Norm("none", 0.0)
    w, b = getattr(module, "w", None), getattr(module, "b", None)
    return Norm(
        "layer" if kind.startswith("LN") and not rms else "rms",
        float(module.eps),
        plain(w) if isinstance(w, Tensor) else None,
        plain(b) if isinstance(b, Tensor) else None,
    )


def _attention(block: Any, cfg: Any, plain: Callable[[Tensor], Tensor]) -> AttentionWeights:
    attn = block.attn
    weights = torch.stack([plain(attn.W_Q), plain(attn.W_K), plain(attn.W_V)])
    slopes = None
    if cfg.positional_embedding_type == "alibi":
        ratio = 2.0 ** (-8 / cfg.n_heads)
        slopes = plain(torch.tensor([ratio ** (h + 1) for h in range(cfg.n_heads)]))
    rotary = None
    if cfg.positional_embedding_type == "rotary":
        rotary = Rotary(
            plain(attn.rotary_sin), plain(attn.rotary_cos), bool(cfg.rotary_adjacent_pairs)
        )
    return AttentionWeights(
        norm=_norm(block.ln1, cfg, plain),
        W_qkv=weights.permute(2, 0, 1, 3).contiguous(),
        b_qkv=torch.stack([plain(attn.b_Q), plain(attn.b_K), plain(attn.b_V)]),
        W_O=plain(attn.W_O).contiguous(),
        b_O=plain(attn.b_O),
        scale=float(attn.attn_scale),
        soft_cap=_cap(cfg.attn_scores_soft_cap),
        window=int(cfg.window_size) if getattr(attn, "attn_type", "global") == "local" else None,
        alibi=slopes,
        rotary=rotary,
    )


def _mlp(block: Any, cfg: Any, plain: Callable[[Tensor], Tensor]) -> MLPWeights:
    mlp = block.mlp
    W_in = plain(mlp.W_in)
    if cfg.gated_mlp:
        W_in = torch.cat([plain(mlp.W_gate), W_in], dim=-1)
    normalised = str(cfg.act_fn).endswith("_ln")
    return MLPWeights(
        norm=_norm(block.ln2, cfg, plain),
        W_in=W_in.contiguous(),
        b_in=plain(mlp.b_in),
        W_out=plain(mlp.W_out).contiguous(),
        b_out=plain(mlp.b_out),
        gated=bool(cfg.gated_mlp),
        act=mlp.act_fn,
        mid_norm=_layer_norm(mlp.ln, plain) if normalised else Norm("none", 0.0),
    )


def _layer_norm(module: Any, plain: Callable[[Tensor], Tensor]) -> Norm:
    """A norm that is a layer norm whatever the blocks use: a SoLU MLP's, the embedding's."""
    w, b = getattr(module, "w", None), getattr(module, "b", None)
    return Norm(
        "layer",
        float(module.eps),
        plain(w) if isinstance(w, Tensor) else None,
        plain(b) if isinstance(b, Tensor) else None,
    )


def _cap(value: float | None) -> float | None:
    return float(value) if value is not None and value > 0 else None
