"""Cosines between weight updates by run and by setting, with how an epoch fits an update.

Data are drawn in epochs without replacement. An update that spans less than an epoch shares few
examples with the next, so that the two oppose each other; one that spans several averages their
noise away. Cosines at one span differ by the size of the data, and no mean over sizes is taken.
"""

import numpy as np
import pandas as pd

from analyses.ledger.claim import Estimate
from analyses.ledger.criteria import number
from analyses.ledger.plateau_claims import SIZES
from analyses.ledger.seeds import only, per_setting
from analyses.ledger.store import EvidenceStore
from analyses.rows import keyed, numbers, records

SMOOTHED = 5
"""Pairs of updates that the paper's figure averages over."""

PAIRS = 3
"""Pairs of updates that each run needs for its setting to count."""

SETTINGS = ("k", "n_b")

PAPER_K, PAPER_EPOCH = 20, 20 * 1000 / 128
"""The paper's run: K, and the steps of an epoch (D over the batch)."""

PAPER_SPAN = 200
"""Steps that the paper's updates span."""


def plateau_cosines(store: EvidenceStore, reading: str = "sound") -> pd.DataFrame:
    """Gives one row a run: the mean cosine of neighbouring updates before tau/2, the cosine that
    momentum alone gives them, and tau; of settings whose runs all have a few pairs there."""
    table = plateau_rows(store, reading)
    table = only(table, enough_pairs(table), f"{PAIRS} pairs of updates on the plateau of each run")
    return table.merge(_spans(store)[["run", "span", "momentum"]], on="run")


def plateau_rows(store: EvidenceStore, reading: str = "sound") -> pd.DataFrame:
    """Gives the row of each run's plateau, with its settings."""
    table = store.joined(SIZES, "weight-updates-phases")
    return pd.DataFrame(table[(table["reading"] == reading) & (table["phase"] == "plateau")])


def enough_pairs(table: pd.DataFrame) -> np.ndarray:
    """Marks the settings in which no run has fewer pairs than it needs."""
    pairs = table["pairs"].fillna(0)
    return (pairs.groupby([table[n] for n in SETTINGS]).transform("min") >= PAIRS).to_numpy()


def _spans(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: steps that an update spans, and momentum's cosine of neighbours."""
    table = store.table(SIZES, "weight-updates-averages")
    table = pd.DataFrame(table[table["lag"] == table.groupby("run")["lag"].transform("min")])
    table = table.drop_duplicates("run")
    return table.assign(span=table["lag_steps"] / table["lag"])


def peaks(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: the greatest cosine between tau/2 and 1.5 tau, averaged over 5 pairs as
    in the paper's figure (`peak`), and that above the plateau's (`rise`; NaN in settings with too
    few pairs there)."""
    runs = keyed(plateau_rows(store), "run")
    cosines = store.table(SIZES, "weight-updates-cosines")
    cosines = cosines[cosines["lag"] == cosines["lag"].min()]
    rows = []
    for run, group in cosines.groupby("run"):
        if run not in runs:
            continue
        group = group.sort_values("step")
        span = float(np.median(np.diff(numbers(group, "step")))) if len(group) > 1 else 0.0
        tau = float(runs[run]["tau"])
        middle = numbers(group, "step") + span
        smooth = group["cosine"].rolling(SMOOTHED, center=True, min_periods=1).mean()
        near = smooth[(middle >= tau / 2) & (middle <= 1.5 * tau)]
        if len(near):
            rows.append({**runs[run], "peak": float(near.max())})
    table = pd.DataFrame(rows, columns=["run", "peak"] if not rows else None)
    table = only(table, table["peak"].notna(), "pair of updates near tau")
    plateau = table["cosine"].where(enough_pairs(table))
    return table.assign(rise=table["peak"] - plateau).merge(
        _spans(store)[["run", "span", "momentum"]], on="run"
    )


def by_setting(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Gives one row a setting: the mean over seeds with its interval, D, momentum's cosine, and
    the steps of an epoch over those that an update spans (`epoch`)."""
    if table.empty:
        return pd.DataFrame(columns=["label", "value", "low", "high", "momentum", "epoch", "d"])
    means = table.groupby(list(SETTINGS), as_index=False)[["momentum", "span", "batch"]].mean()
    each = per_setting(table, column, SETTINGS).merge(means, on=list(SETTINGS))
    each = each.assign(d=each["k"] * each["n_b"])
    return each.assign(epoch=each["d"] / each["batch"] / each["span"]).sort_values(["d", "k"])


def most_alike(each: pd.DataFrame) -> tuple[Estimate, dict]:
    """The number in the setting that is most like the paper's K 20, and that setting: by an epoch
    over the span of an update first, on which cosines depend, then by K."""
    off = np.abs(np.log(numbers(each, "epoch") / (PAPER_EPOCH / PAPER_SPAN)))
    off_k = np.abs(np.log(numbers(each, "k") / PAPER_K))
    row = records(each)[int(np.lexsort((off_k, off.round(6)))[0])]
    return estimate(row), row


def sizes_said(each: pd.DataFrame, where: dict) -> str:
    """Which setting the headline is of and why, and the means by size with their epochs."""
    listed = ", ".join(
        f"{number(group['value'].mean())} at D {d:g} ({number(group['epoch'].mean())})"
        for d, group in each.groupby("d")
    )
    return (
        f"headline at {where['label']}, where an epoch takes {number(where['epoch'])} of the span "
        f"of an update (paper's K {PAPER_K}: {number(PAPER_EPOCH / PAPER_SPAN)}); by D, with that "
        f"share: {listed}, as data are drawn without replacement"
    )


def estimate(row: dict) -> Estimate:
    """The number of a row of settings, with its interval."""
    return Estimate(row["value"], row["low"], row["high"])
