"""What an ablated head carries instead of its own z: nothing, a mean, or another example's."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import partners, position_mean
from circuits.errors import InputError
from circuits.heads import check_pair

HeadAblation = Literal["zero", "mean", "mean-all", "resample", "patch"]


def check_head_ablation(ablation: str) -> None:
    """Refuses an ablation that does not exist.

    Raises:
        InputError: with the list of those that do.
    """
    if ablation not in get_args(HeadAblation):
        raise InputError(
            f"ablation={ablation!r} is unknown; choose one of {', '.join(get_args(HeadAblation))} "
            "(mean is one vector a position, mean-all one vector over all positions)"
        )


def replacement(
    ablation: str, z: Float[Tensor, "batch pos head_index d_head"], seed: int = 0
) -> Float[Tensor, "rows places head_index d_head"]:
    """Makes the replacement for one layer's z.

    Args:
        ablation: which kind.
        z: the recorded z that replacements are made of: of the reference batch (for "mean",
            "mean-all" and "resample") or of the corrupt batch (for "patch"); for "zero" any.
        seed: chooses the partners of "resample", the same as for edges.

    Returns:
        A tensor that broadcasts against z: `rows` is 1 where all examples get the same, and
        `places` is 1 where all positions do.

    Raises:
        InputError: for an unknown ablation, or "resample" with one example.
    """
    check_head_ablation(ablation)
    if ablation == "zero":
        return torch.zeros_like(z[:1, :1])
    if ablation == "mean":
        return position_mean(z)
    if ablation == "mean-all":
        return z.mean((0, 1), keepdim=True)
    if ablation == "resample":
        return z[partners(z.shape[0], seed).to(z.device)]
    return z


def replacement_batch(
    ablation: str,
    clean: Int[Tensor, "batch pos"],
    reference: Int[Tensor, "reference_batch reference_pos"] | None,
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None,
    metric: object = None,
) -> Int[Tensor, "rows pos"] | None:
    """Says which batch the replacement is computed on, if not the clean one itself.

    Args:
        ablation: which kind.
        clean: the batch under study.
        reference: another batch for "mean", "mean-all" or "resample", if the caller gave one.
        corrupt: the paired batch, for "patch".
        metric: what is measured: "logit_diff" contrasts with the tokens of `corrupt`, whatever the
            ablation.

    Raises:
        InputError: if a batch is given that this ablation has no use for, or one is missing.
    """
    check_head_ablation(ablation)
    if ablation == "patch":
        check_pair(clean, corrupt, "ablation='patch'")
    elif corrupt is not None and metric == "logit_diff":
        check_pair(clean, corrupt, "metric='logit_diff'")
    elif corrupt is not None:
        raise InputError(
            f"corrupt= is not used by ablation={ablation!r}; leave it out or use patch"
        )
    if ablation in ("zero", "patch") and reference is not None:
        raise InputError(f"reference= is not used by ablation={ablation!r}; leave it out")
    if reference is not None and reference.shape[1] != clean.shape[1]:
        raise InputError(
            f"reference has {reference.shape[1]} positions but clean has {clean.shape[1]}; "
            "give sequences of the same length"
        )
    if ablation == "resample" and reference is not None and len(reference) != len(clean):
        raise InputError(
            f"reference has {len(reference)} examples but clean has {len(clean)}; "
            "resample needs one an example"
        )
    return corrupt if ablation == "patch" else reference
