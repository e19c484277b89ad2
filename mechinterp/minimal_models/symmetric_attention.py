"""The symmetry-constrained attention-only transformer: a few scalars between 1-Gen and 2-Gen.

Relabelling the states changes nothing in the task, so every matrix that acts on states may be taken
as u I + w 1 1^T, and in an attention score the second part is the same for all keys: one scalar is
left for each. With one-hot states, and a prediction at the last position n = N only,

    layer 1   A1(m, j) ~ exp(delta [j = m - 1] + alpha [x_j = x_m]),  j <= m;   h_m = sum A1 e_(x_j)
    layer 2   A2(n, m) ~ exp(beta <e_(x_n), h_m>),                    m <= n
    value     v_m = (1 - mu) e_(x_m) + mu h_m
    answer    p(s) = (n sum_m A2(n, m) v_m(s) + 1) / (n + C)

These equations are ours. Of the paper (arXiv 2604.12151) the symmetry
argument and its expansion in beta and delta are known, its alpha, values and read-out are not. With
mu = 0, beta = delta = 0 is 1-Gen with add-one smoothing; beta and delta to infinity is the bigram
frequencies behind the current state, smoothed by one count in n + C.

Layer 1's rows have a closed form and only the last row of layer 2 is asked for, so a sequence costs
O(N), or O(N C) when alpha is not 0, where attention as written costs O(N^2).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample

LARGEST = 500.0
"""Largest size of a score: its exponential is still a float64."""


@dataclass(frozen=True)
class SymmetricAttention:
    """The scalars of the model."""

    beta: float = 0.0
    """Layer 2: how much a position is attended to when its h holds the current state."""
    delta: float = 0.0
    """Layer 1: how much the previous position is attended to."""
    alpha: float = 0.0
    """Layer 1: how much equal states are attended to."""
    mu: float = 0.0
    """Share of layer 1's output in what layer 2 reads out."""

    def __post_init__(self) -> None:
        """Refuses scalars out of range."""
        for name in ("beta", "delta", "alpha"):
            value = getattr(self, name)
            if not (math.isfinite(value) and abs(value) <= LARGEST):
                raise InputError(
                    f"{name} is {value:g}; it has to be in -{LARGEST:g}..{LARGEST:g}: if a descent "
                    "led here, use a smaller learning rate"
                )
        if not 0.0 <= self.mu <= 1.0:
            raise InputError(f"mu is {self.mu:g}; it is a share and has to be in 0..1")


@dataclass(frozen=True)
class Slopes:
    """Loss of every chain (nats) and its derivatives."""

    loss: Float[Tensor, " chain"]
    beta: Float[Tensor, " chain"]
    delta: Float[Tensor, " chain"]


def predict(model: SymmetricAttention, sample: ChainSample) -> Float[Tensor, "chain state"]:
    """What does the model say comes next?

    Args:
        model: the scalars.
        sample: sequences.

    Returns:
        Probabilities of the state after the last one.
    """
    pieces = [
        answer(part, *_scalars(model, part), model.alpha, model.mu)
        for part in _pieces(model, sample)
    ]
    return torch.cat(pieces)


def losses(model: SymmetricAttention, sample: ChainSample) -> Float[Tensor, " chain"]:
    """How wrong is the model on each chain?

    Args:
        model: the scalars.
        sample: sequences with the true row of the last state.

    Returns:
        Cross-entropy (nats) against the true row: the expected loss over the state that comes next,
        so that drawing it adds no noise.
    """
    log_p = predict(model, sample).log()
    return -(sample.next_row * log_p).sum(-1)


def slopes(model: SymmetricAttention, sample: ChainSample) -> Slopes:
    """Which way does the loss of each chain fall?

    Args:
        model: the scalars.
        sample: sequences with the true row of the last state.

    Returns:
        Losses and their exact derivatives by beta and delta, for each chain. Costs about three
        times `losses`.
    """
    found: list[tuple[Tensor, ...]] = []
    for part in _pieces(model, sample):
        with torch.enable_grad():
            beta, delta = (s.requires_grad_() for s in _scalars(model, part))
            loss = piece_loss(part, beta, delta, model.alpha, model.mu)
            # A scalar of its own for every chain: one backward pass gives every chain's slope.
            by_beta, by_delta = torch.autograd.grad(loss.sum(), (beta, delta))
        found.append((loss.detach(), by_beta, by_delta))
    return Slopes(*(torch.cat(column) for column in zip(*found, strict=True)))


def piece_loss(
    sample: ChainSample,
    beta: Float[Tensor, " chain"],
    delta: Float[Tensor, " chain"],
    alpha: float = 0.0,
    mu: float = 0.0,
) -> Float[Tensor, " chain"]:
    """Gives `losses` with scalars for each chain, differentiable, all in one piece."""
    return -(sample.next_row * answer(sample, beta, delta, alpha, mu).log()).sum(-1)


def answer(
    sample: ChainSample,
    beta: Float[Tensor, " chain"],
    delta: Float[Tensor, " chain"],
    alpha: float = 0.0,
    mu: float = 0.0,
) -> Float[Tensor, "chain state"]:
    """Gives `predict` with scalars for each chain, differentiable, all in one piece."""
    weights = token_weights(sample.tokens, beta, delta, alpha, mu, sample.n_states)
    pooled = torch.zeros_like(sample.next_row).scatter_add(1, sample.tokens, weights)
    return (sample.length * pooled + 1.0) / (sample.length + sample.n_states)


def token_weights(
    tokens: Int[Tensor, "chain pos"],
    beta: Float[Tensor, " chain"],
    delta: Float[Tensor, " chain"],
    alpha: float,
    mu: float,
    n_states: int,
) -> Float[Tensor, "chain pos"]:
    """How much does each token of the sequence count in the answer, through both layers?

    Args:
        tokens: states.
        beta: for each chain.
        delta: for each chain.
        alpha: layer 1's score of equal states.
        mu: share of layer 1's output in the values.
        n_states: C.

    Returns:
        (1 - mu) A2(n, j) + mu sum_m A2(n, m) A1(m, j): positive, summing to 1 over j.
    """
    hit = (tokens == tokens[:, -1:]).double()
    previous_hit = F.pad(hit[:, :-1], (1, 0))
    repeat = F.pad((tokens[:, 1:] == tokens[:, :-1]).double(), (1, 0))
    position = torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64)
    # Scores of layer 1 are exponentiated relative to 1: position 1 has no previous one.
    extra = torch.expm1(delta)[:, None] * (alpha * repeat).exp() * (position > 1)
    total, match = position + extra, hit.cumsum(1)
    equal = _one_hot(tokens, n_states) if alpha else None
    if equal is not None:
        own = (equal.cumsum(1) * equal).sum(-1)
        total = total + math.expm1(alpha) * own
        match = match * (alpha * hit).exp()
    attention = (beta[:, None] * (match + extra * previous_hit) / total).softmax(1)
    if not mu:
        return attention
    share = attention / total
    through = _later(share) + F.pad((extra * share)[:, 1:], (0, 1))
    if equal is not None:
        through = through + math.expm1(alpha) * (_later(equal * share[..., None]) * equal).sum(-1)
    return (1.0 - mu) * attention + mu * through


def _later(values: Tensor) -> Tensor:
    """Sums over each position and all that follow it."""
    return values.flip(1).cumsum(1).flip(1)


def _one_hot(tokens: Tensor, n_states: int) -> Tensor:
    return F.one_hot(tokens, n_states).double()


def _pieces(model: SymmetricAttention, sample: ChainSample) -> Iterator[ChainSample]:
    return sample.pieces(sample.n_states if model.alpha else 1)


def _scalars(model: SymmetricAttention, sample: ChainSample) -> tuple[Tensor, Tensor]:
    full = torch.ones(len(sample), dtype=torch.float64)
    return full * model.beta, full * model.delta
