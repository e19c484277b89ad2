"""Circuit formation in words: what was born when, and what before the loss."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from analyses.rows import kept, keyed, records

SHOWN = 8
"""Edges named at most."""

MANY = 100
"""Examples from which on bounds that hold together do so nearly as often as they should."""


def summary_lines(
    name: str, tables: dict[str, pd.DataFrame], options: dict[str, Any]
) -> Iterator[str]:
    """Gives the answer, a line each.

    Args:
        name: of the run.
        tables: what `formation` gave.
        options: what was asked for.
    """
    steps, bands = tables["edges"]["step"].unique(), keyed(tables["bands"], "kind")
    n_edges = tables["edges"]["edge"].nunique()
    yield (
        f"{name}: {len(steps)} checkpoints from step {steps.min()} to {steps.max()}, {n_edges} "
        f"edges, {options['ablation']} ablation, {options['examples']} examples"
    )
    level = "95 %" if options["examples"] >= MANY else "nominally 95 %, less with few examples"
    yield (
        f"noise band: bounds of +-{bands['edge']['width']:.2f} standard errors hold for all edges "
        f"at all checkpoints together ({level}); those up to step {bands['edge']['early_last']} "
        f"make the band, which has to be left by {options['margin']:g} nats"
    )
    yield from _births(tables)
    yield from _events(tables)
    yield from _rest(tables)


def _births(tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    for kind, word in (("edge", "edges"), ("head", "heads"), ("score", "scores")):
        table = kept(tables["births"], (tables["births"]["kind"] == kind).to_numpy())
        born = table.dropna(subset=["born"])
        if len(table):
            yield (
                f"{len(born)} of {len(table)} {word} are born, "
                f"{int(born['died'].notna().sum())} of them die"
            )
        if kind != "edge" or born.empty:
            continue
        yield f"  the strongest {min(SHOWN, len(born))}, by birth (peak effect, nats):"
        strongest = born.loc[born["peak_effect"].abs().nlargest(SHOWN).index]
        for row in records(pd.DataFrame(strongest.sort_values("born", kind="stable"))):
            death = "" if pd.isna(row["died"]) else f", dies at {row['died']}"
            yield (
                f"    {row['component']:<16} after step {row['born_after']}, by {row['born']}"
                f"{death}; peak {row['peak_effect']:+.3f} at {row['peak_step']}"
            )


def _events(tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    leads = tables["leads"]
    for event in records(tables["events"]):
        if not math.isfinite(event["step"]):
            yield f"{event['event']}: not in this run"
            continue
        mine = leads[(leads["event"] == event["event"]) & (leads["kind"] == "edge")]
        before = mine[mine["before"]].sort_values("lead", ascending=False)
        line = f"{event['event']}: step {event['step']:.0f}; {len(before)} edges are born before"
        if len(before):
            first = records(pd.DataFrame(before))[0]
            line += f", the first {first['lead']:.0f} steps ({first['component']})"
        yield line


def _rest(tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    hands = tables["hands"]
    readers = hands[hands["kind"] == "edge"]
    yield f"{len(readers)} times a reader gets another main source, beyond noise"
    for row in records(pd.DataFrame(hands[hands["kind"] == "head"])):
        yield f"the strongest head changes from {row['before']} to {row['after']} at {row['step']}"
    far = tables["overlap"].iloc[len(tables["edges"]["step"].unique()) - 2]
    yield (
        f"top {far['size']:.0f} edges of step {far['step_a']:.0f} and {far['step_b']:.0f}: Jaccard "
        f"{far['jaccard']:.2f}; random sets {far['null_low']:.2f} to {far['null_high']:.2f}, "
        f"matched by layer {far['matched_low']:.2f} to {far['matched_high']:.2f}"
    )
    last = tables["agreement"].groupby("method", sort=False).tail(1).set_index("method")
    for row in records(tables["trust"]):
        end = last.loc[row["method"]]
        since = "never" if pd.isna(row["step"]) else f"from step {row['step']}"
        yield (
            f"{row['method']} is trustworthy {since} ({row['share']:.0%} of checkpoints); at the "
            f"end rank correlation {end['spearman']:.2f} (halves {end['spearman_ceiling']:.2f}), "
            f"top-{end['top_k']:.0f} overlap {end['overlap']:.2f} "
            f"(halves {end['overlap_ceiling']:.2f})"
        )
