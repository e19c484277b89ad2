"""Random Markov chains: Dirichlet rows, stationary distributions, sequences. All in float64."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.special import gammaincinv
from torch import Tensor

from circuits.errors import InputError

SMALLEST_DRAW = 2.0**-54
"""What a uniform draw of exactly 0 stands for: the middle of [0, 2**-53), which it represents."""

SMALLEST_PROBABILITY = 1e-100
"""Floor of a row's entries, so that every state can be reached from every other one."""


def dirichlet_rows(
    draws: Float[Tensor, "chain state next draw"], concentration: float
) -> Float[Tensor, "chain state next"]:
    """Which transition matrices do these uniform draws stand for?

    Every entry is a gamma variate by inversion, taken as Gamma(c + 1) times U ** (1 / c) so that a
    small concentration cannot underflow, and rows are normalised in log space. Exact for every
    draw in [0, 1), 0 included.

    Args:
        draws: uniform numbers in [0, 1), two for each entry.
        concentration: the parameter of the symmetric Dirichlet, positive.

    Returns:
        Rows that sum to 1 up to rounding, each entry at least `SMALLEST_PROBABILITY`.
    """
    uniform = draws.double().clamp(min=SMALLEST_DRAW)
    if concentration == 1.0:  # Gamma(1) is exponential: one logarithm in place of an inversion
        log_gamma = (-uniform[..., 0].log()).log()
    else:
        boosted = gammaincinv(concentration + 1.0, uniform[..., 0].numpy())
        log_gamma = torch.as_tensor(boosted).log() + uniform[..., 1].log() / concentration
    return log_gamma.softmax(-1).clamp(min=SMALLEST_PROBABILITY)


def draw_chains(
    n: int, n_states: int, concentration: float, generator: torch.Generator
) -> Float[Tensor, "chain state next"]:
    """Draws transition matrices with independent Dirichlet rows.

    The first m of n chains are the m chains drawn from the same generator state.

    Args:
        n: chains.
        n_states: states of each.
        concentration: the parameter of the symmetric Dirichlet.
        generator: is advanced.

    Returns:
        The chains, float64.
    """
    draws = torch.rand(n, n_states, n_states, 2, generator=generator, dtype=torch.float64)
    return dirichlet_rows(draws, concentration)


def stationary(chains: Float[Tensor, "chain state next"]) -> Float[Tensor, "chain state"]:
    """Which distribution does each chain keep?

    Solves pi T = pi by Gaussian elimination without subtractions (Grassmann, Taksar and Heyman
    1985), which stays accurate to rounding when a chain hardly ever leaves some states.

    Args:
        chains: transition matrices.

    Returns:
        The stationary distributions, float64.

    Raises:
        InputError: a chain has no unique stationary distribution.
    """
    flow = chains.double().clone()
    n_states = flow.shape[-1]
    for state in range(n_states - 1, 0, -1):
        leaving = flow[:, state, :state].sum(-1, keepdim=True)
        flow[:, :state, state] /= leaving
        flow[:, :state, :state] += flow[:, :state, state, None] * flow[:, state, None, :state]
    share = torch.zeros(flow.shape[:2], dtype=torch.float64)
    share[:, 0] = 1.0
    for state in range(1, n_states):
        share[:, state] = (share[:, :state] * flow[:, :state, state]).sum(-1)
        share = share / share.sum(-1, keepdim=True)  # at each step, or tiny rates overflow
    if not share.isfinite().all():
        bad = int((~share.isfinite().all(-1)).nonzero()[0])
        raise InputError(
            f"chain {bad} has no unique stationary distribution: some states cannot be reached "
            "from others; give chains whose states all communicate"
        )
    return share


def entropy_rate(chains: Float[Tensor, "chain state next"]) -> Float[Tensor, " chain"]:
    """How many nats does the next state carry for somebody who knows the chain?

    Args:
        chains: transition matrices.

    Returns:
        The expected entropy of a row under the stationary distribution, in nats.
    """
    row_entropy = torch.special.entr(chains.double()).sum(-1)
    return (stationary(chains) * row_entropy).sum(-1)


def cumulative(probabilities: Float[Tensor, "*batch state"]) -> Float[Tensor, "*batch state"]:
    """Gives cumulative sums for `pick`, divided by their last value so that they end in exactly 1.

    A row that sums to 1 only up to rounding then picks neither a state past the last one nor a
    state of probability 0.
    """
    total = probabilities.double().cumsum(-1)
    return total / total[..., -1:]


def pick(
    cumulative: Float[Tensor, "batch state"], uniform: Float[Tensor, " batch"]
) -> Int[Tensor, " batch"]:
    """Which state does each uniform draw pick?

    Args:
        cumulative: sums of probabilities up to and including each state.
        uniform: draws in [0, 1).

    Returns:
        The first state whose sum exceeds the draw.
    """
    boundaries = cumulative.contiguous()
    return torch.searchsorted(boundaries, uniform.unsqueeze(-1), right=True).squeeze(-1)


@dataclass(frozen=True)
class ChainSampler:
    """Chains made ready to be sampled from, started in their stationary distributions."""

    chains: Float[Tensor, "chain state next"]
    first: Float[Tensor, "chain state"]
    """Cumulative stationary distributions."""
    rows: Float[Tensor, "chain state next"]
    """Cumulative rows."""

    @classmethod
    def of(cls, chains: Float[Tensor, "chain state next"]) -> "ChainSampler":
        """Prepares transition matrices.

        Raises:
            InputError: a chain has no unique stationary distribution.
        """
        return cls(chains, cumulative(stationary(chains)), cumulative(chains))

    def sample(
        self, chain: Int[Tensor, " batch"], uniform: Float[Tensor, "batch pos"]
    ) -> Int[Tensor, "batch pos"]:
        """Draws one sequence of each listed chain.

        Args:
            chain: the chain of each sequence.
            uniform: draws in [0, 1), one for each state.

        Returns:
            The sequences, one column for each column of draws.
        """
        n_states = self.rows.shape[-1]
        rows = self.rows.flatten(0, 1)
        draws = uniform.T.contiguous()
        states = [pick(self.first[chain], draws[0])]
        for draw in draws[1:]:
            states.append(pick(rows.index_select(0, chain * n_states + states[-1]), draw))
        return torch.stack(states, dim=1)


def check_states(tokens: Int[Tensor, "batch pos"], n_states: int) -> None:
    """Refuses tokens that are not states.

    Args:
        tokens: what should be states.
        n_states: states are 0 to n_states - 1.

    Raises:
        InputError: some token is outside that range.
    """
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < n_states:
        raise InputError(
            f"tokens run from {int(tokens.min())} to {int(tokens.max())}, but a chain of "
            f"{n_states} states has tokens 0 to {n_states - 1}: use the chains' own task"
        )
