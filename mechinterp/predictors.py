"""The Bayes-optimal answers to the Markov-chain task: five predictors of the next state.

A predictor either generalises (uses the sequence alone) or memorises (also knows the training
chains), and either counts states (1-point) or transitions (2-point):

- `one_gen`   1-Gen: how often each state occurred.
- `two_gen`   2-Gen: how often each state followed the current one.
- `one_mem_stationary`, `one_mem_transition`   1-Mem: recognises the chain by its state counts and
  reads out the chain's stationary distribution, or its row for the current state.
- `two_mem`   2-Mem: recognises the chain by everything seen; no predictor does better on it.

At position p each gives log-probabilities (nats) of state p + 1 from states 0..p. Everything is
exact, vectorised over sequences and positions, in float64. The four algorithms are those of
"Distinct mechanisms underlying in-context learning in transformers" (arXiv 2604.12151); 1-Gen's
smoothing is ours.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechinterp.chains import check_states
from mechinterp.memorising_predictors import (
    in_pieces,
    one_mem_stationary,
    one_mem_transition,
    two_mem,
)

__all__ = [
    "MEMORISING",
    "PREDICTORS",
    "matched_concentration",
    "one_gen",
    "one_mem_stationary",
    "one_mem_transition",
    "predict_all",
    "two_gen",
    "two_mem",
]

PREDICTORS = ("one_gen", "two_gen", "one_mem_stationary", "one_mem_transition", "two_mem")

MEMORISING = ("one_mem_stationary", "one_mem_transition", "two_mem")
"""Predictors that need the training chains; they do not exist when every chain is fresh."""


def matched_concentration(n_states: int, dirichlet: float = 1.0) -> float:
    """Which Dirichlet is as wide as the stationary distribution of a random chain?

    With C states and Dirichlet(c) rows, an entry of a row has variance (1/C)(1 - 1/C)/(Cc + 1).
    A stationary probability is close to the mean of its column, C independent entries, so its
    variance is that divided by C. A Dirichlet(c0) has variance (1/C)(1 - 1/C)/(C c0 + 1); equal
    variances need C c0 + 1 = C(Cc + 1), that is c0 = Cc + 1 - 1/C. This is the leading order in
    1/C: for uniform rows the true variance is 30 % larger at C = 5 and 3 % at C = 40, which moves
    the predictor very little.

    Args:
        n_states: C.
        dirichlet: c.

    Returns:
        c0; C + 1 - 1/C for uniform rows.
    """
    return n_states * dirichlet + 1.0 - 1.0 / n_states


def one_gen(
    tokens: Int[Tensor, "batch pos"], n_states: int, dirichlet: float = 1.0
) -> Float[Tensor, "batch pos state"]:
    """1-Gen: what do the state counts alone say about the next state?

    The posterior mean of the stationary distribution under a Dirichlet prior of matched width
    (see `matched_concentration`), (count of s + c0) / (states seen + C c0).

    Args:
        tokens: states.
        n_states: C.
        dirichlet: concentration of the rows of the ensemble.

    Returns:
        Log-probabilities of the next state.

    Raises:
        InputError: a token is not a state.
    """
    check_states(tokens, n_states)
    counts = F.one_hot(tokens, n_states).double().cumsum(1)
    smoothed = counts + matched_concentration(n_states, dirichlet)
    return (smoothed / smoothed.sum(-1, keepdim=True)).log()


def two_gen(
    tokens: Int[Tensor, "batch pos"], n_states: int, dirichlet: float = 1.0
) -> Float[Tensor, "batch pos state"]:
    """2-Gen: what do the transitions seen so far say about the row of the current state?

    The posterior mean of that row, (count of a -> s + c) / (departures from a + C c). It leaves
    out what the first state says about the chain through the stationary distribution.

    Args:
        tokens: states.
        n_states: C.
        dirichlet: concentration c of the rows.

    Returns:
        Log-probabilities of the next state.

    Raises:
        InputError: a token is not a state.
    """
    check_states(tokens, n_states)

    def predict(part: Tensor) -> Tensor:
        # At pos, the state after every earlier visit to the current state; float32 counts are
        # exact, and a matmul is much faster than a cumulative sum over C * C transitions.
        same = (part[:, :, None] == part[:, None, :-1]).float().tril(-1)
        counts = (same @ F.one_hot(part[:, 1:], n_states).float()).double()
        smoothed = counts + dirichlet
        return (smoothed / smoothed.sum(-1, keepdim=True)).log()

    return in_pieces(predict, tokens, tokens.shape[1] * (tokens.shape[1] + n_states))


def predict_all(
    tokens: Int[Tensor, "batch pos"],
    n_states: int,
    chains: Float[Tensor, "chain state next"] | None = None,
    dirichlet: float = 1.0,
) -> dict[str, Float[Tensor, "batch pos state"]]:
    """Gives the log-probabilities of every predictor that exists, by name.

    Args:
        tokens: states.
        n_states: C.
        chains: the training chains; None when every sequence had a fresh chain, and then the
            memorising predictors are left out.
        dirichlet: concentration of the rows of the ensemble.

    Returns:
        Log-probabilities (nats) by name, in the order of `PREDICTORS`.

    Raises:
        InputError: a token is not a state, or the chains are not transition matrices.
    """
    answers = {
        "one_gen": one_gen(tokens, n_states, dirichlet),
        "two_gen": two_gen(tokens, n_states, dirichlet),
    }
    if chains is not None:
        answers["one_mem_stationary"] = one_mem_stationary(tokens, chains)
        answers["one_mem_transition"] = one_mem_transition(tokens, chains)
        answers["two_mem"] = two_mem(tokens, chains)
    return answers
