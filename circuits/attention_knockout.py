"""What is lost when one head may no longer look from here to there?"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from circuits.errors import InputError
from circuits.head_ablation import HeadEffects
from circuits.heads import (
    Head,
    check_batch,
    check_tokens,
    head_name,
    parse_head,
    parse_heads,
    parse_positions,
)
from circuits.intervals import mean_interval
from circuits.metrics import Metric, resolve_metric, scored_positions
from circuits.provenance import provenance
from circuits.restart import record, restart_of
from circuits.undisturbed import undisturbed


@contextmanager
def knocked_out(
    model: Any, head: str, queries: Sequence[int], keys: Sequence[int], n_pos: int
) -> Iterator[Any]:
    """Runs a block in which one head cannot look from the queries at the keys.

    The scores of these links are minus infinity before the softmax, so that the attention they
    had goes to the other keys. The links come back afterwards, also after an exception.

    Args:
        model: a HookedTransformer.
        head: the head, such as "L0H3".
        queries: positions that look.
        keys: positions that they may not look at.
        n_pos: length of the sequences that will be run (for negative positions and checks).

    Yields:
        The model.

    Raises:
        InputError: for an unknown head, a position out of range, or a query that would have no
            key left.
    """
    at = parse_head(model, head)
    links = _links(model, queries, keys, n_pos)
    with model.hooks(fwd_hooks=[_cut(at, *links)]):
        yield model


def knockout_effects(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    queries: Sequence[int],
    keys: Sequence[int],
    heads: Iterable[str] | None = None,
    scored: Sequence[int] | None = None,
) -> HeadEffects:
    """How much does the metric change when a head's looks from queries to keys are forbidden?

    For each head by itself, the scores of all links from `queries` to `keys` are set to minus
    infinity before the softmax (Geva et al., 2023): the head still works, but must take what it
    reads from the keys that are left. Costs a forward pass from the head's layer on, a head.

    Args:
        model: a HookedTransformer, left as it was found.
        clean: the sequences.
        metric: as in `head_effects`.
        queries: positions that look.
        keys: positions that they may not look at. Links into the future do not exist and are
            passed over.
        heads: the heads to try; all if not given.
        scored: positions that the metric reads; all if not given.

    Returns:
        One row a head, as from `head_effects`.

    Raises:
        InputError: as `head_effects`; also if no link exists, or a query would have no key left.
    """
    chosen = parse_heads(model, heads)
    check_batch("clean", clean)
    read = scored_positions(metric, scored, clean.shape[1])
    used = max(read) + 1 if model.cfg.attention_dir == "causal" else clean.shape[1]
    check_tokens(model, clean, "clean", used)
    rows, columns = _links(model, queries, keys, clean.shape[1])
    inside = (rows < used) & (columns < used)
    with undisturbed(model):
        recording = record(model, clean[:, :used], read, ("resid_pre", "z"))
        restart = restart_of(model, clean[:, :used], recording, read)
        measured = resolve_metric(metric, recording.logits, clean, read)
        base = measured(recording.logits)
        found = []
        for head in chosen:
            with model.hooks(fwd_hooks=[_cut(head, rows[inside], columns[inside])]):
                logits = restart.from_resid_pre(head[0], recording["resid_pre"][head[0]])
            found.append(measured(logits) - base)
    per_example = torch.stack(found)
    facts = provenance(
        model, clean, intervention="attention knockout", scored=list(read),
        queries=sorted(set(rows.tolist())), keys=sorted(set(columns.tolist())),
        metric=metric if isinstance(metric, str) else getattr(metric, "__qualname__", "callable"),
    )  # fmt: skip
    return HeadEffects(_table(chosen, per_example), per_example, base, facts)


def _table(heads: list[Head], per_example: Tensor) -> pd.DataFrame:
    mean, low, high = mean_interval(per_example)
    return pd.DataFrame(
        {
            "head": [head_name(head) for head in heads],
            "layer": pd.array([layer for layer, _ in heads], dtype="Int64"),
            "index": pd.array([index for _, index in heads], dtype="Int64"),
            "effect": mean.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    )


def _links(
    model: Any, queries: Sequence[int], keys: Sequence[int], n_pos: int
) -> tuple[Int[Tensor, " links"], Int[Tensor, " links"]]:
    """Query and key of every link to cut; refuses a query that would see nothing."""
    causal = model.cfg.attention_dir == "causal"
    from_, to = parse_positions(queries, n_pos), set(parse_positions(keys, n_pos))
    links = [(query, key) for query in from_ for key in sorted(to) if key <= query or not causal]
    if not links:
        raise InputError(
            f"no link leads from queries {list(queries)} to keys {list(keys)}: the model looks "
            "back only; give keys at or before the queries"
        )
    for query in from_:
        if set(range(query + 1 if causal else n_pos)) <= to:
            raise InputError(
                f"query {query} would have no key left to look at; keep at least one, or ablate "
                "the head at that position"
            )
    pairs = torch.tensor(links, dtype=torch.long)
    return pairs[:, 0], pairs[:, 1]


def _cut(head: Head, rows: Tensor, columns: Tensor) -> tuple[str, Any]:
    def cut(scores: Tensor, hook: Any) -> Tensor:
        scores = scores.clone()
        scores[:, head[1], rows, columns] = -torch.inf
        return scores

    return f"blocks.{head[0]}.attn.hook_attn_scores", cut
