"""How long before the loss does a signal leave its noise? Leads as shares of the waiting time."""

import math

import numpy as np
import pandas as pd

from analyses.rows import keyed
from circuits.selector_verdict import RANKED_BY

LOSSES = ("candidate_loss", "target_ce", "first_token_ce", "z_gap")
"""Measures of the whole model that onsets are compared with (nats)."""

CLAIMED = 0.5
"""The lead that the paper reports (arXiv 2603.10074): half of the waiting time."""


def lead_table(onset: pd.DataFrame, steps: list[int], tau: float) -> pd.DataFrame:
    """Adds to each onset what is known of its lead.

    An onset is only known to lie between two checkpoints, so the lead is a range.

    Args:
        onset: as from `circuits.onset.onsets`.
        steps: of the checkpoints, rising.
        tau: the waiting time in steps; infinite if it does not end within the run.

    Returns:
        The table with `after` (the last checkpoint before the onset), `tau`, and the lead on tau
        as a share of it, `lead_low` to `lead_high`; missing without an onset or without tau.
    """
    table = onset.copy()
    before = dict(zip(steps[1:], steps[:-1], strict=True))
    found = [None if pd.isna(step) else int(step) for step in table["onset"]]
    table["after"] = pd.array([None if s is None else before[s] for s in found], dtype="Int64")
    table["tau"] = tau
    known = math.isfinite(tau) and tau > 0
    for name, ends in (("lead_low", found), ("lead_high", table["after"])):
        table[name] = [
            (tau - float(end)) / tau if known and end is not None and not pd.isna(end) else np.nan
            for end in ends
        ]
    return table


def lead_verdict(onset: pd.DataFrame, head: str) -> str:
    """Says whether the head assembles before the loss moves, and by half of tau.

    Args:
        onset: rows of `lead_table` of the head and of the whole model.
        head: the head that is followed.
    """
    rows = keyed(onset, "signal")
    own, loss = rows[RANKED_BY], rows["candidate_loss"]
    if pd.isna(own["onset"]):
        return f"{head} never leaves its noise in {RANKED_BY}: there is no lead to read off"
    if math.isnan(own["lead_low"]):
        return f"{head} leaves its noise at step {own['onset']}, but tau is not reached: no lead"
    low, high = own["lead_low"], own["lead_high"]
    half = "which includes" if low <= CLAIMED <= high else "which does not include"
    ahead = "never" if pd.isna(loss["onset"]) else f"at step {loss['onset']}"
    first = not pd.isna(loss["onset"]) and own["onset"] < loss["onset"]
    order = "before" if first else "not before"
    return (
        f"{head} assembles {low:.2f} to {high:.2f} tau ahead of tau, {half} the paper's "
        f"{CLAIMED:.2f}; by checkpoints it is {order} the candidate loss, which leaves its noise "
        f"{ahead}"
    )
