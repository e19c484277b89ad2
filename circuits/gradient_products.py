"""Gradient times change for every edge at once, from one recorded run."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit_measure import in_order
from circuits.circuit_model import CircuitModel, CircuitRun
from circuits.errors import InputError
from circuits.graph import Node, Reader
from circuits.prepared import Prepared

MEMORY_BUDGET = 2**31


def logit_gradient(
    prepared: Prepared, logits: Float[Tensor, "batch scored d_vocab"]
) -> Float[Tensor, "batch scored d_vocab"]:
    """Gradient of the sum of all examples' metric; the metric sees the whole batch.

    Args:
        prepared: the metric.
        logits: at the scored positions in ascending order.

    Raises:
        InputError: the metric cannot be differentiated.
    """
    leaf = logits.detach().clone().requires_grad_()
    with torch.enable_grad():
        values = prepared.metric(in_order(prepared, leaf))
        if not values.requires_grad:
            raise InputError(
                "metric has no gradient: compute it from the logits with torch operations only, or "
                "use edge_effects"
            )
        return torch.autograd.grad(values.sum(), leaf)[0]


@torch.no_grad()
def gradient_products(
    part: CircuitModel, change: CircuitRun, gradients: dict[int, Tensor]
) -> Float[Tensor, "reader node batch"]:
    """Gradient times change, for every reader and every node before it.

    Cutting an edge takes the node's excess away from the reader's input, hence the minus sign.

    Args:
        part: the model with the examples at hand.
        change: a run that has every node's excess.
        gradients: by reader, with respect to what it reads.

    Returns:
        First-order changes, one an example; zero where a node does not come before a reader, and
        where one of them was not run.
    """
    nodes, readers = part.wiring.nodes, part.wiring.readers
    batch = part.batch.embed.shape[0]
    out = part.batch.embed.new_zeros(len(readers), len(nodes), batch)
    for group, sources in _reading_alike(part):
        rows = [readers[reader] for reader in group if readers[reader] in gradients]
        columns = [nodes[source] for source in sources if nodes[source] in change.excess]
        if not rows or not columns:
            continue
        at = part.reads_at(group[0])
        slopes = torch.stack([gradients[row].flatten(1) for row in rows], dim=1)
        excess = torch.stack([change.excess_at(c, at).flatten(1) for c in columns], dim=1)
        block = -(slopes @ excess.transpose(1, 2))
        index = torch.tensor(rows)[:, None], torch.tensor(columns)[None, :]
        out[index] = block.permute(1, 2, 0)
    return out


def _reading_alike(part: CircuitModel) -> Iterator[tuple[list[Reader], list[Node]]]:
    """Readers that read the same nodes at the same positions, with those nodes."""
    groups: dict[tuple[tuple[Node, ...], tuple[int, ...]], list[Reader]] = {}
    sources: dict[Reader, list[Node]] = {}
    for edge in part.wiring.heads_apart.edges:
        sources.setdefault(edge.reader, []).append(edge.source)
    for reader, nodes in sources.items():
        groups.setdefault((tuple(nodes), part.reads_at(reader)), []).append(reader)
    return ((readers, list(nodes)) for (nodes, _), readers in groups.items())


def slabs(prepared: Prepared, memory_budget: int | None) -> list[slice]:
    """Parts of the batch whose recorded pass fits the memory budget; None for 2 GiB.

    Raises:
        InputError: not even one example fits.
    """
    weights, (n, n_pos) = prepared.weights, prepared.clean.batch.tokens.shape
    heads, d_head, d_model = weights.attention[0].W_O.shape
    d_pre = weights.mlps[0].W_in.shape[1] if weights.mlps else 0
    layer = heads * (3 * (4 * d_model + d_head) + 3 * n_pos + 2 * d_model) + 4 * d_pre + 6 * d_model
    example = n_pos * (layer * weights.n_layers + 4 * weights.W_U.shape[1])
    budget = MEMORY_BUDGET if memory_budget is None else memory_budget
    rows = budget // (example * prepared.baseline.element_size())
    if rows < 1:
        raise InputError(
            f"memory_budget={budget} bytes is too small: one example's recorded pass takes about "
            f"{example * prepared.baseline.element_size()}"
        )
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]
