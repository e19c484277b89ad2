"""Falsified mechanisms, the rest of our list: the optimizer, norms, a spinodal."""

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, inside, most_part, shown
from analyses.ledger.curvature_claims import on_plateau
from analyses.ledger.falsified_claims import OURS
from analyses.ledger.head_claims import HEADS
from analyses.ledger.noise_claims import said
from analyses.ledger.plateau_claims import CONTROLS, SIZES
from analyses.ledger.seeds import (
    least_seeds,
    over_seeds,
    per_setting,
    scale_of,
    seeds_in,
)
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import chosen, pair_seeds, ratio, waits
from analyses.rows import numbers, records


def _controlled(store: EvidenceStore, what: str, setting: str, value: float) -> Measured:
    table = waits(store, CONTROLS)
    base = chosen(table, "ordinary run", arm="base")
    if setting not in table:
        raise NoEvidence(f"no run with another {setting} among the controls")
    arm = table[table["arm"].str.fullmatch(rf"{setting} [^,]+")]
    if arm.empty:
        raise NoEvidence(f"no run with another {setting} among the controls")
    arm = pd.DataFrame(arm[arm[setting] == arm[setting].min()])
    found = ratio(arm, base)
    part = Part(f"tau changes by less than a factor of {value:g} {what}",
                inside(found.found, 1 / value, value), said(found))  # fmt: skip
    both = pd.concat([base, arm])
    return Measured(
        (part,),
        found.found,
        "times as long",
        pair_seeds(base, arm),
        scale_of(both),
        per_setting(both, "time", ("arm",), geometric=True),
    )


def optimiser(store: EvidenceStore) -> Measured:
    """Is the wait the optimizer's time scale, 1 / (1 - beta2)?"""
    return _controlled(store, "when beta2 makes Adam's memory shorter", "beta2", 2.0)


def norms(store: EvidenceStore) -> Measured:
    """Is the wait the time that weights take to grow?"""
    decay = _controlled(store, "without weight decay", "weight_decay", 1.5)
    growth = _norm_at_tau(store)
    found = over_seeds(growth.groupby("rank")["spread"].first())
    part = Part("weight norm at tau differs by more than 5 % between sizes of data",
                above(found, 1.05), shown(found))  # fmt: skip
    return Measured(
        (*decay.parts, part),
        decay.estimate,
        decay.unit,
        min(decay.n_seeds, least_seeds(growth, ("k", "n_b"))),
        decay.scale,
        decay.table,
        note="a norm that has to be reached would be the same for all sizes",
    )


def _norm_at_tau(store: EvidenceStore) -> pd.DataFrame:
    """Weight norm of each run at tau over that at the start, and by seed how far it spreads over
    sizes (greatest over least)."""
    updates = store.table(SIZES, "weight-updates-updates").sort_values("step")
    rows = []
    for row in records(waits(store, SIZES).dropna(subset=["time"])):
        own = updates[updates["run"] == row["run"]]
        if len(own):
            at = float(np.interp(row["time"], numbers(own, "step"), numbers(own, "weight_norm")))
            rows.append({**row, "norm": at / float(own["weight_norm"].iloc[0])})
    if not rows:
        raise NoEvidence("no run with weight norms and a tau")
    table = pd.DataFrame(rows)
    by_rank = table.groupby("rank")["norm"]
    return table.assign(spread=by_rank.transform("max") / by_rank.transform("min"))


def spinodal(store: EvidenceStore) -> Measured:
    """Is the plateau a local minimum that has to vanish first?"""
    table = on_plateau(store)
    escape = numbers(table, "lambda_min") < -numbers(table, "lambda_min_residual")
    rows = [{"label": row["run"], "value": row["lambda_min"]} for row in records(table)]
    found = over_seeds(numbers(table, "lambda_min"))
    return Measured(
        (most_part("a direction of negative curvature is there before the snap", escape.tolist()),),
        Estimate(*found),
        "lambda_min",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"no curvature": 0.0},
        "a metastable state has none until it vanishes",
    )


CLAIMS = (
    Claim(
        "not-optimiser",
        "marginals",
        "Not the optimizer's time scale: Adam's memory does not set the wait.",
        "ruled out",
        OURS + "a draft mentions AdamW's time scale without a table",
        "tau changes by less than a factor of 2 with the least beta2",
        (CONTROLS,),
        optimiser,
    ),
    Claim(
        "not-norm-growth",
        "marginals",
        "Not norm growth or neural collapse: no weight norm has to be reached.",
        "ruled out",
        OURS + "the repository has norms at the end only, 80 to 182 by K",
        "tau changes by less than a factor of 1.5 without weight decay; weight norm at tau differs "
        "by more than 5 % between sizes",
        (CONTROLS, SIZES),
        norms,
    ),
    Claim(
        "not-spinodal",
        "marginals",
        "Not a spinodal: the plateau is no local minimum that has to vanish first.",
        "ruled out",
        OURS + "drafts weigh a spinodal; the sign of its lambda_min is not settled",
        "lambda_min below 0 beyond its residual in most runs, before the snap",
        (HEADS,),
        spinodal,
    ),
)
