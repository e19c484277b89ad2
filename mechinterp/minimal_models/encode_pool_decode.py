"""The minimal task-recognition model: encode pairs of states, pool them, decode with the state.

    z_m = MLP_enc(e_(x_m) + e_(x_(m-1)))          both states, in orthogonal subspaces
    v_n = mean of z_2 .. z_n                      the task vector, d_task numbers; 0 at n = 1
    p_n = softmax(MLP_dec(v_n + e_(x_n)))         in orthogonal subspaces again

The paper (arXiv 2604.12151, appendix XII) replaces the first attention layer by the exact pair
and pools uniformly, to measure how many chains the two MLPs can memorise. Widths, activation and
training were not found; those here are ours (section 6b of the paper notes): ReLU, one hidden
layer each, Adam with a cosine schedule. There is no attention: a step costs milliseconds.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.tasks.base import fork
from mechinterp.tasks.chain_sequences import draw_sequences

Weights = dict[str, Tensor]

STEPS_AT_ONCE = 32
"""Batches drawn together."""

WARMUP = 50
"""Steps over which the learning rate rises to its full value."""


@dataclass(frozen=True)
class EncodePoolDecode:
    """Sizes of the model."""

    n_states: int = 5
    d_task: int = 8
    """Width of the task vector."""
    d_hidden: int = 128
    """Hidden width of the decoder."""
    d_encoder: int = 128
    """Hidden width of the encoder; it only ever sees C * C inputs."""

    def __post_init__(self) -> None:
        """Refuses sizes out of range."""
        _refuse_below(1, d_task=self.d_task, d_hidden=self.d_hidden, d_encoder=self.d_encoder)
        _refuse_below(2, n_states=self.n_states)


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
        _refuse_below(1, steps=self.steps, batch=self.batch, positions=self.positions)
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


def initial_weights(model: EncodePoolDecode, generator: torch.Generator) -> Weights:
    """Draws the weights that training starts from.

    The encoder's output is centred over pairs and multiplied by C. A transition has probability
    about 1 / C^2, give or take as much, so that a mean over pairs moves from chain to chain by only
    1 / C of what a single pair moves it: without that factor the decoder would first see chains
    that are all alike.

    Args:
        model: the sizes.
        generator: is advanced.

    Returns:
        Weights by name, float32.
    """
    c = model.n_states

    def normal(rows: int, columns: int, fan_in: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * math.sqrt(2.0 / fan_in)

    weights = {
        "W_pair": normal(2 * c, model.d_encoder, 2),
        "b_pair": torch.zeros(model.d_encoder),
        "W_code": c * normal(model.d_encoder, model.d_task, model.d_encoder),
        "b_code": torch.zeros(model.d_task),
        "W_task": normal(model.d_task, model.d_hidden, model.d_task + 1),
        "W_state": normal(c, model.d_hidden, model.d_task + 1),
        "b_hidden": torch.zeros(model.d_hidden),
        "W_out": 0.1 * normal(model.d_hidden, c, model.d_hidden),
        "b_out": torch.zeros(c),
    }
    weights["b_code"] = -pair_codes(weights).mean(0)
    return weights


def pair_codes(weights: Weights) -> Float[Tensor, "pair d_task"]:
    """Gives z of every pair of states: row (previous * C + current)."""
    n_states = len(weights["W_state"])
    previous, current = weights["W_pair"][:n_states], weights["W_pair"][n_states:]
    hidden = (previous[:, None] + current[None, :]).flatten(0, 1) + weights["b_pair"]
    return F.relu(hidden) @ weights["W_code"] + weights["b_code"]


def task_vectors(
    weights: Weights, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_task"]:
    """Gives v at every position: the mean code of the pairs so far, 0 at the first position."""
    n_states = len(weights["W_state"])
    pairs = tokens[:, :-1] * n_states + tokens[:, 1:]
    total = F.pad(F.embedding(pairs, pair_codes(weights)).cumsum(1), (0, 0, 1, 0))
    return total / torch.arange(tokens.shape[1]).clamp(min=1)[:, None]


def decode(
    weights: Weights, task: Float[Tensor, "*batch d_task"], state: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch state"]:
    """Gives the logits of the next state from task vectors and current states."""
    hidden = task @ weights["W_task"] + weights["W_state"][state] + weights["b_hidden"]
    return F.relu(hidden) @ weights["W_out"] + weights["b_out"]


def pool_logits(
    weights: Weights, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos state"]:
    """What does the model say at every position? (Logits of the next state.)"""
    return decode(weights, task_vectors(weights, tokens), tokens)


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
    for step in range(training.steps):
        block, within = divmod(step, STEPS_AT_ONCE)
        if not within:
            drawn = _draw_block(task, training, fork(generator, 1, block))
        rows = slice(within * training.batch, (within + 1) * training.batch)
        optimizer.param_groups[0]["lr"] = training.lr * _schedule(step, training.steps)
        with torch.enable_grad():
            loss = _loss(weights, drawn, rows)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
    return TrainedPool({name: weight.detach() for name, weight in weights.items()}, losses)


def pair_shares(
    tokens: Int[Tensor, "batch pos"], places: Int[Tensor, "batch place"], n_states: int
) -> Float[Tensor, "batch place pair"]:
    """How often has each pair of states been seen by each place, as a share of the pairs so far?

    Pooling is linear, so these shares times the codes of the pairs are the task vectors: a training
    step then multiplies one small matrix instead of going through every position.

    Args:
        tokens: states.
        places: positions of each sequence.
        n_states: C.

    Returns:
        Shares that sum to 1, or to 0 at the first position; pair (previous * C + current), float32.
    """
    pairs = F.one_hot(tokens[:, :-1] * n_states + tokens[:, 1:], n_states**2).float()
    seen = F.pad(pairs.cumsum(1), (0, 0, 1, 0))
    at_place = seen.gather(1, places[..., None].expand(-1, -1, n_states**2))
    return at_place / places.clamp(min=1)[..., None]


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


def _refuse_below(low: int, **sizes: int) -> None:
    for name, value in sizes.items():
        if value < low:
            raise InputError(f"{name} is {value}; it has to be at least {low}")
