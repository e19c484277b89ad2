"""What stands in for an output that is taken away: nothing, a mean, another example's, or a pair's.

Edge and head ablation share these definitions.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.errors import InputError, near_matches

Ablation = Literal["zero", "mean", "resample", "patch"]
ABLATIONS: tuple[Ablation, ...] = ("zero", "mean", "resample", "patch")


def check_ablation(ablation: object, corrupt: Tensor | None) -> None:
    """Raises InputError for an unknown ablation, or a corrupt batch missing or without use."""
    if ablation not in ABLATIONS:
        raise InputError(
            f"ablation={ablation!r} is not known; near matches: {near_matches(ablation, ABLATIONS)}"
        )
    if ablation == "patch" and corrupt is None:
        raise InputError("ablation='patch' needs corrupt=, a batch paired with clean row by row")


def partners(
    n: int, seed: int, real: Bool[Tensor, "batch pos"] | None = None
) -> Int[Tensor, " batch"]:
    """Chooses for every example another one, whose outputs replace its own under `resample`.

    A random cycle through all examples, so that nobody is its own partner; with padding, a cycle
    among the examples of each length, because positions of other lengths do not correspond.

    Args:
        n: examples.
        seed: of the choice, which touches no global random state.
        real: False at padding.

    Returns:
        Index of each example's partner.

    Raises:
        InputError: an example has no other one (of its length) in the batch.
    """
    lengths = [0] * n if real is None else [tuple(row) for row in real.tolist()]
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.empty(n, dtype=torch.long)
    for length in dict.fromkeys(lengths):
        members = torch.tensor([i for i in range(n) if lengths[i] == length])
        if len(members) < 2:
            raise InputError(
                f"ablation='resample' finds no partner for example {int(members[0])}: give at "
                "least two examples" + (" of each padding" if real is not None else "")
            )
        cycle = members[torch.randperm(len(members), generator=generator)]
        chosen[cycle] = cycle.roll(-1)
    return chosen if real is None else chosen.to(real.device)


def position_mean(
    output: Float[Tensor, "batch pos *d"], real: Bool[Tensor, "batch pos"] | None = None
) -> Float[Tensor, "batch_or_one pos *d"]:
    """The mean over the batch at each position, as a replacement for every example.

    With padding, positions are counted from each example's first real token and only real tokens
    enter, so that left- and right-padded batches agree; padding keeps its own output, which no
    real token ever reads.

    Args:
        output: what a node writes on the whole batch.
        real: False at padding.

    Returns:
        The replacement; its batch axis is 1 without padding.
    """
    if real is None:
        return output.mean(0, keepdim=True)
    rank = (real.cumsum(1) - 1).clamp_min(0)
    flat = output.flatten(2) if output.dim() > 2 else output[..., None]
    index = rank[..., None].expand_as(flat)
    present = real[..., None].to(output.dtype)
    sums = torch.zeros_like(flat).scatter_add(1, index, flat * present).sum(0)
    counts = torch.zeros_like(flat[..., :1]).scatter_add(1, rank[..., None], present).sum(0)
    means = sums / counts.clamp_min(1)
    kept = torch.where(real[..., None], means[rank], flat)
    return kept.reshape(output.shape)


def replacement(
    ablation: Ablation,
    output: Callable[[], Tensor],
    corrupt_output: Callable[[], Tensor] | None = None,
    partner: Int[Tensor, " batch"] | None = None,
    real: Bool[Tensor, "batch pos"] | None = None,
) -> Tensor:
    """Gives what stands in for one node's output (or one head's z).

    Args:
        ablation: "zero": nothing; "mean": the mean over the batch at each position; "resample":
            the output on the partner example; "patch": the output on the paired corrupt input.
        output: computes the node's output on the clean batch, `"batch pos ..."`.
        corrupt_output: computes it on the corrupt batch, for "patch".
        partner: from `partners`, for "resample".
        real: False at padding.

    Returns:
        A tensor of the output's shape, or broadcastable to it.
    """
    if ablation == "patch":
        assert corrupt_output is not None
        return corrupt_output()
    clean = output()
    if ablation == "zero":
        return torch.zeros_like(clean[:1])
    if ablation == "mean":
        return position_mean(clean, real)
    assert partner is not None
    return clean[partner.to(clean.device)]
