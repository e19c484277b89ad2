"""Pairs of prompts as one batch of token ids: encoded, checked, padded on the left."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.prompt_file import Prompt

Encode = Callable[[str, bool], list[int]]
"""Token ids of a text; with the special tokens that begin a prompt, or without."""


@dataclass(frozen=True)
class PromptBatch:
    """Prompts as one batch. Each ends at the scored position; its answer, if any, comes after it.

    Attributes:
        clean: token ids, with the answer in the last column where there are answers.
        corrupt: the partners, with the wrong answer in the last column, or the answer again where
            no wrong one is given; a prompt without a partner is its own. None where no line has a
            partner or a wrong answer.
        paired: whether every prompt has a partner.
        mask: 0 at padding, which stands on the left; None where all prompts are equally long.
        scored: the position whose logits are read, the last one of every prompt.
        answered: whether the last column holds answers.
    """

    clean: Int[Tensor, "batch pos"]
    corrupt: Int[Tensor, "batch pos"] | None
    paired: bool
    mask: Int[Tensor, "batch pos"] | None
    scored: int
    answered: bool


def encode_prompts(
    prompts: Sequence[Prompt],
    encode: Encode,
    *,
    d_vocab: int,
    n_ctx: int,
    paired: bool,
    answered: bool,
) -> PromptBatch:
    """Makes a batch of prompts: token ids, padded on the left, answers after the last position.

    Args:
        prompts: at least two.
        encode: the model's tokenizer; called for texts alone.
        d_vocab: number of token ids.
        n_ctx: tokens that the model reads at most.
        paired: whether every prompt needs a corrupt partner of its own length, as for patching.
        answered: whether every prompt needs an answer.

    Raises:
        InputError: names the line: a field that is missing, lengths that differ, an id out of
            range, an answer of several tokens or equal to the wrong one, or a prompt that is too
            long.
    """
    if len(prompts) < 2:
        raise InputError(f"{prompts[0].where} is the only pair; an interval needs at least 2")
    needed = ("corrupt",) * paired + ("answer",) * answered
    return _batch([_encoded(prompt, encode, d_vocab, n_ctx, needed) for prompt in prompts])


def _batch(rows: list[dict[str, list[int]]]) -> PromptBatch:
    has_answers = all("answer" in row for row in rows)
    if not has_answers:  # An answer that not all have would be a metric of its own.
        rows = [{k: v for k, v in row.items() if k in ("clean", "corrupt")} for row in rows]
    clean, mask = _padded([row["clean"] + row.get("answer", []) for row in rows])
    corrupt = None
    if any("corrupt" in row or "wrong" in row for row in rows):
        partners = [row.get("corrupt", row["clean"]) for row in rows]
        contrast = [row.get("wrong", row.get("answer", [])) for row in rows]
        corrupt, _ = _padded([p + c for p, c in zip(partners, contrast, strict=True)])
    return PromptBatch(
        clean=clean,
        corrupt=corrupt,
        paired=all("corrupt" in row for row in rows),
        mask=mask if bool((mask == 0).any()) else None,
        scored=max(len(row["clean"]) for row in rows) - 1,
        answered=has_answers,
    )


def _encoded(
    prompt: Prompt, encode: Encode, d_vocab: int, n_ctx: int, needed: Sequence[str]
) -> dict[str, list[int]]:
    """A prompt's fields as token ids, checked."""
    for name in needed:
        if name not in prompt.fields:
            raise InputError(f"{prompt.where} has no {name}, which this metric and ablation need")
    row = {}
    for name, value in prompt.fields.items():
        whole = name in ("clean", "corrupt")
        ids = encode(value, whole) if isinstance(value, str) else value
        if not whole and len(ids) != 1:
            raise InputError(
                f"{prompt.where}: {name} {json.dumps(value)[:40]} is {len(ids)} tokens: give one "
                "(mind the space before a word)"
            )
        if not 0 < len(ids) <= n_ctx:
            raise InputError(
                f"{prompt.where}: {name} has {len(ids)} tokens; the model reads 1 to {n_ctx}"
            )
        outside = [token for token in ids if not 0 <= token < d_vocab]
        if outside:
            raise InputError(
                f"{prompt.where}: {name} holds token id {str(outside[0])[:20]}; the model's ids "
                f"are 0 to {d_vocab - 1}"
            )
        row[name] = ids
    if "corrupt" in row and len(row["corrupt"]) != len(row["clean"]):
        raise InputError(
            f"{prompt.where}: clean has {len(row['clean'])} tokens and corrupt "
            f"{len(row['corrupt'])}; both lengths must agree"
        )
    if row.get("answer") is not None and row.get("answer") == row.get("wrong"):
        raise InputError(f"{prompt.where}: answer and wrong are the same token, {row['wrong'][0]}")
    return row


def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Rows of one length, tokens on the right, and 1 where there are any."""
    longest = max(map(len, rows))
    ids = [[0] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)
