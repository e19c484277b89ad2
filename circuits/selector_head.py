"""Which head routes the selector to the answer? Seven signals a head, and one verdict.

A sequence holds a context, a selector z and an answer that depends on both. Some head has to carry
z to where the answer is decided. Three signals are causal and about z alone: `value_patch` (the
head reads another selector's values at z, all else as it was), `knockout_answer` and
`knockout_after` (its attention links to z are cut before the softmax). The knockouts differ in what
they can see: cutting the links from the *answer's* positions misses a head of layer 0 that first
moves z to a separator between z and the answer; cutting those from *all* positions after z does
not, and value patching also sees links inside z.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.attention_knockout import knockout_effects
from circuits.errors import InputError, whole_numbers
from circuits.head_ablation import head_effects
from circuits.head_replacement import HeadAblation
from circuits.heads import (
    check_batch,
    check_pair,
    check_tokens,
    head_names,
    parse_head,
    parse_positions,
)
from circuits.intervals import mean_interval
from circuits.metrics import Metric, resolve_metric, scored_positions
from circuits.provenance import provenance
from circuits.restart import record, restart_of
from circuits.selector_signals import (
    SIGNALS,
    SelectorPlaces,
    SelectorRuns,
    chance_of_differing,
    check_places,
    head_values,
    selector_signals,
)
from circuits.selector_verdict import SelectorVerdict, selector_verdict
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class SelectorEvidence:
    """What every head does with the selector.

    Attributes:
        table: one row a head: `head`, `layer`, `index`, and each of `SIGNALS` with `_low`, `_high`.
        per_example: the values behind each signal, `"head batch"`.
        clean: the metric of the model as it is, an example.
        selector_effect: what another selector in the input does to the metric, an example: the
            most that routing can explain.
        verdict: which head it is, if one can be named.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: dict[str, Float[Tensor, "head batch"]]
    clean: Float[Tensor, " batch"]
    selector_effect: Float[Tensor, " batch"]
    verdict: SelectorVerdict
    provenance: dict[str, Any]


def selector_evidence(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"],
    selector: Sequence[int],
    decide: Sequence[int],
    answer: Sequence[int],
    scored: Sequence[int],
    metric: Metric = "loss",
    ablation: HeadAblation | str = "mean",
) -> SelectorEvidence:
    """Which head carries the selector to the answer, and how sure is that?

    Signals of a head (`SIGNALS`), each with a 95 % interval over examples:

    - `ablation`: effect on the metric of replacing its output (by its mean, unless told otherwise).
      Not about the selector alone: "zero" and "mean-all" also take away what the head writes at a
      position whatever the selector is, and can name a head that routes nothing.
    - `attention_decide`, `attention_answer`: attention to the selector's positions, summed over
      them, from the deciding positions and from all of the answer's; means over queries.
    - `knockout_answer`, `knockout_after`: effect on the metric of cutting its links to the selector
      before the softmax, from the answer's positions or from all after the selector.
    - `value_patch`: effect on the metric of reading the other selector's values at the selector's
      positions, with the attention of the clean pass.
    - `ov_copying`: share of the variance (over examples) of what the head writes at the deciding
      positions that the selector's values account for: half the mean square change under that same
      patch (times the chance that two examples differ in their selector), over the variance. 0
      when its OV circuit drops the selector's identity, 1 when it writes nothing else.

    Args:
        model: a HookedTransformer, which is left as it was found.
        clean: sequences, with the token after the last scored position.
        corrupt: paired sequences with other selectors. The model is given their tokens at
            `selector` alone; "logit_diff" contrasts the answers with theirs.
        selector: positions of the selector.
        decide: the positions whose prediction the selector has to decide: for the marginals task
            the one that predicts the first answer token (10), not the one after it.
        answer: all positions that predict the answer.
        scored: positions that the metric reads.
        metric: "loss", "kl", "logit_diff" or a callable, as in `head_effects`.
        ablation: as in `head_effects` ("patch" uses the other selectors in the clean sequences).

    Returns:
        The evidence. Effects are in the metric's unit, positive where the intervention raised it.
        Costs about 2.5 forward passes a head.

    Raises:
        InputError: bad tokens or positions; a pair with the same selector; an unknown metric.
    """
    check_batch("clean", clean)
    check_batch("corrupt", corrupt)
    check_pair(clean, corrupt, "the selector test")
    places = _places(clean.shape[1], metric, selector, decide, answer, scored)
    check_places(clean, corrupt, places)
    read = scored_positions(metric, scored, clean.shape[1])
    swapped = clean.clone()
    swapped[:, list(places.selector)] = corrupt[:, list(places.selector)].to(clean.dtype)
    with undisturbed(model):
        runs, selector_effect = _runs(model, clean, corrupt, swapped, places, read, metric)
        per_example = _per_example(model, clean, swapped, runs, read, ablation)
    table = _table(model, per_example)
    facts = {"ablation": ablation, "corrupt": corrupt, "scored": list(read)}
    facts |= {name: list(getattr(places, name)) for name in ("selector", "decide", "answer")}
    facts["metric"] = metric if isinstance(metric, str) else getattr(metric, "__qualname__", "own")
    return SelectorEvidence(
        table,
        per_example,
        runs.base,
        selector_effect,
        selector_verdict(table, per_example, selector_effect),
        provenance(model, clean, **facts),
    )


def _places(
    n_pos: int,
    metric: Metric,
    selector: Sequence[int],
    decide: Sequence[int],
    answer: Sequence[int],
    scored: Sequence[int],
) -> SelectorPlaces:
    named = {"selector": selector, "decide": decide, "answer": answer}
    parsed = {}
    for name, positions in named.items():
        if not whole_numbers(name, positions):
            raise InputError(f"{name} names no position: a selector test needs at least one")
        parsed[name] = parse_positions(positions, n_pos)
    used = max(scored_positions(metric, scored, n_pos)) + 1
    late = [p for positions in parsed.values() for p in positions if p >= used]
    if late:
        raise InputError(
            f"position {late[0]} comes after the last scored position {used - 1}: "
            "nothing there can be seen by the metric; score it, or leave it out"
        )
    return SelectorPlaces(**parsed, n_used=used)


def _runs(
    model: Any,
    clean: Tensor,
    corrupt: Tensor,
    swapped: Tensor,
    places: SelectorPlaces,
    scored: tuple[int, ...],
    metric: Metric,
) -> tuple[SelectorRuns, Float[Tensor, " batch"]]:
    """The passes that all heads share, and what the other selector does to the metric."""
    used = places.n_used
    check_tokens(model, clean, "clean", used)
    check_tokens(model, swapped, "corrupt", used)
    recording = record(model, clean[:, :used], scored, ("resid_pre", "pattern", "v", "z"))
    measured = resolve_metric(metric, recording.logits, clean, scored, corrupt)
    base = measured(recording.logits)
    other = record(model, swapped[:, :used], scored, ("v",))
    runs = SelectorRuns(
        places,
        recording,
        head_values(recording, model.cfg.n_heads),
        head_values(other, model.cfg.n_heads),
        chance_of_differing(clean[:, list(places.selector)]),
        restart_of(model, clean[:, :used], recording, scored),
        measured,
        base,
    )
    return runs, measured(other.logits) - base


def _per_example(
    model: Any,
    clean: Tensor,
    swapped: Tensor,
    runs: SelectorRuns,
    scored: tuple[int, ...],
    ablation: HeadAblation | str,
) -> dict[str, Float[Tensor, "head batch"]]:
    other = swapped if ablation == "patch" else None
    places, metric = runs.places, runs.metric
    ablated = head_effects(model, clean, metric, ablation, other, scored=scored)
    signals = {"ablation": ablated.per_example}
    cuts = {
        queries: knockout_effects(model, clean, metric, queries, places.selector, scored=scored)
        for queries in {places.answer, places.after}  # One where nothing comes between the two.
    }
    signals["knockout_answer"] = cuts[places.answer].per_example
    signals["knockout_after"] = cuts[places.after].per_example
    found = [selector_signals(runs, *parse_head(model, name)) for name in head_names(model)]
    signals |= {name: torch.stack([each[name] for each in found]) for name in found[0]}
    return {signal: signals[signal] for signal in SIGNALS}


def _table(model: Any, per_example: dict[str, Tensor]) -> pd.DataFrame:
    names = head_names(model)
    heads = [parse_head(model, name) for name in names]
    columns: dict[str, Any] = {
        "head": names,
        "layer": [layer for layer, _ in heads],
        "index": [index for _, index in heads],
    }
    for signal in SIGNALS:
        for end, column in zip(
            ("", "_low", "_high"), mean_interval(per_example[signal]), strict=True
        ):
            columns[signal + end] = column.tolist()
    return pd.DataFrame(columns)
