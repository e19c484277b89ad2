"""HookedTransformers from a configuration, and their weights without the constant buffers."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.errors import InputError
from mechinterp.config import ModelConfig

BUFFERS = ("mask", "IGNORE", "rotary_sin", "rotary_cos", "alibi")
"""State-dict entries that follow from the configuration and are never stored."""


def build_model(
    config: ModelConfig,
    d_vocab: int,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> HookedTransformer:
    """Builds a freshly initialised model; the global random state is left as it was.

    TransformerLens reseeds torch, numpy and random when a configuration carries a seed, which
    would tie data order to model construction; here the seed acts inside this call only.

    Args:
        config: the architecture and the seed of the initial weights.
        d_vocab: number of token ids.
        device: where the weights live.
        dtype: their precision.

    Returns:
        The model in training mode.

    Raises:
        InputError: TransformerLens refuses the configuration; its reason is passed on.
    """
    d_head = config.d_head or config.d_model // config.n_heads
    with _isolated_seed(config.init_seed), warnings.catch_warnings():
        # TransformerLens 3.9 announces the removal in 4.0, which the pin in pyproject answers.
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        try:
            return HookedTransformer(
                HookedTransformerConfig(
                    n_layers=config.n_layers,
                    n_heads=config.n_heads,
                    d_model=config.d_model,
                    d_head=d_head,
                    d_mlp=None if config.attn_only else (config.d_mlp or 4 * config.d_model),
                    act_fn=config.act_fn,
                    attn_only=config.attn_only,
                    normalization_type=None
                    if config.normalization == "none"
                    else config.normalization,
                    positional_embedding_type=config.positions,
                    rotary_dim=d_head if config.positions == "rotary" else None,
                    n_ctx=config.n_ctx,
                    d_vocab=d_vocab,
                    seed=None,
                    device=device,
                    dtype=dtype,
                )
            )
        except (AssertionError, ValueError) as error:
            raise InputError(f"the model configuration is not possible: {error}") from error


@contextmanager
def _isolated_seed(seed: int) -> Iterator[None]:
    # TransformerLens initialises with torch alone; forking it restores what the caller had.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def weights_of(model: HookedTransformer) -> dict[str, Tensor]:
    """Gives the trained tensors by their TransformerLens names, without the constant buffers."""
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.rpartition(".")[2] not in BUFFERS
    }


def load_weights(model: HookedTransformer, weights: Mapping[str, Tensor]) -> HookedTransformer:
    """Puts weights into a model, strictly.

    Args:
        model: a model of the right configuration; changed in place.
        weights: tensors by TransformerLens name; constant buffers are not needed.

    Returns:
        The same model.

    Raises:
        InputError: keys are missing or unexpected, a shape differs, or a value is NaN or infinite.
    """
    own = weights_of(model)
    missing, unexpected = sorted(set(own) - set(weights)), sorted(set(weights) - set(own))
    if missing or unexpected:
        raise InputError(
            f"the weights do not fit the configuration: missing {_some(missing)}; "
            f"unexpected {_some(unexpected)}"
        )
    for name, tensor in own.items():
        given = weights[name]
        if given.shape != tensor.shape:
            raise InputError(
                f"the weights do not fit the configuration: {name} is {tuple(given.shape)}, "
                f"the model needs {tuple(tensor.shape)}"
            )
        if not torch.isfinite(given).all():
            raise InputError(f"{name} holds NaN or infinite values; this checkpoint is unusable")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])
    return model


def on_device(model: HookedTransformer, device: str) -> HookedTransformer:
    """Gives the model on a device.

    Raises:
        InputError: torch knows or has no such device.
    """
    if device == "cpu":
        return model
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!r} cannot be used: {reason}; use cpu") from error


def _some(names: list[str], n: int = 6) -> str:
    shown = ", ".join(names[:n]) or "none"
    return shown + (f" and {len(names) - n} more" if len(names) > n else "")
