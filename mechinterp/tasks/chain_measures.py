"""Measurements of a model, and of the Bayes predictors, on the Markov-chain task."""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechinterp.chains import entropy_rate
from mechinterp.config import MarkovChainsConfig
from mechinterp.nearest_predictor import kl_divergence, kl_to_predictors, late_positions
from mechinterp.predictors import predict_all
from mechinterp.tasks.base import Detail, LogitsOf, Measure, measure
from mechinterp.tasks.chain_sequences import evaluation_sequences, training_chains

AT_ONCE = 256
"""Sequences in one forward pass, or in one call of the predictors."""

REFERENCE_SEQUENCES = 256
"""Evaluation sequences behind the reference lines."""

SETS = {"": False, "_new": True}
"""What a name ends in, and whether it is measured on held-out chains."""


def model_measures(
    config: MarkovChainsConfig, model: LogitsOf, n: int, detail: Detail
) -> dict[str, Measure]:
    """Measures a model on both evaluation sets; `MarkovChains.diagnostics` lists the names."""
    found: dict[str, Measure] = {}
    for suffix, new in SETS.items():
        sequences = evaluation_sequences(config, n, new)
        log_probs = _log_probs(model, sequences.tokens[:, :-1])
        losses = next_state_loss(log_probs, sequences.tokens)
        late = late_positions(config.length)
        found[f"loss{suffix}"] = measure(losses.mean(-1))
        if detail == "full":
            if late.start:
                found[f"loss_early{suffix}"] = measure(losses[:, : late.start].mean(-1))
            found[f"loss_late{suffix}"] = measure(losses[:, late.start :].mean(-1))
            found[f"loss_last{suffix}"] = measure(losses[:, -1])
        predictions = {"truth": sequences.truth(), **_kept_predictions(config, n, new)}
        for name, kl in kl_to_predictors(log_probs, predictions).items():
            found[f"kl_{name}{suffix}"] = measure(kl)
    return found


def next_state_loss(
    log_probs: Float[Tensor, "batch scored state"], tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch scored"]:
    """Gives the cross-entropy (nats) of each scored position: all but the last.

    Args:
        log_probs: log-probabilities of the next state.
        tokens: full sequences, one position longer.
    """
    return -log_probs.gather(-1, tokens[:, 1:, None]).squeeze(-1)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def reference_losses(config: MarkovChainsConfig) -> dict[str, float]:
    """Gives the entropy rate and the loss of each predictor, on training and on new chains."""
    lines: dict[str, float] = {}
    for suffix, new in SETS.items():
        sequences = evaluation_sequences(config, REFERENCE_SEQUENCES, new)
        rates = entropy_rate(sequences.chains)[sequences.chain]
        lines[f"entropy_rate{suffix}"] = rates.mean().item()
        for name, answer in _predictions(config, sequences.tokens).items():
            losses = next_state_loss(answer[:, :-1], sequences.tokens)
            lines[f"loss_{name}{suffix}"] = losses.mean().item()
    return lines


def predictor_gaps(config: MarkovChainsConfig, n: int) -> dict[str, float]:
    """Gives KL(true row || predictor) at late positions, on training and on new chains."""
    late = list(late_positions(config.length))
    gaps: dict[str, float] = {}
    for suffix, new in SETS.items():
        sequences = evaluation_sequences(config, n, new)
        pieces = zip(sequences.tokens.split(AT_ONCE), sequences.truth().split(AT_ONCE), strict=True)
        for tokens, truth in pieces:
            for name, answer in _predictions(config, tokens).items():
                kl = kl_divergence(truth[:, late], answer[:, late]).mean(-1).sum().item()
                gaps[f"{name}{suffix}"] = gaps.get(f"{name}{suffix}", 0.0) + kl / n
    return gaps


@torch.no_grad()
def _log_probs(model: LogitsOf, tokens: Tensor) -> Tensor:
    """The model's log-probabilities in float64, whatever device and dtype it computes with."""
    pieces = [model(part).cpu().double().log_softmax(-1) for part in tokens.split(AT_ONCE)]
    return torch.cat(pieces)


def _predictions(config: MarkovChainsConfig, tokens: Tensor) -> dict[str, Tensor]:
    return predict_all(tokens, config.n_states, training_chains(config), config.dirichlet)


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _kept_predictions(config: MarkovChainsConfig, n: int, new: bool) -> dict[str, Tensor]:
    """The predictors' answers to an evaluation set, which do not change while a model trains."""
    return _predictions(config, evaluation_sequences(config, n, new).tokens)
