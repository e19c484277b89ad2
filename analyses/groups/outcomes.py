"""Which members of whole groups does a model get right? Exactly, without scoring every candidate.

A member is right when none of the other k - 1 answers of its B is likelier than its own. Scoring
all k is what `group_correct` does, at k^2 rows a group. Two facts save most of that: an answer
cannot be likelier than its first character alone, and one likelier answer settles the matter.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechinterp.tasks.base import LogitsOf
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_diagnostics import score
from mechinterp.tasks.marginals_fibres import answer_slot, b_index, candidates

_ROUNDING = 1e-4
"""Nats that the log-probability of the same sequence may differ by between two batches."""


def group_outcomes(model: LogitsOf, task: Marginals, n_groups: int) -> Bool[Tensor, "group k"]:
    """Which members of whole groups are right among their k candidates?

    Args:
        model: tokens to logits; treats rows independently and looks only backwards.
        task: a task with candidates, k of at least 2.
        n_groups: groups; the first ones of the task's fixed random order.

    Returns:
        What `marginals_diagnostics.group_correct` gives. Costs one row for each member, then one
        row for each member and rival that is still possible: some 4 rows a member while the model
        guesses, about 1 once it knows, in place of k.

    Raises:
        InputError: the variant has no candidates, or there are fewer groups.
    """
    tokens = task.groups(n_groups).flatten(0, 1)
    own = score(model, task, tokens)
    likelihood = own.targets.sum(-1)
    right = answer_slot(task, tokens)
    first = task.table.a[b_index(task, tokens), :, 0]
    ceiling = own.first.gather(1, first) + _ROUNDING
    ceiling.scatter_(1, right[:, None], -torch.inf)
    order = ceiling.argsort(1, descending=True)
    correct = torch.ones(len(tokens), dtype=torch.bool)
    for turn in range(task.config.k - 1):
        rival = order[:, turn]
        possible = ceiling.gather(1, rival[:, None])[:, 0] >= likelihood
        asked = (correct & possible).nonzero()[:, 0]
        if len(asked) == 0:
            break
        beaten = _beaten(model, task, tokens[asked], rival[asked], likelihood[asked], right[asked])
        correct[asked] = ~beaten
    return correct.view(n_groups, task.config.k)


def _beaten(
    model: LogitsOf,
    task: Marginals,
    tokens: Int[Tensor, "batch pos"],
    rival: Int[Tensor, " batch"],
    likelihood: Tensor,
    right: Int[Tensor, " batch"],
) -> Bool[Tensor, " batch"]:
    """Whether the rival answer is likelier; of two equal ones the first slot wins, as in argmax."""
    rows = candidates(task, tokens)[torch.arange(len(tokens)), rival]
    other = score(model, task, rows).targets.sum(-1)
    return (other > likelihood) | ((other == likelihood) & (rival < right))
