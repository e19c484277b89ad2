"""How far a model is from each Bayes predictor, and which one it is nearest to: its phase."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

PHASES = {
    "one_gen": "1-Gen",
    "two_gen": "2-Gen",
    "one_mem_stationary": "1-Mem",
    "one_mem_transition": "1-Mem",
    "two_mem": "2-Mem",
}
"""The paper's name of the phase in which a model computes what a predictor computes."""

FARTHEST = 0.03
"""Nats on training chains: a model farther than this from every predictor is in no phase."""

CLEAREST = 1.25
"""A model whose second-nearest predictor is less than this many times as far is in no phase."""


@dataclass(frozen=True)
class Phase:
    """The predictor a model is nearest to, and how clearly."""

    nearest: str
    """Name of the nearest predictor."""
    runner_up: str
    """Name of the nearest predictor that stands for another phase."""
    distance: float
    """KL to the nearest on training chains, in nats."""
    margin: float
    """How many times as far the runner-up is, as the geometric mean over both sets; 1 is a tie."""
    mixed: bool
    """Whether the nearest predictor is too far, or the runner-up too close, to speak of a phase."""

    @property
    def name(self) -> str:
        """The phase: 1-Gen, 1-Mem, 2-Gen, 2-Mem or mixed."""
        return "mixed" if self.mixed else PHASES[self.nearest]


def nearest_phase(
    train: Mapping[str, float],
    new: Mapping[str, float],
    farthest: float = FARTHEST,
    clearest: float = CLEAREST,
) -> Phase:
    """Which phase is a model in?

    The predictor with the least geometric mean of the two distances. Both sets count, since on
    training chains alone 1-Gen and 1-Mem with the stationary read-out give nearly the same answers.
    They count by ratio and not by sum: on new chains every memorising predictor, and the model that
    does as it does, is sure of a wrong chain, and the size of their differences there says little.
    For the same reason the limit on the distance holds on training chains alone. The rule is ours;
    how the paper decides a phase was not found.

    Args:
        train: KL (nats) of the model to each predictor on training chains, by predictor.
        new: the same on new chains, with the same names.
        farthest: largest distance on training chains that still makes a phase, in nats.
        clearest: least ratio of the runner-up's distance to the nearest's.

    Returns:
        The phase, which is "mixed" when either limit is broken.
    """
    mean = {name: math.sqrt(max(train[name], 0.0) * max(new[name], 0.0)) for name in train}
    nearest = min(mean, key=mean.__getitem__)
    others = [name for name in mean if PHASES[name] != PHASES[nearest]]
    runner_up = min(others, key=mean.__getitem__)
    margin = mean[runner_up] / mean[nearest] if mean[nearest] > 0 else math.inf
    distance = train[nearest]
    return Phase(nearest, runner_up, distance, margin, distance > farthest or margin < clearest)


def late_positions(length: int) -> range:
    """Which positions have seen at least a quarter of the sequence?

    Args:
        length: states in a full sequence, N.

    Returns:
        Positions p with p + 1 >= N / 4 states seen and a next state to predict.
    """
    return range(math.ceil(length / 4) - 1, length - 1)


def kl_divergence(
    log_q: Float[Tensor, "batch pos state"], log_p: Float[Tensor, "batch pos state"]
) -> Float[Tensor, "batch pos"]:
    """KL(q || p) in nats at every position, from log-probabilities, in float64."""
    log_q, log_p = log_q.double(), log_p.double()
    return (log_q.exp() * (log_q - log_p)).sum(-1)


def kl_to_predictors(
    log_probs: Float[Tensor, "batch scored state"],
    predictions: Mapping[str, Float[Tensor, "batch pos state"]],
) -> dict[str, Float[Tensor, " batch"]]:
    """How far are a model's predictions from those of each Bayes predictor?

    KL(predictor || model), the mean over positions that have seen at least a quarter of the
    sequence.

    Args:
        log_probs: the model's log-probabilities, at the positions that have a target: all but
            the last.
        predictions: log-probabilities of each predictor at every position, as `predict_all` gives.

    Returns:
        KL in nats for each sequence, by predictor.
    """
    late = list(late_positions(log_probs.shape[1] + 1))
    own = log_probs[:, late]
    return {
        name: kl_divergence(answer[:, late], own).mean(-1) for name, answer in predictions.items()
    }


def transience_index(kl_two_gen: float, kl_two_mem: float) -> float:
    """How much nearer to 2-Mem than to 2-Gen: ln(KL to 2-Gen / KL to 2-Mem), smooth in time."""
    floor = torch.finfo(torch.float64).tiny
    return math.log(max(kl_two_gen, floor) / max(kl_two_mem, floor))
