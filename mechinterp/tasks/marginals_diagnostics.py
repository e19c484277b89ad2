"""What a model knows of the marginals task: its losses, its candidates, its use of z.

Three losses are kept apart. First-token cross-entropy is over the whole vocabulary; the target
loss is the mean over the answer and EOS, as in training; the candidate loss compares the k answers
of a fibre only, so that a model that ignores z scores ln k on it whatever else it knows.
Definitions follow "Marginals Before Conditionals" (arXiv 2603.10074) where it has them; candidate
mass, which tells a marginal answer from an ignorant one, is ours.

A model is any function from tokens to logits, hooked or not, that treats rows independently and
looks only backwards: each different sequence is scored once, in an order of its own.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.restart import hooked
from circuits.side_by_side import side_by_side, workers_on
from mechinterp.tasks.base import Detail, LogitsOf, Measure, measure
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_fibres import (
    answer_slot,
    candidates,
    has_candidates,
    has_other_selectors,
    valid_first_tokens,
    with_wrong_selector,
)

ROWS_AT_ONCE = 256
"""Sequences in one forward pass; bounds the memory of a call."""


class Scores(NamedTuple):
    """Log-probabilities (nats, float64, on the CPU) that a model gives to sequences."""

    targets: Float[Tensor, "batch scored"]
    """Of the tokens at the scored positions: the answer's characters, then EOS."""
    first: Float[Tensor, "batch d_vocab"]
    """Of every token as the first one of the answer."""
    greedy: Bool[Tensor, "batch scored"]
    """Whether the token at the scored position is the model's first choice."""


@torch.no_grad()
def score(model: LogitsOf, task: Marginals, tokens: Int[Tensor, "batch pos"]) -> Scores:
    """Which log-probabilities does the model give to these sequences?

    Each different sequence is run once, `ROWS_AT_ONCE` at a time and without gradients; of a
    HookedTransformer without hooks, as many at once as torch has threads on a CPU. A sequence is
    run without its EOS. Log-softmax is taken in double precision.
    """
    unique, inverse = torch.unique(tokens, dim=0, return_inverse=True)
    scored, blocks = list(task.scored), unique.split(ROWS_AT_ONCE)
    found: dict[int, tuple[Tensor, ...]] = {}

    def run(number: int) -> None:
        rows = blocks[number]
        log_probs = model(rows[:, :-1])[:, scored].cpu().double().log_softmax(-1)
        answer = rows[:, scored[0] + 1 :]
        targets = log_probs.gather(-1, answer[..., None])[..., 0]
        found[number] = (targets, log_probs[:, 0], log_probs.argmax(-1) == answer)

    # Hooks come and go, or keep what they see: a model with some is run one block after the other.
    alone = not hasattr(model, "hook_dict") or hooked(model)
    side_by_side(run, range(len(blocks)), 1 if alone else workers_on(tokens.device))
    fields = zip(*(found[number] for number in range(len(blocks))), strict=True)
    return Scores(*(torch.cat(field)[inverse] for field in fields))


def candidate_log_probs(
    model: LogitsOf, task: Marginals, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch k"]:
    """How likely is each of the k answers of a sequence's B, after what the sequence shows?

    Args:
        model: tokens to logits; may be under ablation.
        task: gives the fibres.
        tokens: full sequences; their own answer does not matter.

    Returns:
        Summed log-probabilities of the 4 characters and EOS, in nats, not normalised over the k.
        Costs k forward rows for every sequence (for every different B without z).

    Raises:
        InputError: the variant has no candidates, or a B string is not in the table.
    """
    rows = candidates(task, tokens)
    return score(model, task, rows.flatten(0, 1)).targets.sum(-1).view(rows.shape[:2])


def candidate_loss(
    log_probs: Float[Tensor, "batch k"], right: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """How much is missing from the right answer once only the k candidates count? In nats."""
    return -log_probs.log_softmax(-1).gather(1, right[:, None])[:, 0]


def candidate_correct(
    log_probs: Float[Tensor, "batch k"], right: Int[Tensor, " batch"]
) -> Bool[Tensor, " batch"]:
    """Is the right answer the likeliest of the k candidates?"""
    return log_probs.argmax(-1) == right


def candidate_mass(
    task: Marginals, tokens: Int[Tensor, "batch pos"], first: Float[Tensor, "batch d_vocab"]
) -> Float[Tensor, " batch"]:
    """How much probability is on the first characters that some answer of B starts with?

    About k/36 for a model that knows nothing but the alphabet, 1 for one that knows P(A | B).

    Args:
        task: gives the fibres.
        tokens: full sequences.
        first: log-probabilities of the first token, from `score`.
    """
    return (first.exp() * valid_first_tokens(task, tokens)).sum(-1)


def z_gap(
    model: LogitsOf, task: Marginals, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """How much does the first character suffer when z is another selector of the same B?

    First-token cross-entropy with the wrong selector minus with the one shown, in nats for every
    sequence. 0 for a model that ignores z. No row keeps its value, unlike in the paper's
    permutation, where about 1/k of the rows do. Costs two forward rows for every sequence.

    Raises:
        InputError: there is no other selector to show, or a string is not in the table.
    """
    shown = torch.cat([tokens, with_wrong_selector(task, tokens)])
    clean, wrong = score(model, task, shown).targets[:, 0].chunk(2)
    return clean - wrong


def group_correct(model: LogitsOf, task: Marginals, n_groups: int) -> Bool[Tensor, "group k"]:
    """Which members of whole groups (a B with all its k selectors) are right among their k?

    Costs k^2 forward rows for every group.

    Raises:
        InputError: the variant has no candidates, or there are fewer groups.
    """
    return _group_candidates(model, task, n_groups)[1]


def diagnostics(
    model: LogitsOf, task: Marginals, n: int, detail: Detail = "quick"
) -> dict[str, Measure]:
    """What does the model know of the task?

    Always:
        first_token_ce: cross-entropy of the answer's first character, whole vocabulary (nats).
        target_ce: mean cross-entropy of the answer's characters and EOS, as trained on (nats).
        target_accuracy: share whose answer greedy decoding gives; EOS does not count.
    With a fibre of candidates (`bz_to_a`, `b_to_a`):
        candidate_mass: probability on first characters that some answer of B starts with.
        candidate_loss: see `candidate_loss` (nats); needs k >= 2.
    With candidates that z decides between (`bz_to_a`, k >= 2):
        candidate_accuracy: share whose right answer is the likeliest candidate.
    With z and k >= 2:
        z_gap: see `z_gap` (nats).
    "full", where candidate_accuracy exists, on ceil(n / k) whole groups:
        group_mean_accuracy: mean over groups of the share of their k that is right.
        group_accuracy: share of groups with all k right.
        groups_80: share of groups with at least 80 % right.
        group_candidate_loss: candidate loss of all members (nats); standard error over groups.

    Args:
        model: tokens to logits.
        task: the task.
        n: evaluation sequences.
        detail: how much to measure.

    Returns:
        Means with standard errors over sequences (or groups), the same for every call.
        Costs n (k + 1) forward rows, and about n k more for "full".

    Raises:
        InputError: there are fewer than `n` evaluation sequences.
    """
    tokens = task.evaluation(n)
    parts = {"clean": tokens}
    if has_other_selectors(task):
        parts["wrong_z"] = with_wrong_selector(task, tokens)
    if has_candidates(task) and task.config.k > 1:
        parts["candidates"] = candidates(task, tokens).flatten(0, 1)
    scores = _score_parts(model, task, parts)
    clean = scores["clean"]
    result = {
        "first_token_ce": measure(-clean.targets[:, 0]),
        "target_ce": measure(-clean.targets.mean(-1)),
        "target_accuracy": measure(clean.greedy[:, :-1].all(-1).double()),
    }
    if has_candidates(task):
        result["candidate_mass"] = measure(candidate_mass(task, tokens, clean.first))
    if "wrong_z" in scores:
        result["z_gap"] = measure(clean.targets[:, 0] - scores["wrong_z"].targets[:, 0])
    if "candidates" in scores:
        log_probs = scores["candidates"].targets.sum(-1).view(n, task.config.k)
        right = answer_slot(task, tokens)
        result["candidate_loss"] = measure(candidate_loss(log_probs, right))
        if has_other_selectors(task):
            correct = candidate_correct(log_probs, right)
            result["candidate_accuracy"] = measure(correct.double())
            if detail == "full":
                result |= _group_measures(model, task, -(-n // task.config.k))
    return result


def _score_parts(model: LogitsOf, task: Marginals, parts: dict[str, Tensor]) -> dict[str, Scores]:
    """Scores several sets of sequences together, so that what they share is run once."""
    scores = score(model, task, torch.cat(list(parts.values())))
    pieces = [field.split([len(part) for part in parts.values()]) for field in scores]
    return {name: Scores(*fields) for name, *fields in zip(parts, *pieces, strict=True)}


def _group_candidates(
    model: LogitsOf, task: Marginals, n_groups: int
) -> tuple[Float[Tensor, "group k"], Bool[Tensor, "group k"]]:
    """Gives the candidate loss of every member of whole groups, and whether it is right."""
    groups = task.groups(n_groups)
    tokens = groups.flatten(0, 1)
    log_probs, right = candidate_log_probs(model, task, tokens), answer_slot(task, tokens)
    loss, correct = candidate_loss(log_probs, right), candidate_correct(log_probs, right)
    return loss.view(groups.shape[:2]), correct.view(groups.shape[:2])


def _group_measures(model: LogitsOf, task: Marginals, n_groups: int) -> dict[str, Measure]:
    loss, correct = _group_candidates(model, task, n_groups)
    # Whole numbers are compared: 0.8 has no exact binary form.
    n_right = correct.sum(1)
    mostly = 5 * n_right >= 4 * task.config.k
    return {
        "group_mean_accuracy": measure(n_right.double() / task.config.k),
        "group_accuracy": measure(correct.all(1).double()),
        "groups_80": measure(mostly.double()),
        "group_candidate_loss": measure(loss.mean(1)),
    }
