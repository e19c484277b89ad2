"""Claims about the phases of the Markov-chain task: which there are, and how they change."""

import math

import numpy as np
import pandas as pd

from analyses.ledger.chain_runs import CHAINS, NAMES, log_of, nearest_distance, times
from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import most, most_part, number
from analyses.ledger.seeds import (
    geometric_over_seeds,
    least_seeds,
    scale_of,
    truth,
)
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import numbers, records

NEAR = 0.05
"""Distance (nats) to the nearest predictor of a phase up to which it counts as seen."""


FEW_CHAINS = 4
"""Largest K that counts as small: below the static crossing at every size that we run."""


def four_phases(store: EvidenceStore) -> Measured:
    """Is each of the four phases seen for some K at some step?"""
    log = log_of(store)
    # An untrained model is near 1-Gen, which says nothing of what training finds.
    log = pd.DataFrame(log[log["step"] > 0])
    parts, rows = [], []
    for phase in NAMES:
        distance = nearest_distance(log, phase)
        there = log[(log["nearest_phase"] == phase) & (distance < NEAR)]
        ranks = sorted(log["rank"].unique())
        seen = [bool((there["rank"] == rank).any()) for rank in ranks]
        ks = sorted(there["k"].astype(float).unique())
        parts.append(
            Part(f"{phase} is nearest, within {NEAR} nats, in most seeds", most(seen),
                 f"{sum(seen)} of {len(seen)} seeds, K {', '.join(f'{k:g}' for k in ks) or 'none'}")
        )  # fmt: skip
        own = distance[(log["nearest_phase"] == phase).to_numpy()]
        rows.append({"label": phase, "value": float(own.min()) if len(own) else math.nan})
    n = sum(bool(part.held) for part in parts)
    return Measured(
        tuple(parts),
        Estimate(n),
        "phases of 4",
        least_seeds(log, ("k",)),
        scale_of(log),
        pd.DataFrame(rows),
        {"limit": NEAR},
        "value: least distance to a predictor of the phase where that is the nearest",
    )


def few_chains(store: EvidenceStore) -> Measured:
    """Does a small K end in 2-Mem without passing through 2-Gen?"""
    log = log_of(store)
    log = pd.DataFrame(log[log["k"].astype(float) <= FEW_CHAINS])
    if log.empty:
        raise NoEvidence(f"no run with K up to {FEW_CHAINS}")
    spells = store.table(CHAINS, "phases-spells")
    passed = set(spells[spells["phase"] == "2-Gen"]["run"])
    last = log.groupby("run").tail(1)
    pooled = float(store.table(CHAINS, "static-gaps")["one_gen_new"].iloc[0])
    share = numbers(last, "two_mem_train") / numbers(last, "two_gen_train")
    found = geometric_over_seeds(last.assign(share=share).groupby("rank")["share"].mean())
    parts = (
        most_part("ends with KL to 2-Mem below a quarter of that to 2-Gen",
                  (share < 0.25).tolist()),
        most_part("never in 2-Gen", [run not in passed for run in last["run"]]),
        most_part("new chains: further from the truth than 1-Gen",
                  (last["truth_new"] > pooled).tolist()),
    )  # fmt: skip
    rows = [
        {"label": f"K {row['k']:g}, {row['run']}", "value": one}
        for row, one in zip(records(last), share, strict=True)
    ]
    return Measured(
        parts,
        found,
        "2-Mem over 2-Gen",
        least_seeds(last, ("k",)),
        scale_of(log),
        pd.DataFrame(rows),
        {"criterion": 0.25},
        f"KL to the truth on new chains at the end {number(float(last['truth_new'].min()))} to "
        f"{number(float(last['truth_new'].max()))}, 1-Gen's {number(pooled)}",
    )


def transience(store: EvidenceStore) -> Measured:
    """Is 2-Gen lost again to 2-Mem at intermediate K?"""
    table = times(store)
    table = table.assign(lost=truth(table["transient"]), k=table["k"].astype(float))
    finite = pd.DataFrame(table[np.isfinite(table["k"])])  # fresh chains cannot be memorised
    by_k = finite.groupby("k")["lost"].agg(["mean", "count"])
    best = float(by_k["mean"].max()) if len(by_k) else math.nan
    at = [float(str(k)) for k, mean in by_k["mean"].items() if mean == best]
    said = f"{best:.0%} at K {number(at[0])}" if best > 0 else "in no run at any K"
    rows = [{"label": f"K {k:g}", "value": one["lost"].mean()} for k, one in finite.groupby("k")]
    return Measured(
        (Part("in most runs at some finite K", _lost(finite), said),),
        Estimate(best),
        "share of runs",
        least_seeds(finite, ("k",)),
        scale_of(finite),
        pd.DataFrame(rows),
        note="transient: entered 2-Gen, passed by 2-Mem, KL on new chains at least doubled since "
        "its least while that on training chains fell",
    )


def _lost(finite: pd.DataFrame) -> bool | None:
    """Most runs at the K where it is most common; no K with even half of them settles it."""
    held = [most(group["lost"].to_list()) for _, group in finite.groupby("k")]
    if any(one is True for one in held):
        return True
    return False if held and all(one is False for one in held) else None


CLAIMS = (
    Claim(
        "four-phases",
        "markov",
        "Over K and training time four algorithms appear: 1-Gen, 1-Mem, 2-Gen and 2-Mem.",
        "four",
        "the paper's abstract",
        "after step 0 each is the nearest predictor, within 0.05 nats on training chains, in most "
        "seeds",
        (CHAINS,),
        four_phases,
    ),
    Claim(
        "small-k-memorises",
        "markov",
        "Few training chains end in 2-Mem without passing through 2-Gen.",
        "below K1*",
        "a summary of the paper",
        "K up to 4: ends with KL to 2-Mem below a quarter of that to 2-Gen, never in 2-Gen, and "
        "further from the truth on new chains than 1-Gen, each in most runs",
        (CHAINS,),
        few_chains,
    ),
    Claim(
        "transience",
        "markov",
        "At intermediate K 2-Gen is transient: it gives way to 2-Mem.",
        "K1* < K < K2*",
        "summaries of the paper",
        "in most runs at some finite K",
        (CHAINS,),
        transience,
    ),
)
