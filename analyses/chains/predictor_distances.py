"""How far is a model of the Markov-chain task from each Bayes predictor, sequence by sequence?"""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError
from circuits.intervals import mean_interval
from mechinterp.config import MarkovChainsConfig
from mechinterp.nearest_predictor import PHASES, kl_to_predictors, nearest_phase, transience_index
from mechinterp.predictors import predict_all
from mechinterp.tasks.base import LogitsOf
from mechinterp.tasks.chain_sequences import evaluation_sequences, training_chains

SETS = {"train": False, "new": True}
"""Sets of sequences, and whether their chains are new."""

ROWS_AT_ONCE = 256

Distances = dict[str, Float[Tensor, " batch"]]
"""KL (nats) of every sequence to every predictor, by `two_gen_train` and so on."""


@torch.no_grad()
def distances(model: LogitsOf, config: MarkovChainsConfig, n: int) -> Distances:
    """How far is the model from each predictor, and from the truth, on every sequence?

    KL(predictor || model), the mean over positions that have seen a quarter of the sequence.

    Args:
        model: tokens to logits.
        config: the task.
        n: sequences of each of the two sets.

    Returns:
        KL in nats by `<predictor>_<set>` and `truth_<set>`; the sets are train and new. Costs two
        forward passes of n sequences, and once for each task the predictors' answers.
    """
    found: Distances = {}
    for name, new in SETS.items():
        tokens = evaluation_sequences(config, n, new).tokens[:, :-1]
        logits = torch.cat([model(part).cpu().double() for part in tokens.split(ROWS_AT_ONCE)])
        answers = _answers(config, n, new)
        for predictor, kl in kl_to_predictors(logits.log_softmax(-1), answers).items():
            found[f"{predictor}_{name}"] = kl
    return found


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _answers(config: MarkovChainsConfig, n: int, new: bool) -> dict[str, Tensor]:
    """What the truth and every predictor say on a set; the same for all checkpoints."""
    sequences = evaluation_sequences(config, n, new)
    parts = sequences.tokens.split(ROWS_AT_ONCE)
    chains = training_chains(config)
    pieces = [predict_all(part, config.n_states, chains, config.dirichlet) for part in parts]
    said = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
    return {"truth": sequences.truth(), **said}


def distance_row(found: Distances, n_resamples: int = 500, seed: int = 0) -> dict[str, Any]:
    """Which phase do these distances show, and would other sequences have shown the same?

    Args:
        found: what `distances` gave.
        n_resamples: resamples of the sequences.
        seed: of the resamples.

    Returns:
        The mean of every distance with `_low` and `_high` (95 %, bootstrap over sequences);
        `phase`, `nearest`, `runner_up`, `distance`, `margin` as `nearest_phase` has them;
        `nearest_phase`, the phase of the nearest predictor however far it is; `certainty`, the
        share of resamples of both sets with the same `phase`; and `transience_index` on training
        chains, where there is a 2-Mem.

    Raises:
        InputError: the two sets differ in size, so that no resample fits both.
    """
    sizes = {len(kl) for kl in found.values()}
    if len(sizes) != 1:
        raise InputError(f"distances of {sorted(sizes)} sequences; give equally many of each set")
    names = list(found)
    stacked = torch.stack([found[name] for name in names])
    mean, low, high = mean_interval(stacked, seed=seed)
    row: dict[str, Any] = {}
    for at, name in enumerate(names):
        row |= {name: mean[at].item(), f"{name}_low": low[at].item()}
        row[f"{name}_high"] = high[at].item()
    means = dict(zip(names, mean.tolist(), strict=True))
    phase = nearest_phase(*_by_set(means))
    row |= {
        "phase": phase.name,
        "nearest_phase": PHASES[phase.nearest],
        "nearest": phase.nearest,
        "runner_up": phase.runner_up,
        "distance": phase.distance,
        "margin": phase.margin,
    }
    again = _resampled(stacked, names, n_resamples, seed)
    same = [nearest_phase(*_by_set(dict(zip(names, m, strict=True)))).name for m in again.tolist()]
    row["certainty"] = sum(name == phase.name for name in same) / n_resamples
    if "two_mem_train" in means:
        row["transience_index"] = transience_index(means["two_gen_train"], means["two_mem_train"])
    return row


def _by_set(means: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    predictors = [name for name in PHASES if f"{name}_train" in means]
    train = {name: means[f"{name}_train"] for name in predictors}
    return train, {name: means[f"{name}_new"] for name in predictors}


def _resampled(
    stacked: Float[Tensor, "name batch"], names: list[str], n: int, seed: int
) -> Float[Tensor, "resample name"]:
    """Means over resampled sequences; the two sets are drawn independently, predictors together."""
    generator = torch.Generator().manual_seed(seed)
    size = stacked.shape[1]
    means = torch.empty(n, len(names), dtype=torch.float64)
    for ending in SETS:
        rows = [at for at, name in enumerate(names) if name.endswith(f"_{ending}")]
        drawn = torch.randint(size, (n, size), generator=generator)
        weights = torch.zeros(n, size, dtype=torch.float64)
        weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        means[:, rows] = weights @ stacked[rows].double().T / size
    return means
