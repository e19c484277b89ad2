"""Claims of the second paper that its minimal models carry: the cliff, capacity, generalisation."""

import pandas as pd

from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, contains, every, every_part, inside, number, shown
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import Row, keyed, numbers, records

MINIMAL = "minimal-models"


def cliff_law(store: EvidenceStore) -> Measured:
    """Does the time of the cliff follow N / ln N?"""
    laws = keyed(store.table(MINIMAL, "symmetric-model-laws"), "x")
    taus = store.table(MINIMAL, "symmetric-model-taus")
    found, length = (_law(laws[x]) for x in ("n_over_log", "length"))
    parts = (
        Part("exponent on N / ln N between 0.8 and 1.2", inside(found, 0.8, 1.2), shown(found)),
        Part("its interval holds 1, or lies within 5 % of it",
             contains(found, 1.0) or inside(found, 0.95, 1.05), shown(found)),
    )  # fmt: skip
    return Measured(
        parts,
        found,
        "exponent",
        int(laws["n_over_log"]["samples"]),
        f"two scalars, C {_one(taus, 'n_states')}, N {taus['length'].min():g}-"
        f"{taus['length'].max():g}",
        pd.DataFrame({"x": taus["n_over_log"], "time": taus["tau"], "label": "cliff",
                      "run": taus["run"]}),
        note=f"exponent on N itself {shown(length)}; seeds are samples of chains",
    )  # fmt: skip


def _law(row: Row) -> Estimate:
    return Estimate(float(row["exponent"]), float(row["low"]), float(row["high"]))


def _one(table: pd.DataFrame, name: str) -> str:
    return f"{table[name].iloc[0]:g}" if name in table else "?"


def _c_delta(row: Row) -> Estimate:
    return Estimate(row["c_delta"], row["c_delta_low"], row["c_delta_high"])


def biases(store: EvidenceStore) -> Measured:
    """Are both weak biases positive?"""
    table = store.table(MINIMAL, "symmetric-model-biases")
    taus = store.table(MINIMAL, "symmetric-model-taus")
    some = table[table["mu"] > 0]
    if some.empty:
        raise NoEvidence("no biases with mu above 0, without which c_delta vanishes")
    parts = (
        every_part("c_beta above 0 with its interval, at every length",
                   (table["c_beta_low"] > 0).to_list()),
        Part("c_delta above 0 with its interval, at every length with mu above 0",
             every(above(_c_delta(row), 0.0) for row in records(some)),
             f"{int((some['c_delta_low'] > 0).sum())} of {len(some)}"),
        every_part("c_beta above 0 in every sample of chains", (taus["c_beta"] > 0).to_list()),
    )  # fmt: skip
    rows = [
        {"label": f"{name}, N {row['length']:g}, mu {row['mu']:g}", "value": row[name],
         "low": row[f"{name}_low"], "high": row[f"{name}_high"]}
        for name in ("c_beta", "c_delta")
        for row in records(table)
    ]  # fmt: skip
    least = records(some)[int(numbers(some, "c_delta").argmin())]
    zero = table[table["mu"] == 0]["c_delta"].abs().max()
    return Measured(
        parts,
        Estimate(least["c_delta"], least["c_delta_low"], least["c_delta_high"]),
        "least c_delta",
        int(taus["sample"].nunique()),
        f"two scalars, C {_one(taus, 'n_states')}, N {table['length'].min():g}-"
        f"{table['length'].max():g}",
        pd.DataFrame(rows),
        {"no bias": 0.0},
        f"with token-only values (mu 0) c_delta is {number(float(zero))}: the claim needs a path "
        "from the first attention to the answer; intervals over chains",
    )


CLAIMS = (
    Claim(
        "cliff-law",
        "markov",
        "The time until 2-Gen grows with the context as N / log N.",
        "exponent 1 on N / log N",
        "a summary of the paper; derived for its symmetric model",
        "exponent on N / ln N between 0.8 and 1.2; its interval holds 1 or lies within 5 % of it; "
        "in the symmetric model",
        (MINIMAL,),
        cliff_law,
    ),
    Claim(
        "weak-biases",
        "markov",
        "Two weak biases, towards matching and towards the previous token, pull out of 1-Gen.",
        "c_beta, c_delta > 0",
        "a summary, and one sentence of the paper",
        "c_beta above 0 at every length and sample, c_delta above 0 with mu above 0, with their "
        "intervals",
        (MINIMAL,),
        biases,
    ),
)
