"""Claims about direction: is A to B slower than B (and z) to A, and what does reversal mean?"""

import math

import numpy as np
import pandas as pd

from analyses.directions.ratios import ratio_table
from analyses.ledger.claim import UNKNOWN, Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, below, every, inside, number, shown
from analyses.ledger.seeds import least_seeds, over_seeds, per_setting, scale_of
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import chosen, ratio
from analyses.rows import Row, numbers, records

REVERSE = "marginals-reverse"

SHARE = 0.5
"""Equal bar: this share of the loss of one who knows nothing."""

EQUAL = {
    "first_token": "first-token loss of both",
    "answer": "loss of the whole answer of both",
    "own": "the paper's two losses",
}

PAPER_RATIOS = 1.7, 4.4


def ratios(store: EvidenceStore) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compares az_to_b with bz_to_a on the same mappings under every bar.

    Returns:
        What `analyses.directions.ratios.ratio_table` gives, and the times behind it.
    """
    times = store.joined(REVERSE, "asymmetry-times")
    times = pd.DataFrame(times[times["variant"].isin(["az_to_b", "bz_to_a"])])
    if times["variant"].nunique() < 2:
        raise NoEvidence("no runs of both az_to_b and bz_to_a")
    rows = [
        row
        | {
            "setting": f"K {row['k']:g}",
            "seeds": tuple(int(row[n]) for n in ("mapping_seed", "init_seed", "data_seed")),
            "time": row["time"] if math.isfinite(row["time"]) else math.inf,
        }
        for row in records(times)
    ]
    times = pd.DataFrame(rows)
    return ratio_table(times), times


def unequal(store: EvidenceStore) -> Measured:
    """Is the forward task slower under the paper's own bars?"""
    table, times = ratios(store)
    rows = [row for row in records(table) if row["bar"] == "paper"]
    parts = (
        Part(
            "slower forward at every K", every(above(_interval(r), 1.0) for r in rows), _all(rows)
        ),
        Part(
            "by a factor within 1.5 of 1.7 to 4.4 at every K",
            every(inside(_interval(r), PAPER_RATIOS[0] / 1.5, PAPER_RATIOS[1] * 1.5) for r in rows),
            _all(rows),
        ),
    )
    return _measured(parts, rows, times, "first-token loss of 0.1 nat against half of ln K")


def equal(store: EvidenceStore) -> Measured:
    """Is the forward task slower when both have to get equally far?"""
    table, times = ratios(store)
    rows = [row for row in records(table) if row["bar"] in EQUAL and row["share"] == SHARE]
    parts = []
    for bar, what in EQUAL.items():
        own = [row for row in rows if row["bar"] == bar]
        held = every(above(_interval(row), 1.0) for row in own)
        parts.append(Part(f"slower forward at every K, by {what}", held, _all(own)))
    return _measured(tuple(parts), rows, times, "each loss at half of ignorance")


def reversal(store: EvidenceStore) -> Measured:
    """Is it the missing selector rather than the direction that stalls B to A?"""
    runs = store.runs(REVERSE)
    blind, known = (chosen(runs, f"run of {v}", variant=v) for v in ("b_to_a", "a_to_b"))
    with_z = chosen(runs, "run of az_to_b", variant="az_to_b")
    blind = blind.assign(level=numbers(blind, "final_first_token_ce") / np.log(numbers(blind, "k")))
    known = known.assign(level=numbers(known, "final_first_token_ce") / math.log(36))
    stuck = per_setting(blind, "level", ("k",))
    times = store.joined(REVERSE, "asymmetry-times")
    times = times[(times["bar"] == "first_token") & (times["share"] == SHARE)]
    times = times.assign(rank=times["k"].astype(str) + " " + times["rank"].astype(str))
    one, other = (times[times["variant"] == v] for v in ("az_to_b", "a_to_b"))
    z = ratio(pd.DataFrame(one), pd.DataFrame(other))
    solved = over_seeds(known.groupby("rank")["level"].mean())
    parts = (
        Part("B to A without z ends within 10 % of ln K",
             every(inside(_interval(row), 0.9, 1.1) for row in records(stuck)),
             shown(over_seeds(blind.groupby("rank")["level"].mean()))),
        Part("A to B ends below a tenth of ln 36", below(solved, 0.1), shown(solved)),
        Part("a redundant z changes the forward time by less than 30 %",
             inside(z.found, 1 / 1.3, 1.3), shown(z.found)),
    )  # fmt: skip
    return Measured(
        parts,
        over_seeds(blind.groupby("rank")["level"].mean()),
        "ln K left, B to A",
        min(least_seeds(arm, ("k",)) for arm in (blind, known, with_z)),
        scale_of(runs),
        stuck,
        {"ln K": 1.0},
        "our reading: entropy of the mapping, and no curse of direction",
    )


def _measured(parts: tuple[Part, ...], rows: list[Row], times: pd.DataFrame, note: str) -> Measured:
    bounds = sorted({row["bound"] for row in rows if row["bound"] != "exact"})
    if bounds:
        note += f"; some ratios are bounds ({', '.join(bounds)})"
    # An interval over several bars would belong to none of them.
    middle = sorted(rows, key=lambda row: row["ratio"])[len(rows) // 2] if rows else None
    if middle is not None and len(rows) > 1:
        note += f"; value: at {middle['setting']}, {middle['bar']}"
    table = [
        {"label": f"{row['setting']}, {row['bar']}", "value": row["ratio"],
         **dict(zip(("low", "high"), _interval(row)[1:], strict=True))}
        for row in rows
    ]  # fmt: skip
    return Measured(
        parts,
        _interval(middle) if middle is not None else UNKNOWN,
        "forward / reverse",
        least_seeds(times, ("variant", "k")),
        scale_of(times),
        pd.DataFrame(table),
        {"alike": 1.0, "paper, least": PAPER_RATIOS[0], "paper, greatest": PAPER_RATIOS[1]},
        note,
    )


def _interval(row: Row) -> Estimate:
    """The interval of a ratio; one side of a bound is known all the same."""
    if "ratio" not in row:
        return Estimate(row["value"], row["low"], row["high"])
    if row["bound"] == "at least":
        return Estimate(row["ratio"], row["ratio"], math.inf)
    if row["bound"] == "at most":
        return Estimate(row["ratio"], 0.0, row["ratio"])
    return Estimate(row["ratio"], row["low"], row["high"])


def _all(rows: list[Row]) -> str:
    said = {"exact": "", "at least": "at least ", "at most": "at most ", "undefined": "undefined "}
    return "; ".join(
        f"{row['setting']}: {said[row['bound']]}{number(row['ratio'])}" for row in rows
    )


CLAIMS = (
    Claim(
        "asymmetry-unequal",
        "marginals",
        "The forward task (A to B) takes longer than the reverse one (B and z to A).",
        "1.7 to 4.4 times",
        "second-hand, no table; the bars are 0.1 nat against half of ln K",
        "slower at every K under the paper's own bars, by 1.1 to 6.6",
        (REVERSE,),
        unequal,
    ),
    Claim(
        "asymmetry-equal",
        "marginals",
        "It does so when both tasks have to get equally far.",
        "not run",
        "the paper compares unequal bars, looked at every 50 and every 200 steps",
        "ratio above 1 with its interval at every K, at half of the loss of ignorance, by each of "
        "three losses",
        (REVERSE,),
        equal,
    ),
    Claim(
        "reversal-reading",
        "marginals",
        "B to A stalls for want of a selector, not because it is the reverse direction.",
        "B to A alone waits at ln K",
        "the repository's reversal suites; the reading is ours",
        "B to A without z ends within 10 % of ln K, A to B below a tenth of ln 36, and a redundant "
        "z changes the forward time by less than 30 %",
        (REVERSE,),
        reversal,
    ),
)
