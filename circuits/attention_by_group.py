"""Where do heads look, how widely, and what is lost when chosen looks are forbidden?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError, refuse_other_kinds
from circuits.heads import (
    check_batch,
    check_model,
    check_tokens,
    head_name,
    parse_heads,
    parse_positions,
)
from circuits.intervals import mean_interval
from circuits.provenance import provenance
from circuits.restart import record
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class AttentionPatterns:
    """Attention of heads.

    Attributes:
        table: one row for each head, query group and key group: `head`, `query`, `key`,
            `attention` (summed over the key group, mean over the query group and the batch),
            `low`, `high`.
        entropies: one row for each head and query group: `head`, `query`, `entropy` in nats,
            `low`, `high`, and `uniform`, the entropy of looking everywhere alike.
        mean: the mean pattern over the batch under the name of each head.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    entropies: pd.DataFrame
    mean: dict[str, Float[Tensor, "query_pos key_pos"]]
    provenance: dict[str, Any]


def attention_patterns(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    groups: Mapping[str, Sequence[int]] | None = None,
    heads: Iterable[str] | None = None,
) -> AttentionPatterns:
    """How much does each head look from one group of positions at another, and how sharply?

    Costs one forward pass.

    Args:
        model: a HookedTransformer, left as it was found.
        tokens: the tokens that the model reads.
        groups: named positions, such as `{"B": (1, 2), "z": (8, 9)}`; every position by itself
            (named by its number) if not given.
        heads: heads to report; all if not given.

    Returns:
        The patterns.

    Raises:
        InputError: for an unknown head, a position out of range, or a batch that the model cannot
            read.
    """
    check_model(model)
    check_batch("tokens", tokens)
    n_pos = tokens.shape[1]
    check_tokens(model, tokens, "tokens", n_pos)
    if groups is not None:
        refuse_other_kinds("groups", groups, Mapping, "a dict of names and their positions")
    if groups is not None and not groups:
        raise InputError("groups is empty; name at least one group of positions, or give None")
    named = groups if groups is not None else {str(place): (place,) for place in range(n_pos)}
    places = {name: list(parse_positions(group, n_pos)) for name, group in named.items()}
    chosen = parse_heads(model, heads)
    with undisturbed(model):
        patterns = record(model, tokens, (0,), ("pattern",))["pattern"]
    table, entropies, mean = [], [], {}
    for head in chosen:
        pattern = patterns[head[0]][:, head[1]]
        pattern = pattern if pattern.dtype == torch.float64 else pattern.float()
        table.append(_between(head_name(head), pattern, places))
        entropies.append(_widths(head_name(head), pattern, places, model))
        mean[head_name(head)] = pattern.mean(0)
    facts = provenance(model, tokens, groups={name: list(group) for name, group in places.items()})
    return AttentionPatterns(
        pd.concat(table, ignore_index=True), pd.concat(entropies, ignore_index=True), mean, facts
    )


def _between(
    head: str, pattern: Float[Tensor, "batch query_pos key_pos"], places: dict[str, list[int]]
) -> pd.DataFrame:
    pairs = [(query, key) for query in places for key in places]
    values = torch.stack(
        [pattern[:, places[q]][:, :, places[k]].sum(-1).mean(-1) for q, k in pairs]
    )
    mean, low, high = mean_interval(values)
    return pd.DataFrame(
        {
            "head": head,
            "query": [query for query, _ in pairs],
            "key": [key for _, key in pairs],
            "attention": mean.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    )


def _widths(
    head: str,
    pattern: Float[Tensor, "batch query_pos key_pos"],
    places: dict[str, list[int]],
    model: Any,
) -> pd.DataFrame:
    entropy = -torch.xlogy(pattern, pattern).sum(-1)
    mean, low, high = mean_interval(
        torch.stack([entropy[:, where].mean(-1) for where in places.values()])
    )
    causal = model.cfg.attention_dir == "causal"
    n_pos = pattern.shape[-1]
    seen = torch.arange(1, n_pos + 1) if causal else torch.full((n_pos,), n_pos)
    return pd.DataFrame(
        {
            "head": head,
            "query": list(places),
            "entropy": mean.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "uniform": [float(seen[where].log().mean()) for where in places.values()],
        }
    )
