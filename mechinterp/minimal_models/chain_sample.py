"""Sequences of fresh chains for the minimal models, with the row that the last state asks for."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.tasks.chain_sequences import draw_sequences

ELEMENTS = 2**18
"""Numbers in one piece of work; about twenty arrays of this size live at once (40 MB)."""


@dataclass(frozen=True)
class ChainSample:
    """One sequence from each of many chains: the limit K to infinity of the task."""

    tokens: Int[Tensor, "chain pos"]
    """States; the prediction is made at the last one."""
    next_row: Float[Tensor, "chain state"]
    """True probabilities of the state after the last one."""

    def __len__(self) -> int:
        """Gives the number of chains."""
        return len(self.tokens)

    @property
    def length(self) -> int:
        """States in a sequence, N."""
        return self.tokens.shape[1]

    @property
    def n_states(self) -> int:
        """States of a chain, C."""
        return self.next_row.shape[1]

    @property
    def entropy(self) -> float:
        """Mean entropy of the true rows in nats: the least loss that any predictor can have."""
        return torch.special.entr(self.next_row).sum(-1).mean().item()

    def last(self, length: int) -> "ChainSample":
        """Keeps the last states of every sequence.

        A stationary sequence cut short at its start is stationary, so that lengths can be compared
        on the same chains and the same questions.

        Args:
            length: states to keep.

        Raises:
            InputError: the sequences are shorter than that, or `length` is below 2.
        """
        if not 2 <= length <= self.length:
            raise InputError(
                f"length is {length}; this sample has sequences of {self.length} states, "
                f"so it has to be in 2..{self.length}"
            )
        return ChainSample(self.tokens[:, self.length - length :], self.next_row)

    def pieces(self, per_state: int = 1) -> Iterator["ChainSample"]:
        """Gives the sample in pieces that bound the memory of whatever is computed on them.

        Args:
            per_state: numbers held for each state of a sequence.
        """
        size = max(1, ELEMENTS // (self.length * per_state))
        rows = zip(self.tokens.split(size), self.next_row.split(size), strict=True)
        return (ChainSample(tokens, row) for tokens, row in rows)


def draw_sample(
    n: int, n_states: int, length: int, generator: torch.Generator, dirichlet: float = 1.0
) -> ChainSample:
    """Draws `n` fresh chains and a stationary sequence of each.

    Args:
        n: chains.
        n_states: C.
        length: N.
        generator: is advanced.
        dirichlet: concentration of the rows.

    Returns:
        The sample, float64. Costs about 0.2 microseconds a state.

    Raises:
        InputError: fewer than 2 chains, states or positions.
    """
    for name, value in (("n", n), ("n_states", n_states), ("length", length)):
        if value < 2:
            raise InputError(f"{name} is {value}; it has to be at least 2")
    config = MarkovChainsConfig(n_states=n_states, k="inf", length=length, dirichlet=dirichlet)
    drawn = draw_sequences(config, torch.arange(n), generator)
    return ChainSample(drawn.tokens, drawn.chains[drawn.chain, drawn.tokens[:, -1]])
