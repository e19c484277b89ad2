"""Claims about the two critical numbers of chains, K1* and K2*, and what moves them."""

import math

import numpy as np
import pandas as pd

from analyses.bypass.critical_k import counts_of, exact_interval, share_table, threshold
from analyses.laws.divergence import MIN_X, diverging_time
from analyses.ledger.chain_runs import CHAINS, PLAIN, outcomes, times
from analyses.ledger.claim import UNKNOWN, Claim, Estimate, Measured, Part
from analyses.ledger.criteria import contains, inside, most, number, shown
from analyses.ledger.seeds import least_seeds, scale_of
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import records


def k1_star(store: EvidenceStore) -> Measured:
    """Is there a K1*, and is it elsewhere than the static crossing K_x?"""
    table = outcomes(store)
    table = pd.DataFrame(table[table["arm"] == PLAIN])
    counts = counts_of(table)
    if len(counts.ks) < 2:
        raise NoEvidence("fewer than two K with decided runs; K1* lies between two")
    low, high = exact_interval(counts)
    found = Estimate(threshold(counts), low, high)
    static = store.table(CHAINS, "static-crossing").iloc[0]
    k_x = Estimate(static["k_x"], static["low"], static["high"])
    bracketed = low > 0 and math.isfinite(high)
    # If even the least K passes through 2-Gen there is no K1*; if none does, it lies beyond.
    refuted = found.value == 0
    apart = bool(k_x.high <= low or k_x.low >= high)
    parts = (
        Part("small K bypass 2-Gen and large K pass through it, so that K1* is bracketed",
             bracketed or (False if refuted else None), shown(found)),
        Part("the static crossing K_x lies outside the interval of K1*",
             None if not bracketed else apart, f"K_x {shown(k_x)}"),
    )  # fmt: skip
    undecided = int((table["outcome"] == "undecided").sum())
    return Measured(
        parts,
        found,
        "chains",
        least_seeds(table, ("k",)),
        scale_of(store.runs(CHAINS)),
        shares_of(table),
        note=f"K_x, where 1-Mem stops being better than 2-Gen, is {shown(k_x)} at these sizes; "
        f"{undecided} runs undecided; 94 belongs to C 10, d 64",
    )


def shares_of(table: pd.DataFrame) -> pd.DataFrame:
    """Gives the share of runs that entered 2-Gen in every arm and K, for a figure."""
    shares = share_table(table)
    return shares.assign(
        label=[f"{row['arm']}, K {row['k']:g}" for row in records(shares)], value=shares["share"]
    )[["label", "value", "entered", "decided", "undecided"]]


def left_times(store: EvidenceStore) -> pd.DataFrame:
    """Gives the runs with frozen chains that entered 2-Gen, with when they left it (NaN: never)."""
    table = times(store)
    table = table.assign(k=table["k"].astype(float))
    table = table[np.isfinite(table["k"]) & table["entered"].notna()]
    if table.empty:
        raise NoEvidence("no run with frozen chains entered 2-Gen")
    return pd.DataFrame(table)


def k2_star(store: EvidenceStore) -> Measured:
    """Is there a K2* beyond which 2-Gen stays?"""
    table = left_times(store)
    by_k = {float(str(k)): group["left"].notna().to_list() for k, group in table.groupby("k")}
    largest = max(by_k)
    left = {k: most(flags) for k, flags in by_k.items()}
    last_left = max((k for k, flag in left.items() if flag), default=0.0)
    if not last_left:
        raise NoEvidence(f"no K left 2-Gen within the budget in most runs ({_by_k(by_k)})")
    first_kept = min((k for k, flags in by_k.items() if k > last_left and not any(flags)),
                     default=math.inf)  # fmt: skip
    stays = most([not flag for flag in by_k[largest]])
    parts = (
        Part("2-Gen is left for 2-Mem at some K in most runs, and at the largest K it is not, "
             "within the budget", stays, _by_k(by_k)),
    )  # fmt: skip
    rows = [{"label": f"K {k:g}", "value": sum(f) / len(f)} for k, f in sorted(by_k.items())]
    return Measured(
        parts,
        Estimate(math.sqrt(last_left * first_kept) if last_left and math.isfinite(first_kept)
                 else math.nan, last_left or math.nan, first_kept),
        "chains",
        least_seeds(table, ("k",)),
        scale_of(table),
        pd.DataFrame(rows),
        note="not leaving within the budget is not never; 7,000 belongs to C 10, d 64",
    )  # fmt: skip


def _by_k(flags: dict[float, list[bool]]) -> str:
    return ", ".join(f"K {k:g}: {sum(f)} of {len(f)}" for k, f in sorted(flags.items()))


def gamma(store: EvidenceStore) -> Measured:
    """Does the time until 2-Mem diverge at K2* with an exponent of 2?"""
    table = left_times(store)
    points = table.dropna(subset=["left"]).assign(
        x=lambda one: one["k"], time=lambda one: one["left"].clip(lower=1.0)
    )
    n_x = points["x"].nunique()
    if n_x < MIN_X:
        raise NoEvidence(f"2-Gen was left for 2-Mem at {n_x} different K; the fit needs {MIN_X}")
    # The interval over seeds is not used, so few resamples do.
    fit = diverging_time(points[["x", "time", "seed"]], n_resamples=100)
    found = Estimate(fit["gamma"], fit["gamma_low"], fit["gamma_high"])
    preferred = bool(fit["delta_aic"] > 2 and fit["bounded"])
    known = found if preferred else UNKNOWN  # an exponent of no divergence says nothing
    parts = (
        Part("the divergence is preferred over a power law (AIC difference above 2), K2* bounded",
             preferred,
             f"AIC difference {fit['delta_aic']:.1f}, K2* {number(fit['critical'])} "
             f"({number(fit['critical_low'])} to {number(fit['critical_high'])})"),
        Part("interval of gamma holds 2", contains(known, 2.0), shown(found)),
        Part("and lies between 1 and 4", inside(known, 1.0, 4.0), shown(found)),
    )  # fmt: skip
    return Measured(
        parts,
        found,
        "gamma",
        least_seeds(points, ("k",)),
        scale_of(points),
        points.assign(label="time of leaving 2-Gen")[["x", "time", "label", "run"]],
        note="interval: all gamma whose best fit is not significantly worse",
    )


CLAIMS = (
    Claim(
        "k1-star",
        "markov",
        "Below a critical number of chains K1* models bypass 2-Gen; kinetics place it.",
        "about 94 (C 10, d 64)",
        "one reader's notes only",
        "K1* bracketed by the runs, and the static crossing K_x (our control) outside its interval",
        (CHAINS,),
        k1_star,
    ),
    Claim(
        "k2-star",
        "markov",
        "Above K2* 2-Gen stays.",
        "about 7,000 (C 10, d 64)",
        "one reader's notes and a summary",
        "2-Gen is left for 2-Mem at some K in most runs, and at the largest K it is not, within "
        "the budget",
        (CHAINS,),
        k2_star,
    ),
    Claim(
        "k2-gamma",
        "markov",
        "The time until 2-Mem diverges as (K2* - K) to the power -2.",
        "gamma about 2",
        "a summary of the paper; few points at our scale leave gamma nearly free",
        "divergence preferred over a power law, gamma's interval holds 2 and lies in 1 to 4",
        (CHAINS,),
        gamma,
    ),
)
