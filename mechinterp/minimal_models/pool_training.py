"""Training of encode-pool-decode: fresh sequences at every step, Adam with a cosine schedule."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.encode_pool_decode import (
    EncodePoolDecode,
    Weights,
    decode,
    initial_weights,
    pair_codes,
    pair_shares,
    pool_logits,
    refuse_below,
)
from mechinterp.tasks.base import fork
from mechinterp.tasks.chain_sequences import draw_sequences

STEPS_AT_ONCE = 32
"""Batches drawn together."""

WARMUP = 50
"""Steps over which the learning rate rises to its full value."""


@dataclass(frozen=True)
class PoolTraining:
    """How the model is trained: fresh sequences at every step."""

    steps: int = 3000
    batch: int = 64
    """Sequences in a step."""
    positions: int = 16
    """Positions of each sequence that a step predicts at, drawn afresh."""
    lr: float = 1e-2

    def __post_init__(self) -> None:
        """Refuses settings out of range."""
        refuse_below(1, steps=self.steps, batch=self.batch, positions=self.positions)
        if not self.lr > 0:
            raise InputError(f"lr is {self.lr:g}; it has to be positive")


@dataclass(frozen=True)
class TrainedPool:
    """A trained model and its losses."""

    weights: Weights
    losses: Float[Tensor, " step"]
    """Training loss of every step, in nats."""

    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos state"]:
        """Gives the logits of the next state at every position."""
        return pool_logits(self.weights, tokens)

    @property
    def late_gain(self) -> float:
        """Loss of the third quarter of training less that of the last: what was still to gain."""
        quarter = max(1, len(self.losses) // 4)
        third, last = self.losses[-2 * quarter : -quarter], self.losses[-quarter:]
        return (third.mean() - last.mean()).item() if len(third) else math.nan


def train_pool(
    model: EncodePoolDecode,
    task: MarkovChainsConfig,
    training: PoolTraining,
    generator: torch.Generator,
) -> TrainedPool:
    """Trains the model on K frozen chains, or on a fresh chain for every sequence.

    The loss is the cross-entropy against the chain's true row, which is the expectation of the loss
    on the state that comes next: the same minimum, with less noise.

    Args:
        model: the sizes.
        task: the chains and the length of a sequence.
        training: steps, batch and rate.
        generator: seeds the weights and the sequences; it is not advanced.

    Returns:
        The weights and the loss of every step. Costs about 5 ms a step of one core at the default
        sizes.

    Raises:
        InputError: model and task differ in their number of states.
    """
    if model.n_states != task.n_states:
        raise InputError(
            f"the model has n_states {model.n_states} and the task {task.n_states}; "
            "they have to be equal"
        )
    weights = initial_weights(model, fork(generator, 0))
    parameters = [weight.requires_grad_() for weight in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=training.lr, fused=True)
    losses = torch.empty(training.steps)
    block = _draw_block(task, training, fork(generator, 1, 0))
    for step in range(training.steps):
        number, within = divmod(step, STEPS_AT_ONCE)
        if number and not within:
            block = _draw_block(task, training, fork(generator, 1, number))
        rows = slice(within * training.batch, (within + 1) * training.batch)
        optimizer.param_groups[0]["lr"] = training.lr * _schedule(step, training.steps)
        with torch.enable_grad():
            loss = _loss(weights, block, rows)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
    return TrainedPool({name: weight.detach() for name, weight in weights.items()}, losses)


@dataclass(frozen=True)
class _Block:
    """Batches drawn together: what the model reads at the places drawn, and the true rows."""

    shares: Tensor
    state: Tensor
    truth: Tensor


def _draw_block(
    task: MarkovChainsConfig, training: PoolTraining, generator: torch.Generator
) -> _Block:
    n = STEPS_AT_ONCE * training.batch
    chain = torch.randint(1 if task.k == "inf" else task.k, (n,), generator=generator)
    drawn = draw_sequences(task, chain, generator)
    # The last state has no next one in the task; the model is never asked there.
    places = torch.randint(task.length - 1, (n, training.positions), generator=generator)
    state = drawn.tokens.gather(1, places)
    truth = drawn.chains[drawn.chain[:, None], state].float()
    pieces = zip(drawn.tokens.split(training.batch), places.split(training.batch), strict=True)
    shares = [pair_shares(tokens, place, task.n_states) for tokens, place in pieces]
    return _Block(torch.cat(shares), state, truth)


def _loss(weights: Weights, block: _Block, rows: slice) -> Tensor:
    vectors = block.shares[rows] @ pair_codes(weights)
    log_p = decode(weights, vectors, block.state[rows]).log_softmax(-1)
    return -(block.truth[rows] * log_p).sum(-1).mean()


def _schedule(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARMUP) * 0.5 * (1.0 + math.cos(math.pi * step / steps))
