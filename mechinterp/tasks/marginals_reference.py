"""Levels that tell what a model of the marginals task knows: nothing, the marginal, or all."""

import math

import torch

from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_checks import N_CHARACTERS
from mechinterp.tasks.marginals_fibres import has_candidates
from mechinterp.tasks.marginals_table import FIRST_CHARACTER

COMPARED = {
    "first_token_ce": ("ln_36", "marginal_first_token_ce"),
    "target_ce": ("ignorant_target_ce", "first_character_target_ce", "marginal_target_ce"),
    "candidate_mass": ("ignorant_candidate_mass",),
    "candidate_loss": ("ln_k",),
    "candidate_accuracy": ("chance_candidate_accuracy",),
}
"""Which lines each measure is to be read against."""


def reference_lines(task: Marginals) -> dict[str, float]:
    """Which values would a model reach that knows only part of the task?

    In nats, except the shares `..._mass` and `..._accuracy`. All know where EOS stands.

    Always:
        ln_36: first-token loss of one who knows nothing but the alphabet.
        ignorant_target_ce: its target loss, 4/5 ln 36 for an answer of 4 characters.
    With a fibre of candidates (`bz_to_a`, `b_to_a`):
        ln_k: candidate loss of every model that ignores z, whatever else it knows.
        marginal_first_token_ce: first-token loss of one who knows P(A | B): ln k where the first
            characters of a fibre differ, less where they do not.
        first_character_target_ce: target loss of one who knows only the first character's P(. | B).
        marginal_target_ce: target loss of one who knows P(A | B), (ln k)/5.
        ignorant_candidate_mass: k/36 where the first characters differ.
        chance_candidate_accuracy: 1/k.

    Cost: one pass over the table for the first characters.
    """
    n_characters = len(task.layout.spans[task.layout.target])
    ln_36 = math.log(N_CHARACTERS)
    n_scored = n_characters + 1
    lines = {"ln_36": ln_36, "ignorant_target_ce": n_characters / n_scored * ln_36}
    if not has_candidates(task):
        return lines
    k = task.config.k
    entropy, n_first = _first_characters(task)
    return lines | {
        "ln_k": math.log(k),
        "marginal_first_token_ce": entropy,
        "first_character_target_ce": (entropy + (n_characters - 1) * ln_36) / n_scored,
        "marginal_target_ce": math.log(k) / n_scored,
        "ignorant_candidate_mass": n_first / N_CHARACTERS,
        "chance_candidate_accuracy": 1 / k,
    }


def _first_characters(task: Marginals) -> tuple[float, float]:
    """Gives the entropy and the number of a fibre's first characters, as means over the fibres."""
    first = task.table.a[..., 0] - FIRST_CHARACTER
    counts = torch.zeros(task.config.n_b, N_CHARACTERS, dtype=torch.float64)
    counts.scatter_add_(1, first, torch.ones_like(first, dtype=torch.float64))
    entropy = torch.special.entr(counts / task.config.k).sum(1)
    return entropy.mean().item(), (counts > 0).sum(1).double().mean().item()
