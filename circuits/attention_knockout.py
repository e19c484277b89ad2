"""What is lost when one head may no longer look from here to there?"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
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
from circuits.restart import Recording, Restart, hooked, record, restart_of
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
        without = _through_hooks if hooked(model) else _from_scores
        links = rows[inside], columns[inside]
        found: dict[Head, Tensor] = {}
        for layer in dict.fromkeys(layer for layer, _ in chosen):  # One layer's scores at a time.
            own = [at for at in chosen if at[0] == layer]
            # Relative to the same arithmetic, so that what nobody reads costs nothing to the bit.
            uncut = base
            if not hooked(model):
                uncut = measured(_onwards(restart, recording, layer, recording["z"][layer]))
            for at, logits in zip(own, without(restart, recording, own, links), strict=True):
                found[at] = measured(logits) - uncut
    per_example = torch.stack([found[at] for at in chosen])
    facts = provenance(
        model, clean, intervention="attention knockout", scored=list(read),
        queries=sorted(set(rows.tolist())), keys=sorted(set(columns.tolist())),
        metric=metric if isinstance(metric, str) else getattr(metric, "__qualname__", "callable"),
    )  # fmt: skip
    return HeadEffects(_table(chosen, per_example), per_example, base, facts)


def _from_scores(
    restart: Restart, clean: Recording, heads: list[Head], links: tuple[Tensor, Tensor]
) -> Iterator[Float[Tensor, "batch scored d_vocab"]]:
    """Logits without some links of each of a layer's heads: its scores, cut, and what follows."""
    layer = heads[0][0]
    scores, values = _scores_and_values(restart, layer, clean["resid_pre"][layer])
    group = restart.model.cfg.n_heads // values.shape[2]
    queries = links[0].unique()
    for _, head in heads:
        v = values[:, :, head // group]
        pattern = _without(scores[:, head], links)[:, queries].softmax(-1).to(v.dtype)
        z = clean["z"][layer].clone()
        z[:, queries, head] = pattern @ v
        yield _onwards(restart, clean, layer, z)


def _onwards(
    restart: Restart, clean: Recording, layer: int, z: Tensor
) -> Float[Tensor, "batch scored d_vocab"]:
    """Logits when a layer's heads carry `z`."""
    return restart.from_attn_out(layer, clean["resid_pre"][layer], restart.attn_out(layer, z))


def _scores_and_values(
    restart: Restart, layer: int, resid_pre: Float[Tensor, "batch pos d_model"]
) -> tuple[Float[Tensor, "batch head_index pos pos"], Float[Tensor, "batch pos kv_head d_head"]]:
    """What a layer's heads attend by, before the softmax, and what they attend to."""
    kept: dict[str, Tensor] = {}

    def keep(activation: Tensor, hook: Any) -> None:
        kept[hook.name.rpartition(".")[2]] = activation

    names = ("hook_attn_scores", "hook_v")
    hooks = [(f"blocks.{layer}.attn.{name}", keep) for name in names]
    with restart.model.hooks(fwd_hooks=hooks):
        restart.model.blocks[layer](resid_pre, shortformer_pos_embed=restart.places(resid_pre))
    return kept["hook_attn_scores"], kept["hook_v"]


def _through_hooks(
    restart: Restart, clean: Recording, heads: list[Head], links: tuple[Tensor, Tensor]
) -> Iterator[Float[Tensor, "batch scored d_vocab"]]:
    """The same by a hook among the caller's own, which may change what comes of the scores."""
    for at in heads:
        with restart.model.hooks(fwd_hooks=[_cut(at, *links)]):
            logits = restart.from_resid_pre(at[0], clean["resid_pre"][at[0]])
        yield logits


def _without(scores: Float[Tensor, "batch pos pos"], links: tuple[Tensor, Tensor]) -> Tensor:
    """A head's scores with these links cut."""
    scores = scores.clone()
    scores[:, links[0], links[1]] = -torch.inf
    return scores


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
        scores[:, head[1]] = _without(scores[:, head[1]], (rows, columns))
        return scores

    return f"blocks.{head[0]}.attn.hook_attn_scores", cut
