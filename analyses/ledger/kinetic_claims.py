"""The claim about kinetics: does the learning rate of a subcircuit move K1*?"""

import math

import numpy as np
import pandas as pd

from analyses.bypass.critical_k import arm_table
from analyses.ledger.chain_runs import PLAIN, outcomes
from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import number, shown
from analyses.ledger.seeds import least_seeds, over_seeds, scale_of
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.threshold_claims import shares_of
from analyses.rows import Row, records

KINETICS = "markov-kinetics"

PARTS = {"matching": "blocks.1.attn", "control": "mlp"}
"""What the patterns of the arms begin with: matching alone, and the control."""

LEVEL = 0.05
"""Chance of calling one of the arms moved when none is."""


def shift(store: EvidenceStore) -> Measured:
    """Does the learning rate of one subcircuit move K1*?"""
    table = outcomes(store, KINETICS)
    arms = arm_table(table, PLAIN)
    rows = {row["arm"]: row for row in records(arms)}
    if PLAIN not in rows:
        raise NoEvidence("no runs without lr_factor, at the same K, to compare with")
    slow, fast = (_arm(rows, PARTS["matching"], faster) for faster in (False, True))
    tests = sum(not math.isnan(row["p"]) for row in rows.values())
    parts = [
        Part("slower matching (blocks.1.attn.W_[QK]) raises K1* beyond chance",
             _moved(slow, rows[PLAIN], 1, tests), _said(slow)),
        Part("faster matching lowers it beyond chance",
             _moved(fast, rows[PLAIN], -1, tests), _said(fast)),
    ]  # fmt: skip
    control = _arm(rows, PARTS["control"], False)
    if control is not None:
        same = _moved(control, rows[PLAIN], 1, tests)
        parts.append(
            Part("slower MLPs (control) do not raise it", None if same is None else not same,
                 _said(control))
        )  # fmt: skip
    moved = slow if slow is not None else rows[PLAIN]
    return Measured(
        tuple(parts),
        _shifted(moved, rows[PLAIN]),
        "times K1*",
        least_seeds(table, ("arm", "k")),
        scale_of(store.runs(KINETICS)),
        shares_of(table),
        note="value: K1* with slower matching over K1* without; the static crossing K_x cannot "
        f"move; K1* unscaled {shown(Estimate(*(rows[PLAIN][n] for n in ('k1', 'low', 'high'))))}, "
        f"{int(arms['undecided'].sum())} of {len(table)} runs come near 2-Gen without entering it; "
        f"least KL to 2-Gen on new chains, over that of the unscaled run: {_nearness(store)}",
    )


def _nearness(store: EvidenceStore) -> str:
    """How near to 2-Gen the runs of each arm come, against unscaled ones of the same K and seed."""
    log = store.joined(KINETICS, "phases-log")
    log = log[log["step"] > 0].assign(lr_factor=log["lr_factor"].fillna(""))
    cell = ["lr_factor", "k", "init_seed"]
    nearest = log.groupby(cell)["two_gen_new"].min().unstack("lr_factor")
    if "" not in nearest.columns:
        return "none to compare with"
    ratios = pd.DataFrame(np.log(nearest.drop(columns="").div(nearest[""], axis=0)))
    of_seeds = ratios.groupby("init_seed").mean()
    return ", ".join(
        f"{shown(Estimate(*(math.exp(end) for end in over_seeds(of_seeds[arm]))))} for {arm}"
        for arm in of_seeds
    )


def _shifted(moved: Row, plain: Row) -> Estimate:
    """The ratio of two K1*; infinite or 0 where one lies beyond what was run."""
    value = moved["shift"]
    if math.isnan(value) and moved["k1"] != plain["k1"]:
        value = math.inf if moved["k1"] > plain["k1"] else 0.0
    return Estimate(value, moved["shift_low"], moved["shift_high"])


def _arm(rows: dict[str, Row], start: str, faster: bool) -> Row | None:
    """The arm of one subcircuit with its farthest factor to one side."""
    found = []
    for name, row in rows.items():
        pattern, _, factor = name.rpartition("=")
        if pattern.startswith(start) and "," not in name and (float(factor) > 1) == faster:
            found.append((abs(math.log(float(factor))), row))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _moved(row: Row | None, plain: Row, sign: int, tests: int) -> bool | None:
    """Whether K1* moved to one side beyond chance, corrected for the number of arms; None without
    the arm, where it moved but not beyond chance, or where the unscaled runs show no K1*."""
    if row is None or math.isnan(row["p"]) or math.isnan(row["k1"]):
        return None
    if row["p"] * tests < LEVEL:
        return bool(sign * (row["k1"] - plain["k1"]) > 0)
    if not 0 < plain["k1"] < math.inf:  # All enter, or none: what would be moved is not there.
        return None
    return False if sign * _difference(row["k1"], plain["k1"]) <= 0 else None


def _difference(one: float, other: float) -> float:
    return 0.0 if one == other else one - other


def _said(row: Row | None) -> str:
    if row is None:
        return "no such arm"
    return f"K1* {number(row['k1'])}, p of no shift {number(row['p'], 2)}"


CLAIMS = (
    Claim(
        "kinetic-shift",
        "markov",
        "Scaling the learning rate of the 2-Gen subcircuit moves K1*.",
        "direction only",
        "a summary, and one sentence of the paper",
        "slower matching raises K1*, faster matching lowers it, beyond chance over all arms; "
        "slower MLPs do not raise it",
        (KINETICS,),
        shift,
    ),
)
