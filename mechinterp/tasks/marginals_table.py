"""The random table from (B, z) to A, made once from its own seed."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechinterp.config import MarginalsConfig
from mechinterp.tasks.base import fork
from mechinterp.tasks.marginals_checks import (
    A_LENGTH,
    B_LENGTH,
    N_ANSWERS,
    N_CHARACTERS,
    check_config,
    n_selector_sets,
)

FIRST_CHARACTER = 4
"""Token id of the first character; PAD, BOS, EOS and SEP come before it."""

_SHUFFLE_WHOLE_SPACE = 2**22
"""Spaces up to this size are shuffled whole; larger ones are drawn from with rejection."""


@dataclass(frozen=True)
class MarginalsTable:
    """Every string of the task, as token ids; slot j of row i answers selector `z[i, j]`."""

    b: Int[Tensor, "n_b b_char"]
    z: Int[Tensor, "n_b k z_char"]
    a: Int[Tensor, "n_b k a_char"]


@lru_cache(maxsize=8)
def marginals_table(config: MarginalsConfig) -> MarginalsTable:
    """Makes the table of a configuration, or returns the one already made. Treat it as read-only.

    B strings, selectors and answers come from three generators forked from `mapping_seed`, so the
    same B and A go with any kind of selector, and all variants share one table. Saved runs rely on
    the same seed giving the same table: the order of the draws below must not change.

    Cost: about 50 ms for 20,000 pairs.

    Raises:
        InputError: the configuration cannot be built.
    """
    check_config(config)
    seed = torch.Generator().manual_seed(config.mapping_seed)
    b = unique_codes(config.n_b, N_CHARACTERS**B_LENGTH, fork(seed, 0))
    n_sets = n_selector_sets(config)
    z = unique_codes(n_sets * config.k, N_CHARACTERS**config.z_length, fork(seed, 1))
    # Supergroups are dealt out in turn: their sizes differ by one B at most.
    z = z.view(n_sets, config.k)[torch.arange(config.n_b) % n_sets]
    a = _answers(config, fork(seed, 2))
    return MarginalsTable(
        b=characters(b, B_LENGTH), z=characters(z, config.z_length), a=characters(a, A_LENGTH)
    )


def characters(codes: Int[Tensor, "*row"], length: int) -> Int[Tensor, "*row {length}"]:
    """Spells string numbers out as token ids: digits in base 36, the highest first."""
    powers = N_CHARACTERS ** torch.arange(length - 1, -1, -1)
    return codes[..., None] // powers % N_CHARACTERS + FIRST_CHARACTER


def codes_of(tokens: Int[Tensor, "*row length"]) -> Int[Tensor, "*row"]:
    """Gives the string numbers of spelled-out strings; undoes `characters`."""
    powers = N_CHARACTERS ** torch.arange(tokens.shape[-1] - 1, -1, -1)
    return ((tokens - FIRST_CHARACTER) * powers).sum(-1)


def unique_codes(n: int, space: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Draws `n` different numbers below `space`, uniformly and in random order.

    A small or crowded space is shuffled whole. Otherwise at least three quarters of the space stay
    free, so every pass of the rejection loop keeps most of what it draws.
    """
    if space <= _SHUFFLE_WHOLE_SPACE or 4 * n > space:
        return torch.randperm(space, generator=generator)[:n]
    codes = torch.empty(0, dtype=torch.long)
    while len(codes) < n:
        drawn = torch.cat([codes, torch.randint(space, (n - len(codes),), generator=generator)])
        values, inverse = torch.unique(drawn, return_inverse=True)
        first = torch.full_like(values, len(drawn))
        first.scatter_reduce_(0, inverse, torch.arange(len(drawn)), "amin")
        codes = drawn[first.sort().values]
    return codes


def _answers(config: MarginalsConfig, generator: torch.Generator) -> Int[Tensor, "n_b k"]:
    """Draws globally different answers whose prefixes also differ inside every fibre."""
    n_b, k = config.n_b, config.k
    if config.distinct_prefix == 0 or k == 1:
        return unique_codes(n_b * k, N_ANSWERS, generator).view(n_b, k)
    n_prefixes = N_CHARACTERS**config.distinct_prefix
    n_suffixes = N_ANSWERS // n_prefixes
    member = prefix_sets(n_b, k, n_prefixes, n_suffixes, generator)
    slots = torch.rand(n_b, k, dtype=torch.float64, generator=generator).argsort(1)
    prefix = member.nonzero()[:, 1].view(n_b, k).gather(1, slots).flatten()
    # Answers that share a prefix get different suffixes, which makes all answers different.
    order = prefix.argsort(stable=True)
    suffixes = [unique_codes(n, n_suffixes, generator) for n in member.sum(0).tolist()]
    codes = torch.empty_like(prefix)
    codes[order] = prefix[order] * n_suffixes + torch.cat(suffixes)
    return codes.view(n_b, k)


def prefix_sets(
    n_b: int, k: int, n_prefixes: int, capacity: int, generator: torch.Generator
) -> Bool[Tensor, "n_b n_prefixes"]:
    """Draws a set of `k` prefixes for every B, no prefix used more than `capacity` times.

    Goes through the prefixes once. A row that still needs r of the m prefixes left takes this one
    with probability r/m, which draws every set with the same probability. Only where the alphabet
    is nearly used up does the capacity bind; then as many rows as needed are moved at random. A
    solution remains after every prefix, because r <= m for every row and the sum of all r is at
    most m times the capacity (deal the prefixes out in turn).
    """
    needed = torch.full((n_b,), k)
    member = torch.zeros(n_b, n_prefixes, dtype=torch.bool)
    open_places = n_b * k
    for prefix in range(n_prefixes):
        left = n_prefixes - prefix
        chosen = torch.randint(left, (n_b,), generator=generator) < needed
        drawn = int(chosen.sum())
        count = min(max(drawn, open_places - (left - 1) * capacity), capacity)
        if count != drawn:
            # Rows that need every prefix left keep this one; rows that need none never get it.
            movable = chosen & (needed < left) if count < drawn else ~chosen & (needed > 0)
            rows = movable.nonzero()[:, 0]
            moved = torch.randperm(len(rows), generator=generator)[: abs(count - drawn)]
            chosen[rows[moved]] = count > drawn
        member[:, prefix] = chosen
        needed -= chosen.long()
        open_places -= count
    return member
