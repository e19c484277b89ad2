"""What the runs of a Markov-chain study did: phases, outcomes and times, from their tables."""

import math

import numpy as np
import pandas as pd

from analyses.ledger.store import EvidenceStore
from analyses.rows import numbers, records
from mechinterp.nearest_predictor import PHASES

CHAINS = "markov-phases"

NAMES = tuple(dict.fromkeys(PHASES.values()))
"""The four phases: 1-Gen, 1-Mem, 2-Gen, 2-Mem."""

PLAIN = "unscaled"
"""The arm without factors, as `analyses.bypass.outcomes` calls it; that file imports training."""

FIXED = ("run", "k", "rank", "init_seed", "data_seed")
"""What a row derived of a run keeps of its settings."""


def log_of(store: EvidenceStore, study: str = CHAINS) -> pd.DataFrame:
    """Gives the distances of every run at its logged steps, with its settings, in rising order."""
    table = store.joined(study, "phases-log")
    return table.sort_values(["run", "step"], kind="stable").reset_index(drop=True)


def nearest_distance(table: pd.DataFrame, phase: str) -> np.ndarray:
    """Distance (nats, on training chains) to the nearest predictor of a phase; NaN without one."""
    names = [f"{n}_train" for n, p in PHASES.items() if p == phase and f"{n}_train" in table]
    if not names:
        return np.full(len(table), np.nan)
    return np.asarray(table[names].min(axis=1), dtype=float)


def outcomes(store: EvidenceStore, study: str = CHAINS) -> pd.DataFrame:
    """Says of every run with frozen chains whether it entered 2-Gen, by the rule of `kinetics`.

    Returns:
        `run`, `k`, `rank`, seeds, `arm` (its learning-rate factors), `outcome` (entered, bypassed
        or undecided), as `analyses.bypass.outcomes.outcome_table` has them.
    """
    spells = store.table(study, "phases-spells")
    entered = set(spells[spells["phase"] == "2-Gen"]["run"])
    log = log_of(store, study)
    last = log.groupby("run").tail(1).set_index("run")["nearest_phase"]
    near = set(log[log["nearest_phase"] == "2-Gen"]["run"])
    rows = []
    for row in records(store.runs(study)):
        if row["run"] not in last.index or not math.isfinite(float(row["k"])):
            continue
        bypassed = last[row["run"]] == "2-Mem" and row["run"] not in near
        outcome = "entered" if row["run"] in entered else "bypassed" if bypassed else "undecided"
        arm = arm_of(row.get("lr_factor"))
        rows.append({**{n: row[n] for n in FIXED}, "arm": arm, "outcome": outcome})
    return pd.DataFrame(rows, columns=[*FIXED, "arm", "outcome"])


def arm_of(factors: object) -> str:
    """Names the arm of a run from its learning-rate factors as a table has them."""
    text = "" if factors is None else str(factors).strip("[]() ").replace("'", "").strip(", ")
    return PLAIN if text in ("", "nan", "None") else text


def times(store: EvidenceStore, study: str = CHAINS) -> pd.DataFrame:
    """Gives one row a run: when it entered 2-Gen and left it (`entered`, `left`; steps, NaN for
    never), whether generalisation was lost again (`transient`, `rise`), from the log if there is
    one."""
    table = store.joined(study, "phases-transience")
    order = table["source"].map({"log": 0, "checkpoints": 1}).fillna(2)
    table = table.assign(order=order).sort_values("order", kind="stable")
    table = table.drop_duplicates("run").drop(columns="order").reset_index(drop=True)
    for name in ("entered", "left"):
        values = numbers(table, name)
        table[name] = np.where(np.isfinite(values), values, np.nan)
    return table
