"""Heads and positions by name: what a caller wrote, turned into numbers or into one clear error."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.errors import InputError, has_entries, near_matches, whole_number, whole_numbers

Head = tuple[int, int]
_LISTED = 32


def head_names(model: Any) -> list[str]:
    """Lists the heads of a model, `L0H0` first.

    Args:
        model: anything with a TransformerLens `cfg`.

    Returns:
        Names in the order of layers, then of heads.
    """
    check_model(model)
    cfg = model.cfg
    return [
        head_name((layer, head)) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)
    ]


def check_model(model: Any) -> None:
    """Refuses what is no model at all, before it is asked for anything.

    Raises:
        InputError: it has no TransformerLens `cfg`.
    """
    if getattr(model, "cfg", None) is None:
        raise InputError(
            f"model={type(model).__name__} has no cfg: pass a TransformerLens HookedTransformer"
        )


def head_name(head: Head) -> str:
    """Gives `L0H3` for (0, 3)."""
    return f"L{head[0]}H{head[1]}"


def parse_head(model: Any, name: str) -> Head:
    """Reads `L0H3` as (0, 3).

    Raises:
        InputError: if the model has no such head; the message lists those that it has.
    """
    names = head_names(model)
    if name not in names:
        valid = ", ".join(names) if len(names) <= _LISTED else near_matches(name, names)
        raise InputError(
            f"{name!r} is not a head of this model; it has {model.cfg.n_layers} layers of "
            f"{model.cfg.n_heads} heads: {valid}"
        )
    return divmod(names.index(name), model.cfg.n_heads)


def parse_head_sets(model: Any, heads: Any) -> list[tuple[Head, ...]]:
    """Reads a list of heads and sets of heads; None stands for every head alone.

    Returns:
        One sorted tuple of (layer, index) an entry.

    Raises:
        InputError: for an unknown head, an empty set, no entry at all, or something else.
    """
    if isinstance(heads, str):
        raise InputError(f"heads={heads!r} is one string; give a list, such as [{heads!r}]")
    if heads is not None and not has_entries(heads):
        raise InputError(f"heads={heads!r} is {type(heads).__name__}; give a list of head names")
    entries = head_names(model) if heads is None else list(heads)
    if not entries:
        raise InputError("heads is empty; give at least one head, or None for all of them")
    sets = []
    for entry in entries:
        if not has_entries(entry):
            raise InputError(f"heads holds {entry!r}; give names such as 'L0H3', or sets of them")
        members = {entry} if isinstance(entry, str) else set(entry)
        if not members:
            raise InputError("heads holds an empty set; a set names at least one head")
        sets.append(tuple(sorted(parse_head(model, name) for name in members)))
    return sets


def parse_heads(model: Any, heads: Any) -> list[Head]:
    """Reads a list of heads, each by itself; None stands for every head.

    Raises:
        InputError: for an unknown head, no head at all, or something else than a list.
    """
    if heads is not None and (isinstance(heads, str) or not has_entries(heads)):
        raise InputError(f"heads={heads!r} is {type(heads).__name__}; give a list of head names")
    chosen = [parse_head(model, name) for name in (head_names(model) if heads is None else heads)]
    if not chosen:
        raise InputError("heads is empty; give at least one head, or None for all of them")
    return chosen


def set_name(heads: Iterable[Head]) -> str:
    """Gives `L0H1+L1H2` for a set of heads."""
    return "+".join(head_name(head) for head in heads)


def parse_positions(positions: Any, n_pos: int) -> tuple[int, ...]:
    """Reads a list of positions, negative ones counted from the end; None stands for all.

    Args:
        positions: what the caller gave.
        n_pos: number of positions of the batch.

    Returns:
        Positions from 0, in the order given.

    Raises:
        InputError: if one is out of range or no integer, or none is given.
    """
    if positions is None:
        return tuple(range(n_pos))
    given = whole_numbers("positions", positions)
    whole_number("n_pos", n_pos)
    if not given:
        raise InputError("positions is empty; give at least one position, or None for all of them")
    for position in given:
        if not -n_pos <= position < n_pos:
            raise InputError(
                f"position {position} is out of range; the sequences have {n_pos} positions, "
                f"0 to {n_pos - 1} (or -1 to {-n_pos} from the end)"
            )
    return tuple(position % n_pos for position in given)


def check_batch(name: str, tokens: Any) -> None:
    """Refuses what is no batch at all, before its shape is asked for.

    Raises:
        InputError: for anything but a tensor of two axes that holds signed integers.
    """
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name} is {type(tokens).__name__}; give a tensor [batch, pos] of ids")
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8):
        raise InputError(
            f"{name} has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; "
            "it must be integer token ids of shape [batch, pos]"
        )


def check_tokens(model: Any, tokens: Int[Tensor, "batch pos"], argument: str, n_used: int) -> None:
    """Refuses a batch that the model cannot read.

    Args:
        model: a HookedTransformer.
        tokens: the batch.
        argument: its name in the error.
        n_used: how many positions the model will read.

    Raises:
        InputError: if it is not a batch of token ids, empty, too long, on another device, or
            holds an id outside the vocabulary.
    """
    check_model(model)
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InputError(
            f"{argument} has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; "
            "it must be integer token ids of shape [batch, pos]"
        )
    if not tokens.numel():
        raise InputError(f"{argument} is empty, shape {tuple(tokens.shape)}; give examples")
    if n_used > model.cfg.n_ctx:
        raise InputError(
            f"{argument} has {n_used} positions to read but the model's n_ctx is "
            f"{model.cfg.n_ctx}; cut the sequences or score earlier positions"
        )
    highest, lowest = int(tokens.max()), int(tokens.min())
    if lowest < 0 or highest >= model.cfg.d_vocab:
        wrong = lowest if lowest < 0 else highest
        raise InputError(
            f"{argument} holds token id {wrong}, outside the model's vocabulary of "
            f"{model.cfg.d_vocab} (0 to {model.cfg.d_vocab - 1})"
        )


def check_pair(
    clean: Int[Tensor, "batch pos"],
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None,
    purpose: str,
) -> Int[Tensor, "batch pos"]:
    """Refuses a corrupt batch that is missing, of another shape, or the clean one.

    Returns:
        The corrupt batch.
    """
    if corrupt is None:
        raise InputError(f"{purpose} needs corrupt=, a batch of the same shape as clean")
    if corrupt.shape != clean.shape:
        raise InputError(
            f"corrupt has shape {tuple(corrupt.shape)} but clean has {tuple(clean.shape)}; "
            "give one corrupt sequence an example, of the same length"
        )
    if torch.equal(corrupt, clean):
        raise InputError(
            f"corrupt equals clean, so {purpose} would change nothing; give other sequences"
        )
    return corrupt
