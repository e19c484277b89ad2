"""The Bayes-optimal answers to the Markov-chain task: five predictors of the next state.

A predictor either generalises (uses the sequence alone) or memorises (also knows the training
chains), and either counts states (1-point) or transitions (2-point):

- `one_gen`   1-Gen: how often each state occurred.
- `two_gen`   2-Gen: how often each state followed the current one.
- `one_mem_stationary`, `one_mem_transition`   1-Mem: recognises the chain by its state counts and
  reads out the chain's stationary distribution, or its row for the current state.
- `two_mem`   2-Mem: recognises the chain by everything seen; no predictor does better on it.

At position p each gives log-probabilities (nats) of state p + 1 from states 0..p. Everything is
exact, vectorised over sequences and positions, in float64; the definitions are those of section 3
of the paper notes on "Distinct mechanisms underlying in-context learning in transformers"
(arXiv 2604.12151), where 1-Gen's smoothing is ours.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.chains import stationary

PREDICTORS = ("one_gen", "two_gen", "one_mem_stationary", "one_mem_transition", "two_mem")

MEMORISING = ("one_mem_stationary", "one_mem_transition", "two_mem")
"""Predictors that need the training chains; they do not exist when every chain is fresh."""

ELEMENTS = 2**22
"""Numbers held at once: sequences are taken in pieces of about 32 MB."""

TINY = torch.finfo(torch.float64).tiny
"""Stands for a probability of 0, so that logarithms stay finite."""


def matched_concentration(n_states: int, dirichlet: float = 1.0) -> float:
    """Which Dirichlet is as wide as the stationary distribution of a random chain?

    With C states and Dirichlet(c) rows, an entry of a row has variance (1/C)(1 - 1/C)/(Cc + 1).
    A stationary probability is close to the mean of its column, C independent entries, so its
    variance is that divided by C. A Dirichlet(c0) has variance (1/C)(1 - 1/C)/(C c0 + 1); equal
    variances need C c0 + 1 = C(Cc + 1), that is c0 = Cc + 1 - 1/C.

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
    _check_tokens(tokens, n_states)
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
    _check_tokens(tokens, n_states)

    def predict(part: Tensor) -> Tensor:
        # The transition pos - 1 -> pos is known at pos; the departure at pos is not yet.
        seen = F.one_hot(part[:, :-1] * n_states + part[:, 1:], n_states**2).cumsum(1)
        counts = F.pad(seen, (0, 0, 1, 0)).unflatten(-1, (n_states, n_states))
        current = part[..., None, None].expand(-1, -1, 1, n_states)
        smoothed = counts.gather(2, current).squeeze(2).double() + dirichlet
        return (smoothed / smoothed.sum(-1, keepdim=True)).log()

    return _in_pieces(predict, tokens, tokens.shape[1] * n_states**2)


def one_mem_stationary(
    tokens: Int[Tensor, "batch pos"], chains: Float[Tensor, "chain state next"]
) -> Float[Tensor, "batch pos state"]:
    """1-Mem (U): chains recognised by state counts, their stationary distributions averaged.

    Chain k has weight proportional to the product of pi_k(s) over the states seen.

    Args:
        tokens: states.
        chains: the training chains, equally likely.

    Returns:
        Log-probabilities of the next state. Cost: batch * pos * chain, in pieces of 32 MB.

    Raises:
        InputError: a token is not a state, or the chains are not transition matrices.
    """
    log_share, share = _log_stationary(chains)
    _check_tokens(tokens, chains.shape[-1])

    def predict(part: Tensor) -> Tensor:
        return (_posterior(part, log_share) @ share).clamp(min=TINY).log()

    return _in_pieces(predict, tokens, tokens.shape[1] * len(chains))


def one_mem_transition(
    tokens: Int[Tensor, "batch pos"], chains: Float[Tensor, "chain state next"]
) -> Float[Tensor, "batch pos state"]:
    """1-Mem (B): chains recognised by state counts, their rows for the current state averaged.

    Weights as in `one_mem_stationary`; this read-out is what the paper calls 1-Mem.

    Args:
        tokens: states.
        chains: the training chains, equally likely.

    Returns:
        Log-probabilities of the next state. Cost: batch * pos * chain, in pieces of 32 MB.

    Raises:
        InputError: a token is not a state, or the chains are not transition matrices.
    """
    log_share, _ = _log_stationary(chains)
    _check_tokens(tokens, chains.shape[-1])

    def predict(part: Tensor) -> Tensor:
        return _read_rows(_posterior(part, log_share), part, chains)

    return _in_pieces(predict, tokens, tokens.shape[1] * len(chains))


def two_mem(
    tokens: Int[Tensor, "batch pos"], chains: Float[Tensor, "chain state next"]
) -> Float[Tensor, "batch pos state"]:
    """2-Mem: the full posterior over the training chains; optimal on them.

    Chain k has weight proportional to pi_k(first state) times its transition probabilities.

    Args:
        tokens: states.
        chains: the training chains, equally likely.

    Returns:
        Log-probabilities of the next state. Cost: batch * pos * chain, in pieces of 32 MB.

    Raises:
        InputError: a token is not a state, or the chains are not transition matrices.
    """
    log_posterior = chain_log_posterior

    def predict(part: Tensor) -> Tensor:
        return _read_rows(log_posterior(part, chains).exp(), part, chains)

    return _in_pieces(predict, tokens, tokens.shape[1] * len(chains))


def chain_log_posterior(
    tokens: Int[Tensor, "batch pos"], chains: Float[Tensor, "chain state next"]
) -> Float[Tensor, "batch pos chain"]:
    """How well can the chain be known after each position? (The weights of 2-Mem.)

    Args:
        tokens: states.
        chains: the candidates, equally likely.

    Returns:
        Log posterior probability of every chain given states 0..pos. Holds batch * pos * chain
        numbers: give few sequences at a time when there are thousands of chains.

    Raises:
        InputError: a token is not a state, or the chains are not transition matrices.
    """
    log_share, _ = _log_stationary(chains)
    n_states = chains.shape[-1]
    _check_tokens(tokens, n_states)
    log_rows = chains.double().clamp(min=TINY).log().permute(1, 2, 0).flatten(0, 1)
    table = torch.cat([log_share, log_rows])  # C rows for a first state, then C * C transitions
    transition = n_states + tokens[:, :-1] * n_states + tokens[:, 1:]
    evidence = table[torch.cat([tokens[:, :1], transition], dim=1)]
    return evidence.cumsum(1).log_softmax(-1)


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


def _in_pieces(predict: Callable[[Tensor], Tensor], tokens: Tensor, per_sequence: int) -> Tensor:
    """Applies a predictor to as many sequences at a time as memory allows."""
    return torch.cat([predict(part) for part in tokens.split(max(1, ELEMENTS // per_sequence))])


def _posterior(tokens: Tensor, log_share: Tensor) -> Tensor:
    """Weights `"batch pos chain"` of chains recognised by their state counts."""
    return log_share[tokens].cumsum(1).softmax(-1)


def _read_rows(weights: Tensor, tokens: Tensor, chains: Tensor) -> Tensor:
    """Log of the weighted mean of the chains' rows for the current state."""
    rows = chains.double()
    answer = torch.empty(*tokens.shape, rows.shape[-1], dtype=torch.float64)
    for state in range(rows.shape[1]):  # one matmul a state: no gathered copy of all the rows
        here = tokens == state
        answer[here] = weights[here] @ rows[:, state]
    return answer.clamp(min=TINY).log()


def _log_stationary(chains: Tensor) -> tuple[Tensor, Tensor]:
    """Stationary distributions: their logarithms `"state chain"`, and as they are."""
    sums = chains.double().sum(-1)
    if chains.shape[-1] != chains.shape[-2] or (chains < 0).any() or (sums - 1).abs().max() > 1e-4:
        raise InputError(
            f"chains of shape {tuple(chains.shape)} are not transition matrices: give "
            "(chain, state, next) with non-negative rows that sum to 1"
        )
    share = stationary(chains)
    return share.clamp(min=TINY).log().T.contiguous(), share


def _check_tokens(tokens: Tensor, n_states: int) -> None:
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < n_states:
        raise InputError(
            f"tokens run from {int(tokens.min())} to {int(tokens.max())}, but a chain of "
            f"{n_states} states has tokens 0 to {n_states - 1}"
        )
