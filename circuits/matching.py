"""How well does an attention pattern match? Scores of patterns against the tokens they look at."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.heads import parse_positions


def matched_keys(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Marks the keys whose *previous* token is the token at the query.

    The matched set of query n is {m : 1 <= m <= n, x_{m-1} = x_n}: the positions just after
    earlier occurrences of the current token, which is where its continuations stand.

    Args:
        tokens: the sequences.

    Returns:
        True at matched keys.
    """
    n_pos = tokens.shape[1]
    same = torch.zeros(*tokens.shape, n_pos, dtype=torch.bool, device=tokens.device)
    same[:, :, 1:] = tokens[:, :, None] == tokens[:, None, :-1]
    return same & causal(n_pos, tokens.device)


def causal(n_pos: int, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
    """Marks the keys that a query can see."""
    return torch.ones(n_pos, n_pos, dtype=torch.bool, device=device).tril()


def uniform_pattern(n_pos: int, device: torch.device | None = None) -> Float[Tensor, "query key"]:
    """Attention of a head without any preference: each query looks at all it sees alike.

    In float64: it is the baseline of every attention score.
    """
    seen = causal(n_pos, device).double()
    return seen / seen.sum(-1, keepdim=True)


def query_positions(queries: Sequence[int] | None, n_pos: int) -> tuple[int, ...]:
    """Reads the query positions that scores are averaged over; all but the first if None.

    Raises:
        InputError: one out of range, position 0 (which has no previous token), or fewer than two
            tokens a sequence.
    """
    if n_pos < 2:
        raise InputError(f"tokens has {n_pos} position(s): induction scores need at least 2")
    if queries is None:
        return tuple(range(1, n_pos))
    chosen = parse_positions(queries, n_pos)
    if 0 in chosen:
        raise InputError("queries holds position 0, which has no previous token: start at 1")
    return chosen


def matching_score(
    pattern: Float[Tensor, "batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    queries: Sequence[int] | None = None,
) -> Float[Tensor, "head example"]:
    """How much more than uniform attention goes to positions after the current token's likes?

    See `match` in `induction_scores`.

    Raises:
        InputError: bad positions, or no token that occurs twice.
    """
    return attention_scores(pattern, tokens, query_positions(queries, tokens.shape[1]))["match"]


def attention_scores(
    pattern: Float[Tensor, "batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    queries: tuple[int, ...],
) -> dict[str, Float[Tensor, "head example"]]:
    """Scores attention patterns as `induction_scores` defines them.

    Args:
        pattern: attention of some heads.
        tokens: what the heads looked at.
        queries: positions from 1 up, as `query_positions` gives them.

    Returns:
        Per example, by score; examples without a query at which a score is defined are left out
        of it.

    Raises:
        InputError: no query's token has occurred before.
    """
    at, n_pos = list(queries), tokens.shape[1]
    attention = pattern[:, :, at].double().transpose(0, 1)  # head batch query key
    matched = matched_keys(tokens)[:, at]
    size = matched.sum(-1)
    _refuse_without_matches(size)
    before = torch.tensor([n - 1 for n in at], device=tokens.device)
    previous = attention[..., torch.arange(len(at), device=tokens.device), before].mean(-1)
    mass = (attention * matched).sum(-1)
    by_chance = size.double() / (torch.tensor(at, device=tokens.device) + 1)
    some = size > 0
    prefix = _masked_mean(mass, some)
    chance = _masked_mean(by_chance, some)
    inside = torch.where(matched, attention, 0.0) / mass.clamp_min(1e-300)[..., None]
    flat = entropy(inside) / size.clamp_min(2).double().log()
    longest = causal(n_pos, tokens.device)[at].sum(-1).double().log()
    return {
        "previous_token": previous,
        "prefix_matching": prefix,
        "match": (prefix - chance) / (1 - chance),
        "matched_uniformity": _masked_mean(flat, size > 1),
        "evenness": (entropy(attention) / longest).mean(-1),
    }


def entropy(weights: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows"]:
    """Entropy in nats of distributions along the last axis; zeros count as 0 log 0 = 0."""
    return -torch.special.xlogy(weights, weights).sum(-1)


def _refuse_without_matches(size: Int[Tensor, "batch query"]) -> None:
    if not bool((size > 0).any()):
        raise InputError(
            "no token at the queries has occurred before, so nothing can be matched: give longer "
            "sequences, or sequences in which tokens repeat"
        )


def _masked_mean(
    values: Float[Tensor, "*rows batch query"], counted: Bool[Tensor, "batch query"]
) -> Float[Tensor, "*rows examples"]:
    """Mean over the counted queries of each example; examples without any are left out."""
    some = counted.any(-1)
    weight = counted[some].to(values.dtype)
    return (values[..., some, :] * weight).sum(-1) / weight.sum(-1)
