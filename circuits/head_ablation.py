"""What does the model lose with a head, a pair of heads, or all heads but one?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablated_model import AblatedModel, ablated
from circuits.errors import InputError, whole_number
from circuits.head_replacement import HeadAblation
from circuits.head_study import head_study
from circuits.heads import (
    Head,
    check_batch,
    head_name,
    head_names,
    parse_head_sets,
    parse_heads,
    parse_positions,
    set_name,
)
from circuits.intervals import mean_interval
from circuits.metrics import Metric
from circuits.padded_heads import padded_study
from circuits.source_positions import source_positions

__all__ = [
    "AblatedModel",
    "HeadAblation",
    "HeadEffects",
    "PairEffects",
    "ablated",
    "head_effects",
    "lone_head_effects",
    "pair_effects",
]


@dataclass(frozen=True)
class HeadEffects:
    """Effects of ablating heads.

    Attributes:
        table: one row a set of heads: `head` (`L0H3`, or `L0H1+L1H2`), `layer` and `index` (missing
            for sets of several heads), `effect`, `low`, `high`.
        per_example: the values behind the table, metric(ablated) - metric(clean).
        clean: the metric of the model as it is, one value an example.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: Float[Tensor, "heads batch"]
    clean: Float[Tensor, " batch"]
    provenance: dict[str, Any]


@dataclass(frozen=True)
class PairEffects:
    """Effects of ablating two heads together, against one by one.

    Attributes:
        table: one row a pair: `head_a`, `head_b`, `effect_a`, `effect_b`, `joint`, and `synergy`
            (joint minus the sum) with its interval `low`, `high`.
        joint: effect of both, an example.
        synergy: joint minus the sum of the two single effects, an example.
        singles: the effects of the heads one by one.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    joint: Float[Tensor, "pairs batch"]
    synergy: Float[Tensor, "pairs batch"]
    singles: HeadEffects
    provenance: dict[str, Any]


def head_effects(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    ablation: HeadAblation | str = "zero",
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None = None,
    heads: Iterable[str | Iterable[str]] | None = None,
    positions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    scored: Sequence[int] | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    seed: int = 0,
) -> HeadEffects:
    """How much does the metric change when the output of these heads is taken away?

    A head's z (what its W_O reads) is replaced, at the given positions, by nothing ("zero"), its
    mean over the reference batch at each position ("mean"), one mean vector over batch and
    positions ("mean-all"), its z on another example ("resample"), or on the paired corrupt
    sequence ("patch"). Everything after it is computed anew, and only that: layers before the
    first ablated head are run once for all. For all heads of an n-layer model this costs about
    half of one forward pass a head, in chunks of about 256 sequences.

    Args:
        model: a HookedTransformer, which is left as it was found.
        clean: the sequences, with the token after the last scored position if the metric asks.
        metric: "kl", "loss" or "logit_diff" (in nats; logits for the last), or a callable on the
            logits at the scored positions that gives one value an example.
        ablation: what replaces the output.
        corrupt: the paired batch of "patch"; with "logit_diff" also the tokens to contrast with.
        heads: heads (`"L0H3"`) and sets of heads (`{"L0H3", "L1H0"}`, ablated together); every
            single head if not given.
        positions: where the heads are ablated, together; everywhere if not given. A mapping of
            names to positions ablates one group after the other: one row a head and group, with
            the name in the column `position`.
        scored: positions that the metric reads; all if not given.
        reference: the batch of the replacements of "mean", "mean-all" and "resample"; the clean
            batch if not given.
        attention_mask: 0 at padding, on the left or on the right; for `corrupt` too. The metric
            is then one by name, and a mean over the scored positions that hold tokens.
        seed: of the partners of "resample".

    Returns:
        The effects, in the metric's own unit, positive where the ablation raised the metric.

    Raises:
        InputError: for an unknown head or ablation, a position out of range, a batch that the
            model cannot read or that does not fit the others, or a metric that gives something
            else than one finite number an example.
    """
    sets = parse_head_sets(model, heads)
    check_batch("clean", clean)
    for name, batch in (("corrupt", corrupt), ("reference", reference)):
        if batch is not None:
            check_batch(name, batch)
    whole_number("seed", seed)
    n_pos = clean.shape[1]
    names, places = _places(positions, n_pos)
    if attention_mask is None:
        study = head_study(
            model, clean, metric, ablation, corrupt, places[0], scored, reference, seed
        )
    elif reference is not None:
        raise InputError(
            "reference= and attention_mask= do not go together: means and partners come from the "
            "padded batch itself; leave reference out"
        )
    else:
        study = padded_study(model, clean, metric, ablation, corrupt, scored, attention_mask, seed)
    per_group = torch.stack([study.at(group).effects(sets) for group in places], dim=1)
    table = _table(sets, names, per_group.flatten(0, 1))
    told = [list(range(n_pos)) if at is None else list(at) for at in places]
    facts = study.provenance | {
        "positions": told[0] if names is None else dict(zip(names, told, strict=True))
    }
    return HeadEffects(table, per_group.flatten(0, 1), study.base, facts)


def _places(positions: Any, n_pos: int) -> tuple[list[str] | None, list[tuple[int, ...] | None]]:
    """Names of groups of positions, if they have any, and each group; None for everywhere."""
    if isinstance(positions, Mapping):
        groups = source_positions(positions, n_pos) or {}
        return list(groups), list(groups.values())
    return None, [None if positions is None else parse_positions(positions, n_pos)]


def _table(
    sets: list[tuple[Head, ...]], groups: list[str] | None, per_example: Float[Tensor, "row batch"]
) -> pd.DataFrame:
    """One row a set of heads, or one a set and group of positions."""
    mean, low, high = mean_interval(per_example)
    rows = [(entry, name) for entry in sets for name in groups or [""]]
    single = [entry[0] if len(entry) == 1 else (None, None) for entry, _ in rows]
    columns: dict[str, Any] = {
        "head": [set_name(entry) for entry, _ in rows],
        "layer": pd.array([layer for layer, _ in single], dtype="Int64"),
        "index": pd.array([index for _, index in single], dtype="Int64"),
    }
    if groups is not None:
        columns["position"] = [name for _, name in rows]
    columns |= {"effect": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
    return pd.DataFrame(columns)


def pair_effects(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    heads: Iterable[str] | None = None,
    **options: Any,
) -> PairEffects:
    """Which two heads back each other up (synergy above 0) or do the same thing in a row (below)?

    Synergy is the effect of ablating both minus the sum of the two single effects. A backup pair
    shows a synergy above 0 (each alone is missed little), a chain one below 0 (losing the second
    costs nothing more).

    Args:
        model: a HookedTransformer.
        clean: the sequences.
        metric: as in `head_effects`.
        heads: the heads to pair; all of them if not given.
        **options: `ablation`, `corrupt`, `positions`, `scored`, `reference`, `seed`, as in
            `head_effects`, and `attention_mask`.

    Returns:
        Every pair once, in the order of heads.

    Raises:
        InputError: as `head_effects`; also for fewer than two heads.
    """
    _refuse_groups(options)
    singles_of = [head_name(head) for head in parse_heads(model, heads)]
    if len(singles_of) < 2:
        raise InputError(f"heads names {len(singles_of)} head; a pair needs at least two")
    members = [entry[0] for entry in parse_head_sets(model, singles_of)]
    pairs = list(combinations(range(len(members)), 2))
    sets = [{head_name(members[a]), head_name(members[b])} for a, b in pairs]
    both = head_effects(model, clean, metric, heads=[*singles_of, *sets], **options)
    n = len(members)
    alone, joint = both.per_example[:n], both.per_example[n:]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    synergy = joint - alone[first] - alone[second]
    mean, low, high = mean_interval(synergy)
    effects = both.table["effect"].to_numpy()
    table = pd.DataFrame(
        {
            "head_a": [head_name(members[a]) for a in first],
            "head_b": [head_name(members[b]) for b in second],
            "effect_a": effects[first],
            "effect_b": effects[second],
            "joint": effects[n:],
            "synergy": mean.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    )
    singles = HeadEffects(both.table.iloc[:n], alone, both.clean, both.provenance)
    return PairEffects(table, joint, synergy, singles, both.provenance)


def lone_head_effects(
    model: Any, clean: Int[Tensor, "batch pos"], metric: Metric, **options: Any
) -> HeadEffects:
    """Is any head sufficient by itself? Effects of ablating all heads but one.

    Args:
        model: a HookedTransformer with at least two heads.
        clean: the sequences.
        metric: as in `head_effects`.
        **options: `ablation`, `corrupt`, `positions`, `scored`, `reference`, `seed`, as in
            `head_effects`.

    Returns:
        One row a head, named after the head that is *kept*; a small effect means that it suffices.

    Raises:
        InputError: as `head_effects`.
    """
    _refuse_groups(options)
    names = head_names(model)
    if len(names) < 2:
        raise InputError("the model has one head; all-but-one needs at least two")
    others = [[name for name in names if name != kept] for kept in names]
    result = head_effects(model, clean, metric, heads=others, **options)
    kept_heads = [entry[0] for entry in parse_head_sets(model, names)]
    table = result.table.assign(
        head=names,
        layer=pd.array([layer for layer, _ in kept_heads], dtype="Int64"),
        index=pd.array([index for _, index in kept_heads], dtype="Int64"),
    )
    return HeadEffects(
        table, result.per_example, result.clean, {**result.provenance, "kept": "one head"}
    )


def _refuse_groups(options: dict[str, Any]) -> None:
    if isinstance(options.get("positions"), Mapping):
        raise InputError(
            "positions is a mapping, which only head_effects takes: give a list of positions"
        )
