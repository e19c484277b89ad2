"""What a circuit is measured by: KL, loss, accuracy, and the metric asked for."""

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.metrics import Metric, MetricCallable, resolve_metric
from circuits.prepared import Prepared


def measures_of(
    prepared: Prepared,
    metric: Metric,
    clean: Int[Tensor, "batch pos"],
    mask: Int[Tensor, "batch pos"] | None = None,
) -> dict[str, MetricCallable]:
    """The metric asked for, KL, and loss and accuracy where next tokens are known.

    Args:
        prepared: the checked input.
        metric: as it was asked for.
        clean: the batch with all its tokens.
        mask: 0 at padding.

    Returns:
        Functions of logits `"batch scored d_vocab"` that return `"batch"`, by name.
    """
    full = prepared.at_scored(prepared.clean.logits)
    real = None if mask is None else mask.bool()
    scored = torch.tensor(prepared.scored, device=clean.device)
    found = {
        "kl": resolve_metric(
            "kl", full, clean, prepared.scored, real=None if real is None else real[:, scored]
        )
    }
    has_next = [i for i, p in enumerate(prepared.scored) if p + 1 < clean.shape[1]]
    positions = scored[has_next]
    followed = torch.ones_like(clean[:, positions], dtype=torch.bool)
    if real is not None:
        followed = real[:, positions] & real[:, positions + 1]
    if has_next and bool(followed.any(1).all()):
        target = clean[:, positions + 1]
        weight = followed.to(full.dtype) / followed.sum(1, keepdim=True)
        found["loss"] = lambda logits: -(_chosen(logits[:, has_next], target) * weight).sum(1)
        found["accuracy"] = lambda logits: (
            (logits[:, has_next].argmax(-1) == target).to(weight) * weight
        ).sum(1)
    if metric not in found:
        found[metric if isinstance(metric, str) else "metric"] = prepared.metric
    return found


def _chosen(logits: Tensor, target: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
