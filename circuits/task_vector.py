"""The vector that identifies the task: the mean of any node's output, group by group.

For a model that recognises which Markov chain it reads: groups are chains, the node is the second
attention `A1`, the positions are late ones. The same calls extract function vectors from any model:
groups are then whatever the examples differ in. Probing, patching and the dimension of what is
extracted are in `task_vector_probe.py`, `task_vector_patch.py` and `task_vector_rank.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.checked_run import check_tokens
from circuits.errors import InputError
from circuits.heads import parse_positions
from circuits.intervals import mean_interval
from circuits.node_outputs import node_output, parse_node
from circuits.provenance import provenance
from circuits.variance_components import check_labels, group_index


@dataclass(frozen=True)
class TaskVectors:
    """One vector a group.

    Attributes:
        node: whose output it is.
        positions: that were averaged over.
        labels: of the groups, ascending.
        vectors: mean over the examples of a group.
        per_example: every example's mean over positions.
        group_of: each example's group, as an index into `labels`.
        table: one row a group: `label`, `examples`, `distance` of its vector from the mean of all
            groups' vectors with `low`, `high` over its examples, and `spread`, the root mean square
            distance of its examples from its vector.
        provenance: what decided the numbers.
    """

    node: str
    positions: tuple[int, ...]
    labels: tuple[int, ...]
    vectors: Float[Tensor, "group d_model"]
    per_example: Float[Tensor, "batch d_model"]
    group_of: Int[Tensor, " batch"]
    table: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def mean(self) -> Float[Tensor, " d_model"]:
        """The mean of the groups' vectors, each group counted once."""
        return self.vectors.mean(0)

    def index_of(self, groups: Int[Tensor, " n"], name: str, n: int) -> Int[Tensor, " n"]:
        """Turns labels into indices of `vectors`.

        Args:
            groups: labels.
            name: of the argument, for the message.
            n: how many there should be.

        Raises:
            InputError: another number of labels, or one without a vector.
        """
        check_labels(groups, name, n)
        known = torch.tensor(self.labels, device=groups.device)
        place = torch.searchsorted(known, groups.contiguous()).clamp_max(len(known) - 1)
        wrong = groups[known[place] != groups]
        if wrong.numel():
            raise InputError(
                f"{name} holds group {int(wrong[0])}, which has no task vector; groups with one: "
                f"{', '.join(str(label) for label in self.labels[:20])}"
            )
        return place


def task_vectors(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    groups: Int[Tensor, " labelled"],
    node: str,
    positions: Sequence[int] | None = None,
) -> TaskVectors:
    """What vector does a node write for each group of examples?

    The node's output is averaged over the positions of an example, and over the examples of a
    group (Hendel et al., 2023, and Todd et al., 2024, average a residual stream and heads; here it
    is any node).

    Args:
        model: a HookedTransformer, which is left as it was found.
        tokens: the sequences.
        groups: a label an example, for example its chain.
        node: `embed`, a head `L1H0`, a layer's attention `A1` (its heads together, without b_O), or
            an MLP `M0`.
        positions: which positions to average over; all if not given. Late ones, where the model
            has seen enough to know the group, make the better vectors.

    Returns:
        The vectors. Costs two forward passes.

    Raises:
        InputError: an unknown node (an MLP of an attention-only model too), fewer than two groups,
            a group of one example, bad tokens, or positions out of range.
    """
    parse_node(model, node)
    check_tokens(model, "tokens", tokens)
    index, n_groups = group_index(groups, tokens.shape[0])
    at = parse_positions(positions, tokens.shape[1])
    output = node_output(model, tokens, node)
    per_example = output[:, list(at)].mean(1)
    vectors = torch.stack([per_example[index == group].mean(0) for group in range(n_groups)])
    labels = tuple(torch.unique(groups).tolist())
    facts = {"node": node, "positions": list(at), "groups": groups}
    return TaskVectors(
        node=node,
        positions=at,
        labels=labels,
        vectors=vectors,
        per_example=per_example,
        group_of=index,
        table=_table(labels, vectors, per_example, index),
        provenance=provenance(model, tokens, **facts),
    )


def _table(
    labels: tuple[int, ...],
    vectors: Float[Tensor, "group d_model"],
    per_example: Float[Tensor, "batch d_model"],
    index: Int[Tensor, " batch"],
) -> pd.DataFrame:
    rows = []
    middle = vectors.mean(0)
    for group, label in enumerate(labels):
        own = per_example[index == group]
        apart = vectors[group] - middle
        distance = apart.norm()
        along = (own - middle) @ (apart / distance.clamp_min(1e-30))
        mean, low, high = mean_interval(along)
        spread = (own - vectors[group]).square().sum(-1).mean().sqrt()
        rows.append((label, len(own), float(mean), float(low), float(high), float(spread)))
    return pd.DataFrame(rows, columns=["label", "examples", "distance", "low", "high", "spread"])
