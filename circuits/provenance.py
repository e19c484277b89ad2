"""Everything that decides a number and is not in the number: saved beside every result."""

import hashlib
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

CENTRED = 1e-4
"""Weights whose mean is below this share of their spread count as centred."""


def provenance(model: Any, tokens: Int[Tensor, "batch pos"], **extra: Any) -> dict[str, Any]:
    """Says what a result was computed with: versions, weights, their processing, and the batch.

    Args:
        model: the model as it was used.
        tokens: the batch as it was given.
        extra: further plain values, for example `ablation="mean"`; tensors are hashed.

    Returns:
        Plain JSON values. `weight_processing` is measured on the weights, so it also describes
        models that were folded or centred elsewhere.
    """
    return {
        "torch": torch.__version__,
        "transformer_lens": _version("transformer-lens"),
        "python": platform.python_version(),
        "dtype": str(model.cfg.dtype).removeprefix("torch."),
        "device": str(tokens.device),
        "batch_sha256": tensor_sha256([tokens]),
        "batch_shape": list(tokens.shape),
        "weights_sha256": tensor_sha256(p for _, p in sorted(model.named_parameters())),
        "weight_processing": weight_processing(model),
        **{k: tensor_sha256([v]) if isinstance(v, Tensor) else v for k, v in extra.items()},
    }


def weight_processing(model: Any) -> dict[str, bool]:
    """Says which of TransformerLens's weight foldings a model's weights carry.

    Zero-ablation effects depend on them; the model's outputs, as a rule, do not.
    """
    writers = [model.embed.W_E, *(block.attn.W_O for block in model.blocks)]
    writers += [block.mlp.W_out for block in model.blocks if hasattr(block, "mlp")]
    writers = [weight for weight in writers if isinstance(weight, Tensor)]
    return {
        "layer_norm_folded": str(model.cfg.normalization_type).endswith("Pre"),
        "writing_weights_centred": all(_centred(weight) for weight in writers),
        "unembedding_centred": _centred(model.unembed.W_U),
        "value_biases_zero": all(not bool(block.attn.b_V.any()) for block in model.blocks),
    }


def tensor_sha256(tensors: Iterable[Tensor]) -> str:
    """Hash of shapes, dtypes and values, the same on every device."""
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{tuple(plain.shape)}{plain.dtype}".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _centred(weight: Tensor) -> bool:
    values = weight.detach().float()
    return bool(values.mean(-1).abs().max() <= CENTRED * values.std().clamp_min(1e-30))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
