"""Predictors that know the training chains: they recognise one, then read it out."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.chains import check_states, stationary

ELEMENTS = 2**22
"""Numbers held at once: sequences are taken in pieces of about 32 MB."""

TINY = torch.finfo(torch.float64).tiny
"""Stands for a probability of 0, so that logarithms stay finite."""


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
    check_states(tokens, chains.shape[-1])

    def predict(part: Tensor) -> Tensor:
        return (_posterior(part, log_share) @ share).clamp(min=TINY).log()

    return in_pieces(predict, tokens, tokens.shape[1] * len(chains))


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
    check_states(tokens, chains.shape[-1])

    def predict(part: Tensor) -> Tensor:
        return _read_rows(_posterior(part, log_share), part, chains)

    return in_pieces(predict, tokens, tokens.shape[1] * len(chains))


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
    evidence, n_states = _evidence(chains), chains.shape[-1]
    check_states(tokens, n_states)

    def predict(part: Tensor) -> Tensor:
        return _read_rows(_log_posterior(part, evidence, n_states).exp(), part, chains)

    return in_pieces(predict, tokens, tokens.shape[1] * len(chains))


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
    check_states(tokens, chains.shape[-1])
    return _log_posterior(tokens, _evidence(chains), chains.shape[-1])


def in_pieces(
    predict: Callable[[Tensor], Tensor], tokens: Int[Tensor, "batch pos"], per_sequence: int
) -> Float[Tensor, "batch pos state"]:
    """Applies a predictor to as many sequences at a time as memory allows.

    Args:
        predict: tokens `"batch pos"` to log-probabilities `"batch pos state"`.
        tokens: all sequences.
        per_sequence: numbers that `predict` holds for each sequence.

    Returns:
        The answers, put together again.
    """
    return torch.cat([predict(part) for part in tokens.split(max(1, ELEMENTS // per_sequence))])


def _posterior(tokens: Tensor, log_share: Tensor) -> Tensor:
    """Weights `"batch pos chain"` of chains recognised by their state counts."""
    return _accumulate(log_share[tokens]).softmax(-1)


def _evidence(chains: Tensor) -> Tensor:
    """Log-likelihoods `"event chain"`: C first states, then C * C transitions."""
    log_share, _ = _log_stationary(chains)
    log_rows = chains.double().clamp(min=TINY).log()
    return torch.cat([log_share, log_rows.permute(1, 2, 0).flatten(0, 1)])


def _log_posterior(tokens: Tensor, evidence: Tensor, n_states: int) -> Tensor:
    """Log-weights `"batch pos chain"` of chains recognised by everything seen."""
    transition = n_states + tokens[:, :-1] * n_states + tokens[:, 1:]
    events = torch.cat([tokens[:, :1], transition], dim=1)
    return _accumulate(evidence[events]).log_softmax(-1)


def _accumulate(log_evidence: Tensor) -> Tensor:
    """Sums `"batch pos chain"` over positions so far, in place (cumsum is 20 times slower here)."""
    for pos in range(1, log_evidence.shape[1]):
        log_evidence[:, pos] += log_evidence[:, pos - 1]
    return log_evidence


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
