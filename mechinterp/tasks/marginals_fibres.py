"""From sequences back to the table: a sequence's B, its candidates, and the selectors of its B."""

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.tasks.base import fork
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_checks import CANDIDATE_VARIANTS, SELECTOR_VARIANTS
from mechinterp.tasks.marginals_layout import other_slot, with_string_of
from mechinterp.tasks.marginals_table import codes_of

_WRONG_SELECTORS = 5
"""Stream forked from the mapping seed; the table and the evaluation set use 0 to 4."""


def has_candidates(task: Marginals) -> bool:
    """Whether the answer is one of the k strings of a fibre (`bz_to_a` and `b_to_a`)."""
    return task.config.variant in CANDIDATE_VARIANTS


def has_other_selectors(task: Marginals) -> bool:
    """Whether sequences show a selector that could have been another one."""
    return task.config.variant in SELECTOR_VARIANTS and task.config.k > 1


def b_index(task: Marginals, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
    """Gives the row of the table that each sequence's B string stands in.

    Raises:
        InputError: a B string is not in the table.
    """
    known, order = codes_of(task.table.b).sort()
    given = codes_of(tokens[:, list(task.layout.spans["B"])])
    at = torch.searchsorted(known, given).clamp(max=len(known) - 1)
    _check_known(task, known[at] == given, "B string", "the table")
    return order[at]


def answer_slot(task: Marginals, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
    """Gives the slot of each sequence's A string in the fibre of its B.

    Raises:
        InputError: a B string is not in the table, or an A string is not in its fibre.
    """
    return _slot(task, tokens, "A", task.table.a[b_index(task, tokens)])


def candidates(task: Marginals, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch k pos"]:
    """Gives each sequence with its answer replaced by each of the k answers of its B.

    Raises:
        InputError: the variant's answer is not one of a fibre, or a B string is unknown.
    """
    if not has_candidates(task):
        raise InputError(
            f"variant={task.config.variant!r} has one answer, not k candidates: "
            f"candidates need {' or '.join(CANDIDATE_VARIANTS)}"
        )
    rows = tokens[:, None].repeat(1, task.config.k, 1)
    rows[..., list(task.layout.spans["A"])] = task.table.a[b_index(task, tokens)]
    return rows


def valid_first_tokens(
    task: Marginals, tokens: Int[Tensor, "batch pos"]
) -> Bool[Tensor, "batch d_vocab"]:
    """Marks the first characters of the answers of each sequence's B.

    Raises:
        InputError: a B string is not in the table.
    """
    first = task.table.a[b_index(task, tokens), :, 0]
    marks = torch.zeros(len(tokens), task.d_vocab, dtype=torch.bool)
    return marks.scatter_(1, first, torch.ones_like(first, dtype=torch.bool))


def with_wrong_selector(
    task: Marginals, tokens: Int[Tensor, "batch pos"]
) -> Int[Tensor, "batch pos"]:
    """Shows each sequence another selector of its own B, never the value it shows now.

    Which one is drawn once for every (B, z) from the mapping seed, so it depends on nothing else
    in the batch and the same measurement gives the same number.

    Raises:
        InputError: the variant shows no selector, there is only one, or a string is unknown.
    """
    if not has_other_selectors(task):
        raise InputError(
            f"variant={task.config.variant!r} with k={task.config.k} has no other selector to "
            f"show: use {' or '.join(SELECTOR_VARIANTS)} with k >= 2"
        )
    b = b_index(task, tokens)
    shown = b * task.config.k + _slot(task, tokens, "z", task.table.z[b])
    return with_string_of(task.config, tokens, "z", _wrong_selectors(task.config)[shown])


@lru_cache(maxsize=4)
def _wrong_selectors(config: MarginalsConfig) -> Tensor:
    """Gives, for every example, the one of the same B whose selector stands in for its own."""
    draw = fork(torch.Generator().manual_seed(config.mapping_seed), _WRONG_SELECTORS)
    return other_slot(torch.arange(config.n_b * config.k), config.k, draw)


def _slot(task: Marginals, tokens: Tensor, name: str, fibres: Tensor) -> Tensor:
    """Finds each sequence's string `name` among the k of its fibre, `"batch k char"`."""
    same = (fibres == tokens[:, None, list(task.layout.spans[name])]).all(-1)
    _check_known(task, same.any(1), f"{name} string", "the fibre of its B")
    return same.int().argmax(1)


def _check_known(task: Marginals, found: Tensor, what: str, where: str) -> None:
    if not found.all():
        row = int((~found).nonzero()[0])
        raise InputError(
            f"the {what} of sequence {row} is not in {where} (mapping_seed="
            f"{task.config.mapping_seed}): use sequences of this task"
        )
