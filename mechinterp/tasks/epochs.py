"""Shuffled epochs that start anywhere: what a run sees at a step depends on its seed alone."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from mechinterp.tasks.base import fork


def epoch_stream(
    generator: torch.Generator, n: int, start: int, size: int
) -> Int[Tensor, " batch"]:
    """Gives `size` entries, from number `start` on, of the permutations of all epochs in a row.

    Every epoch holds each of 0 ... n-1 once, in an order forked from the generator's seed and the
    number of the epoch. No state is kept beside a cache of the newest orders.

    Args:
        generator: only its initial seed is read.
        n: entries in an epoch.
        start: number of the first entry, from 0.
        size: entries to give; they may span epochs.
    """
    parts, end = [], start + size
    while start < end:
        epoch, offset = divmod(start, n)
        order = _epoch_order(generator.initial_seed(), epoch, n)
        parts.append(order[offset : offset + end - start])
        start += len(parts[-1])
    return torch.cat(parts)


@lru_cache(maxsize=4)
def _epoch_order(seed: int, epoch: int, n: int) -> Tensor:
    return torch.randperm(n, generator=fork(torch.Generator().manual_seed(seed), epoch))
