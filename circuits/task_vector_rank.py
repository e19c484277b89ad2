"""How many dimensions do task vectors have, and how many does the model need?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.checked_run import check_length, check_tokens, checked_streams
from circuits.errors import InputError, refuse_other_kinds, whole_number, whole_numbers
from circuits.heads import parse_positions
from circuits.intervals import mean_interval
from circuits.metrics import Metric, resolve_metric, scored_positions
from circuits.model_weights import read_weights
from circuits.node_outputs import parse_node, parse_readers, patched_run
from circuits.task_vector import TaskVectors
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class Dimension:
    """How the task vectors spread.

    Attributes:
        participation_ratio: (sum of variances)^2 / sum of squared variances along principal axes:
            n for n equal axes, 1 for a line; `low` and `high` its interval.
        table: one row a principal axis: `axis` (from 1), `variance`, `share`, `cumulative`.
        axes: the principal axes, rows of length 1, the largest variance first.
    """

    participation_ratio: float
    low: float
    high: float
    table: pd.DataFrame
    axes: Float[Tensor, "axis d_model"]


def dimension(vectors: TaskVectors) -> Dimension:
    """In how many directions do the groups' vectors differ?

    Principal components of the vectors around their mean, each group counted once. Noise in the
    vectors adds directions, so more examples a group mean a smaller, truer ratio; the interval is
    the bootstrap of leave-one-out pseudo-values over examples, which also correct that bias to
    first order.

    Raises:
        InputError: vectors that are all the same.
    """
    table = vectors.vectors.double()
    centred = table - table.mean(0)
    _, sizes, axes = torch.linalg.svd(centred, full_matrices=False)
    kept = sizes > 1e-10 * table.norm()
    if not bool(kept.any()):
        raise InputError("the task vectors are all the same: they have no direction to differ in")
    variance = (sizes[kept] ** 2) / len(table)
    whole = _participation(table)
    n = len(vectors.group_of)
    counts = torch.bincount(vectors.group_of)
    pseudo = torch.stack(
        [
            n * whole - (n - 1) * _participation(_without(vectors, table, counts, i))
            for i in range(n)
        ]
    )
    _, low, high = mean_interval(pseudo)
    share = variance / variance.sum()
    spectrum = pd.DataFrame(
        {
            "axis": range(1, len(variance) + 1),
            "variance": variance.tolist(),
            "share": share.tolist(),
            "cumulative": share.cumsum(0).tolist(),
        }
    )
    return Dimension(float(whole), float(low), float(high), spectrum, axes[kept])


def rank_curve(
    model: Any,
    vectors: TaskVectors,
    tokens: Int[Tensor, "batch pos"],
    reader: str = "all",
    metric: Metric = "kl",
    ranks: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """What does the model lose when a reader sees only r dimensions of the node?

    The node's output x, as the reader sees it, becomes m + P (x - m): m is the mean of the task
    vectors, P the projection on their first r principal axes. Beside it the same with r random
    axes, which shows what any r dimensions would do.

    Args:
        model: the model that the vectors are from, which is left as it was found.
        vectors: from `task_vectors`.
        tokens: sequences, rather not those of the vectors.
        reader: as in `patch_task_vector`.
        metric: "kl" (KL of the clean answer from the projected one, nats), or as in `head_effects`.
        ranks: which r; 0 to the number of axes if not given.
        positions: where to project, and which the metric reads; the vectors' own if None.
        seed: of the random axes.

    Returns:
        One row a rank: `rank`, `effect`, `low`, `high`, `random`, `random_low`, `random_high` (in
        the metric's unit) and `explained` (share of the task vectors' variance). Two forward
        passes a rank.

    Raises:
        InputError: a rank out of range; also as `patch_task_vector`.
    """
    refuse_other_kinds("vectors", vectors, TaskVectors, "what task_vectors found")
    whole_number("seed", seed)
    check_tokens(model, "tokens", tokens)
    check_length(model, tokens.shape[1])
    node = parse_node(model, vectors.node)
    readers = parse_readers(model, node, reader)
    at = list(
        parse_positions(vectors.positions if positions is None else positions, tokens.shape[1])
    )
    read = list(scored_positions(metric, tuple(at), tokens.shape[1]))
    found = dimension(vectors)
    cumulative = [0.0, *found.table["cumulative"]]
    chosen = list(range(len(cumulative)) if ranks is None else whole_numbers("ranks", ranks))
    _refuse_bad_ranks(chosen, len(cumulative) - 1)
    rows = []
    with undisturbed(model):
        base, _ = checked_streams(model, read_weights(model), tokens, None)
        output = base.output(node)[:, at]
        measured = resolve_metric(metric, base.logits[:, read], tokens, tuple(read))
        clean = measured(base.logits[:, read])
        random = _random_axes(len(found.axes), output, seed)
        for rank in chosen:
            effects = []
            for axes in (found.axes.to(output)[:rank], random[:rank]):
                new = vectors.mean + (output - vectors.mean) @ axes.T @ axes
                run = patched_run(base, node, readers, new, at)
                effects.append(measured(run.logits[:, read]) - clean)
            bounds = mean_interval(torch.stack(effects))
            columns = [[float(bound[i]) for bound in bounds] for i in (0, 1)]
            rows.append((rank, *columns[0], *columns[1], cumulative[rank]))
    names = ["effect", "low", "high", "random", "random_low", "random_high", "explained"]
    return pd.DataFrame(rows, columns=["rank", *names])


def _participation(table: Float[Tensor, "group d_model"]) -> Float[Tensor, ""]:
    """From the inner products of the centred vectors, whose eigenvalues are the variances."""
    centred = table - table.mean(0)
    inner = centred @ centred.T
    return inner.trace() ** 2 / inner.square().sum()


def _without(
    vectors: TaskVectors, table: Tensor, counts: Tensor, example: int
) -> Float[Tensor, "group d_model"]:
    """The task vectors when one example is left out."""
    group = vectors.group_of[example]
    left, n = table.clone(), counts[group]
    left[group] = (table[group] * n - vectors.per_example[example].double()) / (n - 1)
    return left


def _random_axes(n: int, like: Tensor, seed: int) -> Float[Tensor, "axis d_model"]:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(like.shape[-1], n, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(draw).Q.T.to(like)


def _refuse_bad_ranks(ranks: list[int], highest: int) -> None:
    bad = [rank for rank in ranks if not 0 <= rank <= highest]
    if bad or not ranks:
        raise InputError(
            f"ranks={ranks} must lie between 0 and {highest}, the number of axes in which these "
            "task vectors differ"
        )
