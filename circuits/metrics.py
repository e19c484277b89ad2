"""What is measured on the logits: one value an example, by name or by a callable of your own."""

from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.errors import InputError, near_matches, whole_numbers

MetricName = Literal["kl", "loss", "logit_diff"]
MetricCallable = Callable[[Tensor], Tensor]
Metric = MetricName | str | MetricCallable
METRIC_NAMES = ("kl", "loss", "logit_diff")


def scored_positions(metric: object, scored: object, n_pos: int) -> tuple[int, ...]:
    """Gives the token positions whose logits a metric reads.

    Args:
        metric: a name or a callable.
        scored: positions in the order wanted, negative ones counted from the end; None for all
            (all but the last for "loss" and "logit_diff", which need the next token).
        n_pos: tokens in a sequence.

    Returns:
        Non-negative positions in the order given.

    Raises:
        InputError: no position, one outside the sequence, or one given twice.
    """
    needs_next = metric in ("loss", "logit_diff") if isinstance(metric, str) else False
    if scored is None:
        last = n_pos - 1 if needs_next else n_pos
        scored = range(last)
    given = whole_numbers("scored", scored)
    positions = tuple(p + n_pos if p < 0 else p for p in given)
    if not positions:
        raise InputError(f"scored={list(given)} names no position in sequences of {n_pos} tokens")
    for position in positions:
        if not 0 <= position < n_pos:
            raise InputError(f"scored holds {position}, outside the {n_pos} positions of the batch")
    if len(set(positions)) < len(positions):
        raise InputError(f"scored={list(given)} names a position twice")
    if needs_next and max(positions) == n_pos - 1:
        raise InputError(
            f"scored holds the last position {n_pos - 1}, whose next token is not in the batch: "
            f"metric={metric!r} needs it; pass sequences one token longer or score fewer positions"
        )
    return positions


def resolve_metric(
    metric: Any,
    clean_logits: Float[Tensor, "batch scored d_vocab"],
    tokens: Int[Tensor, "batch pos"],
    scored: tuple[int, ...],
    corrupt: Int[Tensor, "batch pos"] | None = None,
    real: Bool[Tensor, "batch scored"] | None = None,
) -> MetricCallable:
    """Turns a metric's name into a function of the logits at the scored positions.

    "kl" is KL(p_clean || p) in nats, "loss" the cross-entropy of the next token in nats; both are
    means over the scored positions. "logit_diff" is the mean over scored positions of the logit of
    the next token minus that of a contrast token: the corrupt sequence's next token where it
    differs, else the most likely wrong token of the clean run. A callable is returned with checks
    of what it gives back.

    Args:
        metric: "kl", "loss", "logit_diff", or a callable.
        clean_logits: of the unablated model at the scored positions.
        tokens: the batch, with the token after every scored position.
        scored: those positions.
        corrupt: the paired batch, for "logit_diff".
        real: False where a scored position is padding, or has padding after it; such positions
            are left out of the named metrics' means. A callable gets them and must ignore them.

    Returns:
        A function of logits `"batch scored d_vocab"` that returns `"batch"`.

    Raises:
        InputError: an unknown name; or, when called, a result of the wrong shape or not finite.
    """
    if callable(metric):
        return _checked(cast(MetricCallable, metric), clean_logits.shape[0])
    if metric not in METRIC_NAMES:
        raise InputError(
            f"metric={metric!r} is not known; near matches: {near_matches(metric, METRIC_NAMES)}; "
            "or pass a callable on logits that returns one value an example"
        )
    weight = _position_weights(real, clean_logits)
    if metric == "kl":
        return _kl(clean_logits, weight)
    index = torch.tensor([p + 1 for p in scored], device=tokens.device)
    target = tokens[:, index].to(clean_logits.device)
    if metric == "loss":
        return _loss(target, weight)
    other = None if corrupt is None else corrupt[:, index].to(clean_logits.device)
    return _logit_diff(target, _contrast(clean_logits, target, other), weight)


def _kl(clean_logits: Tensor, weight: Tensor) -> MetricCallable:
    clean = clean_logits.log_softmax(-1)
    probability = clean.exp()

    def kl(logits: Tensor) -> Tensor:
        gap = (probability * (clean - logits.log_softmax(-1))).sum(-1)
        return (gap * weight).sum(-1)

    return kl


def _loss(target: Tensor, weight: Tensor) -> MetricCallable:
    def loss(logits: Tensor) -> Tensor:
        chosen = logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
        return -(chosen * weight).sum(-1)

    return loss


def _logit_diff(target: Tensor, contrast: Tensor, weight: Tensor) -> MetricCallable:
    def logit_diff(logits: Tensor) -> Tensor:
        gap = logits.gather(-1, target[..., None]) - logits.gather(-1, contrast[..., None])
        return (gap[..., 0] * weight).sum(-1)

    return logit_diff


def _contrast(clean_logits: Tensor, target: Tensor, other: Tensor | None) -> Tensor:
    wrong = clean_logits.scatter(-1, target[..., None], -torch.inf).argmax(-1)
    return wrong if other is None else torch.where(other != target, other, wrong)


def _position_weights(real: Tensor | None, like: Tensor) -> Tensor:
    """Weights that make the mean over the real scored positions of each example."""
    if real is None:
        return torch.full(like.shape[:2], 1 / like.shape[1], dtype=like.dtype, device=like.device)
    counts = real.sum(-1, keepdim=True)
    if bool((counts == 0).any()):
        example = int((counts[:, 0] == 0).nonzero()[0])
        raise InputError(
            f"attention_mask leaves example {example} without a scored position: "
            "score a position inside every example, or drop the example"
        )
    return real.to(like.dtype) / counts


def _checked(metric: MetricCallable, batch: int) -> MetricCallable:
    def checked(logits: Tensor) -> Tensor:
        values = metric(logits)
        if not isinstance(values, Tensor) or values.shape != (batch,):
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise InputError(
                f"metric returned {shape} for a batch of {batch}: it must return one value an "
                f"example, a tensor of shape ({batch},)"
            )
        if not values.is_floating_point():
            raise InputError(
                f"metric returned {values.dtype}: it must return floating-point values"
            )
        if not bool(values.isfinite().all()):
            raise InputError(
                "metric returned NaN or infinity: check that it reads logits at the scored "
                "positions only and takes no logarithm of zero"
            )
        return values

    return checked
