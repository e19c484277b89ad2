"""Models far larger than their weights, refused before any of it is allocated."""

import math
from pathlib import Path

from circuits.errors import InputError
from mechinterp.config import ModelConfig
from mechinterp.runs.header import layout

LONGEST = 32768
"""TransformerLens makes a mask of n_ctx by n_ctx bytes for every layer; 1 GiB is the limit here."""


def refuse_oversize(config: ModelConfig, weights: Path) -> None:
    """Compares the size a configuration describes with what a file of weights holds.

    A damaged or hand-written configuration could ask for any amount of memory; that the weights
    fit exactly is checked when they are loaded.

    Args:
        config: the architecture.
        weights: a safetensors file; only its header is read.

    Raises:
        InputError: the model would be more than ten times larger, or its context too long.
    """
    refuse_larger(config, sum(_numel(entry) for entry in layout(weights).values()))


def refuse_larger(config: ModelConfig, stored: int) -> None:
    """Compares the size a configuration describes with a number of stored parameters.

    Raises:
        InputError: as `refuse_oversize`.
    """
    described = _n_params(config)
    if described > 10 * stored + 10**7:
        raise InputError(
            f"the weights do not fit the configuration: it describes {described:.3g} parameters, "
            f"the checkpoint holds {stored:.3g}"
        )
    if config.n_ctx > LONGEST:
        raise InputError(f"n_ctx is {config.n_ctx}; at most {LONGEST} can be loaded")


def _numel(entry: str) -> int:
    sizes = entry[entry.index("[") + 1 : -1]
    return math.prod(int(size) for size in sizes.split(",")) if sizes else 1


def _n_params(config: ModelConfig) -> int:
    """About how many parameters a configuration describes, without its token embeddings."""
    d_head = config.d_head or config.d_model // config.n_heads
    d_mlp = 0 if config.attn_only else config.d_mlp or 4 * config.d_model
    layer = config.d_model * (4 * config.n_heads * d_head + 2 * d_mlp)
    return config.n_layers * (layer + config.n_heads * d_head) + config.n_ctx * config.d_model
