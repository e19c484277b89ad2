"""Does one head steer where a later head looks? The edge into its keys, really cut."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation, check_ablation, partners, replacement
from circuits.checked_run import check_length, check_tokens, checked_streams, embed_batch
from circuits.errors import InputError, whole_number
from circuits.graph import Graph, Node
from circuits.heads import Head, head_name, head_names, parse_head, parse_heads
from circuits.intervals import mean_interval
from circuits.matching import matching_score, query_positions
from circuits.metrics import Metric, resolve_metric, scored_positions
from circuits.model_weights import read_weights
from circuits.streams import Streams, cuts_of, run_streams
from circuits.undisturbed import undisturbed
from circuits.weight_circuits import k_composition_ratio


def k_composition(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    source: str,
    heads: Sequence[str] | None = None,
    metric: Metric = "loss",
    ablation: Ablation = "mean",
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None = None,
    scored: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """How much of a head's matching, and of the model's answer, hangs on an earlier head's output?

    For an induction head the keys have to say what the *previous* token was. So the edge from the
    previous-token head into its keys is cut, that edge alone, and two things are measured: how far
    its match score falls, and what the metric does. The ratio of norms, which uses weights alone
    and cannot tell a used path from an unused one, stands beside them.

    Args:
        model: a HookedTransformer, which is left as it was found.
        tokens: sequences in which tokens repeat, with what the metric needs.
        source: the earlier head, for example `InductionScores.best("previous_token")`.
        heads: heads whose keys it may feed; all in later layers if not given.
        metric: as in `head_effects`.
        ablation: what the keys get in place of the source's output: as in `edge_effects`.
        corrupt: the paired batch, for "patch".
        scored: positions that the metric reads.
        queries: positions of the match score; all but the first if not given.
        seed: of the partners of "resample".

    Returns:
        One row a head: `edge`, `source`, `reader`, `norm_ratio`, `match` (uncut), `match_drop` with
        `match_drop_low` and `match_drop_high`, and `effect`, `low`, `high` of the cut on the
        metric. Costs about one forward pass a head.

    Raises:
        InputError: unknown heads, no head in a later layer, bad tokens or metric.
    """
    check_tokens(model, "tokens", tokens)
    check_ablation(ablation, corrupt)
    if corrupt is not None:
        check_tokens(model, "corrupt", corrupt, tokens)
        if ablation != "patch" and metric != "logit_diff":
            raise InputError(
                f"corrupt is given but ablation={ablation!r} does not read it: use "
                "ablation='patch' or leave corrupt out"
            )
    whole_number("seed", seed)
    origin = parse_head(model, source)
    readers = _later(model, source, origin, heads)
    read = scored_positions(metric, scored, tokens.shape[1])
    used = max(read) + 1
    check_length(model, used)
    seen = tokens[:, :used]
    chosen = [q for q in query_positions(queries, tokens.shape[1]) if q < used]
    graph, weights = Graph.of(model), read_weights(model)
    with undisturbed(model):
        base, _ = checked_streams(model, weights, seen, None)
        swap = _replacement(model, base, Node("head", *origin), ablation, corrupt, seed)
        measured = resolve_metric(metric, base.logits[:, list(read)], tokens, read, corrupt)
        clean = measured(base.logits[:, list(read)])
        rows = []
        for layer, index in readers:
            name = head_name((layer, index))
            edge = graph.edge(f"{source}->{name}.k")
            cut = run_streams(
                weights, base.batch, cuts_of([edge], weights.n_heads), lambda node: swap
            )
            uncut, drop = _match_drop(base, cut, (layer, index), chosen)
            effect = _interval(measured(cut.logits[:, list(read)]) - clean)
            ratio = k_composition_ratio(model, source, name, weights)
            rows.append((edge.name, source, f"{name}.k", ratio, uncut, *drop, *effect))
    columns = ["edge", "source", "reader", "norm_ratio", "match"]
    columns += ["match_drop", "match_drop_low", "match_drop_high", "effect", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _match_drop(
    base: Streams, cut: Streams, head: Head, queries: list[int]
) -> tuple[float, tuple[float, float, float]]:
    """The uncut match score of a head, and by how much the cut lowers it."""
    layer, index = head
    match = [
        matching_score(run.layers[layer].pattern[:, [index]], base.batch.tokens, queries)
        for run in (base, cut)
    ]
    return float(match[0].mean()), _interval((match[0] - match[1])[0])


def _later(model: Any, source: str, origin: Head, heads: Sequence[str] | None) -> list[Head]:
    if heads is None:
        chosen = [head for name in head_names(model) if (head := parse_head(model, name))]
        chosen = [head for head in chosen if head[0] > origin[0]]
    else:
        chosen = parse_heads(model, heads)
    if not chosen:
        raise InputError(
            f"no head lies in a layer after {source}: nothing reads its output as keys"
        )
    for head in chosen:
        if head[0] <= origin[0]:
            raise InputError(
                f"{source} is not in an earlier layer than {head_name(head)}: "
                "only earlier heads feed its keys"
            )
    return chosen


def _replacement(
    model: Any,
    base: Streams,
    node: Node,
    ablation: Ablation,
    corrupt: Tensor | None,
    seed: int,
) -> Float[Tensor, "rows pos d_model"]:
    tokens = base.batch.tokens

    def corrupted() -> Tensor:
        assert corrupt is not None
        used = corrupt[:, : tokens.shape[1]]
        return run_streams(base.weights, embed_batch(model, base.weights, used, None)).output(node)

    partner = partners(len(tokens), seed) if ablation == "resample" else None
    return replacement(ablation, lambda: base.output(node), corrupted, partner)


def _interval(values: Float[Tensor, " batch"]) -> tuple[float, float, float]:
    mean, low, high = mean_interval(values)
    return float(mean), float(low), float(high)
