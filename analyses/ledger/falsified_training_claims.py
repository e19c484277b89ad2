"""Falsified mechanisms, the rest of our list: the optimizer, norms, a spinodal."""

import numpy as np
import pandas as pd

from analyses.ledger.claim import UNKNOWN, Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, inside, number, shown
from analyses.ledger.curvature_claims import (
    ALL_ALONG,
    escapes,
    measured_where,
    nearly_critical,
    on_plateau,
)
from analyses.ledger.falsified_claims import OURS
from analyses.ledger.head_claims import HEADS, shared_mapping
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

STRONG = 0.1
"""Share of the weights that weight decay has to take away by tau for it to be a test."""


def _arms(store: EvidenceStore, setting: str, end: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ordinary controls, and those with the least or the greatest other value of a setting."""
    table = waits(store, CONTROLS)
    base = chosen(table, "ordinary run", arm="base")
    if setting not in table:
        raise NoEvidence(f"no run with another {setting} among the controls")
    arm = table[table["arm"].str.fullmatch(rf"{setting} [^,]+")]
    if arm.empty:
        raise NoEvidence(f"no run with another {setting} among the controls")
    return base, pd.DataFrame(arm[arm[setting] == arm[setting].agg(end)])


def optimiser(store: EvidenceStore) -> Measured:
    """Is the wait the optimizer's time scale, 1 / (1 - beta2)?"""
    base, arm = _arms(store, "beta2", "min")
    found, value = ratio(arm, base), 2.0
    part = Part(f"tau changes by less than a factor of {value:g} when beta2 makes Adam's memory "
                "shorter", inside(found.found, 1 / value, value), said(found))  # fmt: skip
    both = pd.concat([base, arm])
    return Measured(
        (part,),
        found.found,
        "times as long",
        pair_seeds(base, arm),
        scale_of(both),
        per_setting(both, "time", ("arm",), geometric=True),
        axis="waiting time (steps)",
    )


def norms(store: EvidenceStore) -> Measured:
    """Is the wait the time that weights take to grow?"""
    base, arm = _arms(store, "weight_decay", "max")
    decayed, part = _decayed(base, arm)
    growth = _norm_at_tau(store)
    found = over_seeds(growth.groupby("rank")["spread"].first())
    both = pd.concat([base, arm])
    return Measured(
        (
            part,
            Part("weight norm at tau differs by more than 5 % between sizes of data",
                 above(found, 1.05), shown(found)),
        ),
        decayed,
        "times as long",
        min(pair_seeds(base, arm), least_seeds(growth, ("k", "n_b"))),
        scale_of(both),
        per_setting(both, "time", ("arm",), geometric=True),
        axis="waiting time (steps)",
        note="a norm that has to be reached would be the same for all sizes",
    )  # fmt: skip


def _decayed(base: pd.DataFrame, arm: pd.DataFrame) -> tuple[Estimate, Part]:
    """How many times as long does the wait become with the greatest weight decay? Undecided where
    even that one takes next to nothing away by tau."""
    found, value = ratio(arm, base), 1.5
    taken = float((arm["lr"] * arm["weight_decay"]).mean() * base["time"].mean())
    what = f"weight decay {arm['weight_decay'].iloc[0]:g}, which takes {number(taken)} of the "
    what += "weights by the usual tau"
    statement = (
        f"tau changes by less than a factor of {value:g} with a weight decay that takes at least "
        f"{STRONG:g} of the weights by tau"
    )
    if not taken >= STRONG:
        return UNKNOWN, Part(statement, None, f"not tested: the greatest is {what}; {said(found)}")
    held = inside(found.found, 1 / value, value)
    return found.found, Part(statement, held, f"{said(found)}, {what}")


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
    critical, escape = nearly_critical(table), escapes(table)
    rows = [{"label": row["run"], "value": row["lambda_min"]} for row in records(table)]
    found = over_seeds(numbers(table, "lambda_min"))
    part = Part(
        "a direction of negative curvature before the snap at a point that is nearly critical "
        f"({critical.statement}); {ALL_ALONG}",
        # Where the point is not critical, neither a minimum nor a saddle is there to be told.
        escape.held if critical.held else None,
        f"gradient norm {critical.seen}; {escape.seen}",
    )
    return Measured(
        (part,),
        Estimate(*found),
        "lambda_min",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"no curvature": 0.0},
        "a metastable state has none until it vanishes; where the gradient is not small neither "
        f"state is there; {measured_where(table)}; {shared_mapping(store)}",
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
        "tau changes by less than a factor of 1.5 with the greatest weight decay, which has to "
        "take at least 0.1 of the weights by tau (rate times decay times tau); weight norm at tau "
        "differs by more than 5 % between sizes",
        (CONTROLS, SIZES),
        norms,
    ),
    Claim(
        "not-spinodal",
        "marginals",
        "Not a spinodal: the plateau is no local minimum that has to vanish first.",
        "ruled out",
        OURS + "drafts weigh a spinodal; the sign of its lambda_min is not settled",
        "before the snap, gradient norm at most 0.1 without the noise of sampling and there "
        "lambda_min below 0 beyond its residual in most runs",
        (HEADS,),
        spinodal,
    ),
)
