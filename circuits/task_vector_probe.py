"""How early in a sequence does a node's output say which group it belongs to?"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.checked_run import check_tokens
from circuits.errors import InputError, refuse_other_kinds
from circuits.heads import parse_positions
from circuits.intervals import mean_interval
from circuits.node_outputs import node_output
from circuits.provenance import tensor_sha256
from circuits.task_vector import TaskVectors


def probe_task_vectors(
    model: Any,
    vectors: TaskVectors,
    tokens: Int[Tensor, "batch pos"],
    groups: Int[Tensor, " labelled"],
    positions: Sequence[int] | None = None,
    posterior: Float[Tensor, "rows places group"] | None = None,
) -> pd.DataFrame:
    """How often is the nearest task vector the right one, as the context grows?

    At every position an example is given the group whose vector lies nearest (Euclidean) to what
    the node writes there. Beside it stands the accuracy of the best possible guess, if the caller
    knows it: no probe of a model can beat the exact posterior on average.

    Args:
        model: the model that the vectors are from.
        vectors: of at least two groups.
        tokens: *held-out* sequences, not those that the vectors are means of.
        groups: their labels, all among the vectors' own.
        positions: where to probe; everywhere if not given.
        posterior: probabilities (or log-probabilities) of the groups, in the order of
            `vectors.labels`, of an observer who has read the sequence up to each position.

    Returns:
        One row a position: `position`, `accuracy`, `low`, `high`, `chance` (share of the most
        frequent group here), and, with a posterior, `best`, `best_low`, `best_high`.

    Raises:
        InputError: the vectors' own sequences, an unknown label, a posterior of another shape.
    """
    refuse_other_kinds("vectors", vectors, TaskVectors, "what task_vectors found")
    check_tokens(model, "tokens", tokens)
    if tensor_sha256([tokens]) == vectors.provenance["batch_sha256"]:
        raise InputError(
            "tokens are the sequences that the task vectors are means of: probe on held-out ones"
        )
    index = vectors.index_of(groups, "groups", tokens.shape[0])
    at = parse_positions(positions, tokens.shape[1])
    output = node_output(model, tokens, vectors.node)[:, list(at)]
    distance = torch.cdist(output.double(), vectors.vectors.double()[None])
    right = (distance.argmin(-1) == index[:, None]).double()
    columns: dict[str, Any] = {"position": list(at)}
    columns |= _bounds(right, "accuracy", "low", "high")
    columns["chance"] = float(torch.bincount(index).max()) / len(index)
    if posterior is not None:
        refuse_other_kinds("posterior", posterior, Tensor, "a tensor 'batch pos group'")
        wanted = (*tokens.shape, len(vectors.labels))
        if tuple(posterior.shape) != wanted:
            raise InputError(
                f"posterior has shape {tuple(posterior.shape)}; it must be {wanted}: one value a "
                "group, in the order of the vectors' labels"
            )
        best = (posterior[:, list(at)].argmax(-1) == index[:, None]).double()
        columns |= _bounds(best, "best", "best_low", "best_high")
    return pd.DataFrame(columns)


def _bounds(right: Float[Tensor, "batch place"], *names: str) -> dict[str, list[float]]:
    bounds = mean_interval(right.T)
    return {name: bound.tolist() for name, bound in zip(names, bounds, strict=True)}
