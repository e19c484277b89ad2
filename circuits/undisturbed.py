"""Leaves a model exactly as it was found, whatever happens inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from circuits.heads import check_model

LAZY_TABLES = ("alibi", "rotary_sin", "rotary_cos")
"""What TransformerLens's attention fills in or grows during a forward pass."""


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Runs a block without gradients, and afterwards takes back what a forward pass leaves behind.

    Parameters, hooks, flags and training mode are not touched by this package at all; tables that
    TransformerLens's attention builds lazily, the grad mode and the global random state are put
    back, also after an exception or Ctrl-C.
    """
    check_model(model)
    tables = [
        (block.attn, name, getattr(block.attn, name))
        for block in model.blocks
        for name in LAZY_TABLES
        if hasattr(block.attn, name)
    ]
    state = torch.get_rng_state()
    try:
        # Leaving inference mode, should the caller be in it: worker threads would not be.
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        torch.set_rng_state(state)
        for attn, name, table in tables:
            setattr(attn, name, table)
