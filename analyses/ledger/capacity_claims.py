"""Claims about encode-pool-decode: what limits its capacity, and whether it generalises."""

import itertools
import math

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import every, shown
from analyses.ledger.minimal_claims import MINIMAL
from analyses.ledger.seeds import over_seeds
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import Row, numbers, records


def capacity_of(varied: str, fixed: str, store: EvidenceStore) -> Measured:
    """Does the capacity rise with one size, the other being fixed?"""
    table = store.table(MINIMAL, "pool-model-capacity")
    table = table.assign(high=table["high"].fillna(math.inf))
    if table[varied].nunique() < 2:
        raise NoEvidence(f"only one {varied} among the minimal models")
    ups, falls, rows = [], [], []
    for value, group in table.groupby(fixed):
        ordered = records(group.sort_values(varied))
        ups.append(_rises(ordered[0], ordered[-1]))
        steps = itertools.pairwise(ordered)
        falls.append(any(after["high"] <= before["k_c"] for before, after in steps))
        rows += [
            {"label": f"{fixed} {value:g}, {varied} {row[varied]:g}", "value": row["k_c"],
             "low": row["low"], "high": row["high"] if math.isfinite(row["high"]) else row["k_c"]}
            for row in ordered
        ]  # fmt: skip
    grown = [
        max(after["k_c"], 1.0) / max(before["k_c"], 1.0)
        for _, group in table.groupby(fixed)
        for before, after in [_ends(group, varied)]
    ]
    parts = (
        Part(f"K_c larger at the largest {varied} than at the least, for every {fixed}",
             every(ups), f"{sum(map(bool, ups))} of {len(ups)}"),
        Part("and nowhere falls beyond its interval", not any(falls), f"falls in {sum(falls)}"),
    )  # fmt: skip
    if not any(up is True for up in ups):
        # A capacity that does not rise has no fall to be spared of.
        parts = parts[:1]
    return Measured(
        parts,
        Estimate(float(np.exp(np.mean(np.log(grown)))), min(grown), max(grown)),
        "times K_c",
        int(table["seeds"].min()),
        f"encode-pool-decode, {varied} {table[varied].min():g}-{table[varied].max():g}",
        pd.DataFrame(rows),
        note="largest over least, its range over the other size; K_c is on the grid of K",
    )


def _ends(group: pd.DataFrame, varied: str) -> tuple[Row, Row]:
    ordered = records(group.sort_values(varied))
    return ordered[0], ordered[-1]


def _rises(least: Row, largest: Row) -> bool | None:
    """Whether K_c rises in every seed; not if not even the mean does. Below or above all K that
    were tried, two capacities cannot be told apart."""
    if largest["low"] > least["k_c"]:
        return True
    beyond = largest["k_c"] == 0 or math.isinf(least["high"])
    return None if beyond or largest["k_c"] > least["k_c"] else False


def task_dimension(store: EvidenceStore) -> Measured:
    """Does the capacity rise with the task dimension?"""
    return capacity_of("d_task", "d_hidden", store)


def decoder_width(store: EvidenceStore) -> Measured:
    """Does the capacity rise with the decoder's width?"""
    return capacity_of("d_hidden", "d_task", store)


def generalises(store: EvidenceStore) -> Measured:
    """Does the same motif answer for new chains when it is large and sees many?"""
    models = store.table(MINIMAL, "pool-model-models")
    models = models.assign(k=models["k"].fillna(math.inf))
    big = models[
        (models["d_task"] == models["d_task"].max())
        & (models["d_hidden"] == models["d_hidden"].max())
    ]
    fresh, frozen = big[np.isinf(big["k"])], big[np.isfinite(big["k"])]
    if fresh.empty or frozen.empty:
        raise NoEvidence(
            "the largest minimal model was not trained on both fresh and frozen chains"
        )
    most_chains = frozen[frozen["k"] == frozen["k"].max()]
    few = frozen[frozen["k"] == frozen["k"].min()]
    found = {n: over_seeds(numbers(one, "ratio_new"))
             for n, one in (("fresh", fresh), ("most", most_chains), ("few", few))}  # fmt: skip
    parts = (
        Part("on new chains at most 1.2 times 2-Gen's distance to the truth, with fresh chains",
             _at_most(found["fresh"], 1.2), shown(found["fresh"])),
        Part(f"and with the most frozen chains (K {frozen['k'].max():g})",
             _at_most(found["most"], 1.2), shown(found["most"])),
    )  # fmt: skip
    rows = [
        {"label": "fresh" if math.isinf(k) else f"K {k:g}",
         **over_seeds(numbers(group, "ratio_new"))._asdict()}
        for k, group in big.groupby("k")
    ]  # fmt: skip
    return Measured(
        parts,
        found["fresh"],
        "times 2-Gen's KL",
        int(big.groupby("k")["seed"].nunique().min()),
        f"encode-pool-decode, d_task {big['d_task'].iloc[0]:g}, d_hidden "
        f"{big['d_hidden'].iloc[0]:g}, K up to {frozen['k'].max():g}",
        pd.DataFrame(rows),
        {"criterion": 1.2},
        f"with K {frozen['k'].min():g} the same model has {shown(found['few'])}: it memorises",
    )


def _at_most(found: Estimate, bar: float) -> bool | None:
    if found.high <= bar:
        return True
    return False if found.low > bar else None


CLAIMS = (
    Claim(
        "capacity-dimension",
        "markov",
        "The task dimension limits how many chains 2-Mem holds.",
        "direction only",
        "a summary of the paper; sizes unknown",
        "K_c larger at the largest task dimension for every decoder width, and nowhere falling",
        (MINIMAL,),
        task_dimension,
    ),
    Claim(
        "capacity-width",
        "markov",
        "So does the width of the decoder.",
        "direction only",
        "a summary of the paper; sizes unknown",
        "K_c larger at the largest decoder width for every task dimension, and nowhere falling",
        (MINIMAL,),
        decoder_width,
    ),
    Claim(
        "motif-generalises",
        "markov",
        "With enough capacity the same motif also generalises to new chains.",
        "near-optimal",
        "summaries of the paper",
        "KL to the truth on new chains at most 1.2 times 2-Gen's, with fresh chains and with the "
        "most frozen ones",
        (MINIMAL,),
        generalises,
    ),
)
