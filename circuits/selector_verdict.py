"""From the evidence on every head to one verdict, by a rule that is written down."""

from dataclasses import dataclass

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from circuits.intervals import mean_interval

RANKED_BY = "value_patch"
"""The signal that decides: causal, about the selector alone, and blind to no route."""
SHARES = ("attention_decide", "attention_answer", "ov_copying")
"""Signals that are shares, whatever the direction of the metric."""
MIN_SHARE = 0.1
"""A head that moves less than this share of the selector's whole effect routes nothing."""


@dataclass(frozen=True)
class SelectorVerdict:
    """Which head routes the selector.

    The rule, in this order:

    1. Another selector in the input has to change the metric: otherwise there is nothing to route.
    2. The leading head is the one with the largest effect of value patching.
    3. Its effect has to be above 0 and at least `MIN_SHARE` of the effect of the whole selector.
    4. Its margin to the runner-up has to be above 0.

    "Above 0" means that the 95 % interval is, with effects counted in the direction in which
    another selector moves the metric (up for a loss, down for a logit difference). The other
    signals do not vote; `agreement` says which head each of them would name.

    Attributes:
        head: the selector head; None when the rule names none.
        leading: the head with the largest effect, named or not.
        runner_up: the next one; None in a model of one head.
        effect: of value patching the leading head in that direction, with `effect_low` and
            `effect_high`.
        share: that effect over the effect of the whole selector; NaN when the latter is not above
            its noise.
        margin: effect of the leading head minus that of the runner-up, paired over examples, with
            `margin_low` and `margin_high`; NaN in a model of one head.
        agreement: the leading head of every signal.
        reason: the verdict in words.
    """

    head: str | None
    leading: str
    runner_up: str | None
    effect: float
    effect_low: float
    effect_high: float
    share: float
    margin: float
    margin_low: float
    margin_high: float
    agreement: dict[str, str]
    reason: str


def selector_verdict(
    table: pd.DataFrame,
    per_example: dict[str, Float[Tensor, "head batch"]],
    selector_effect: Float[Tensor, " batch"],
) -> SelectorVerdict:
    """Applies the rule of `SelectorVerdict`.

    Args:
        table: one row a head, a column a signal.
        per_example: the values behind the signals; the keys name the signals.
        selector_effect: of another selector in the input, an example.

    Returns:
        The verdict. The margin's interval resamples examples, the same for both heads; which two
        heads are compared is not resampled.
    """
    sign = -1.0 if float(selector_effect.double().mean()) < 0 else 1.0
    values = sign * per_example[RANKED_BY]
    order = values.double().mean(-1).argsort(descending=True, stable=True).tolist()
    names = table["head"].tolist()
    effect, low, high = _interval(values[order[0]])
    margin = margin_low = margin_high = float("nan")
    if len(order) > 1:
        margin, margin_low, margin_high = _interval(values[order[0]] - values[order[1]])
    whole, whole_low, _ = _interval(sign * selector_effect)
    share = effect / whole if whole_low > 0 else float("nan")
    leading = names[order[0]]
    runner_up = names[order[1]] if len(order) > 1 else None
    agreement = {
        signal: names[int(((1 if signal in SHARES else sign) * found.double().mean(-1)).argmax())]
        for signal, found in per_example.items()
    }
    refusal = _refusal(leading, runner_up, low, share, margin_low)
    named = [signal for signal, head in agreement.items() if head == leading]
    reason = refusal or (
        f"{leading} carries {share:.0%} of the selector's effect; "
        f"{len(named)} of {len(agreement)} signals name it"
    )
    return SelectorVerdict(
        head=None if refusal else leading,
        leading=leading,
        runner_up=runner_up,
        effect=effect,
        effect_low=low,
        effect_high=high,
        share=share,
        margin=margin,
        margin_low=margin_low,
        margin_high=margin_high,
        agreement=agreement,
        reason=reason,
    )


def _refusal(
    leading: str, runner_up: str | None, low: float, share: float, margin_low: float
) -> str | None:
    """Why no head can be named, if none can."""
    if share != share:
        return "no selector head: another selector does not change the metric beyond noise"
    if not low > 0:
        return f"no selector head: even the effect of {leading} is within noise"
    if share < MIN_SHARE:
        return f"no selector head: {leading} leads with only {share:.0%} of the selector's effect"
    if runner_up is not None and not margin_low > 0:
        return f"undecided: {leading} leads {runner_up} by no more than noise"
    return None


def _interval(values: Float[Tensor, " batch"]) -> tuple[float, float, float]:
    mean, low, high = mean_interval(values)
    return float(mean), float(low), float(high)
