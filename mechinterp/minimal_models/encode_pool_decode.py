"""The minimal task-recognition model: encode pairs of states, pool them, decode with the state.

    z_m = MLP_enc(e_(x_m) + e_(x_(m-1)))          both states, in orthogonal subspaces
    v_n = mean of z_2 .. z_n                      the task vector, d_task numbers; 0 at n = 1
    p_n = softmax(MLP_dec(v_n + e_(x_n)))         in orthogonal subspaces again

The paper (arXiv 2604.12151, appendix XII) replaces the first attention layer by the exact pair
and pools uniformly, to measure how many chains the two MLPs can memorise. Widths, activation and
training were not found; those here are ours: ReLU and one hidden
layer each. There is no attention: a step costs milliseconds
(`pool_training`).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError

Weights = dict[str, Tensor]


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
        refuse_below(1, d_task=self.d_task, d_hidden=self.d_hidden, d_encoder=self.d_encoder)
        refuse_below(2, n_states=self.n_states)


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


def refuse_below(low: int, **sizes: int) -> None:
    """Refuses sizes below a limit.

    Raises:
        InputError: names the size and the limit.
    """
    for name, value in sizes.items():
        if value < low:
            raise InputError(f"{name} is {value}; it has to be at least {low}")
