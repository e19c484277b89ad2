"""Claims about the direction of weight updates, against their lag and the optimizer."""

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import above, inside, most_part, shown
from analyses.ledger.plateau_claims import SIZES
from analyses.ledger.seeds import least_seeds, only, overall, per_setting, scale_of
from analyses.ledger.store import EvidenceStore
from analyses.rows import keyed, numbers

FLAT = 0.1
"""Cosine up to which updates of the plateau count as orthogonal."""

SMOOTHED = 5
"""Pairs of updates that the paper's figure averages over."""

SETTINGS = ("k", "n_b")


def plateau_cosines(store: EvidenceStore, reading: str = "sound") -> pd.DataFrame:
    """Gives one row a run: the mean cosine of neighbouring updates before tau/2, and tau."""
    table = store.joined(SIZES, "weight-updates-phases")
    kept = (table["reading"] == reading) & (table["phase"] == "plateau") & (table["pairs"] > 0)
    return only(table, kept, "pair of updates on the plateau")


def peaks(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: the plateau's cosine, and the greatest one between tau/2 and 1.5 tau,
    averaged over 5 pairs as in the paper's figure."""
    plateau = keyed(plateau_cosines(store), "run")
    cosines = store.table(SIZES, "weight-updates-cosines")
    cosines = cosines[cosines["lag"] == cosines["lag"].min()]
    rows = []
    for run, group in cosines.groupby("run"):
        if run not in plateau:
            continue
        group = group.sort_values("step")
        span = float(np.median(np.diff(numbers(group, "step")))) if len(group) > 1 else 0.0
        tau = float(plateau[run]["tau"])
        middle = numbers(group, "step") + span
        smooth = group["cosine"].rolling(SMOOTHED, center=True, min_periods=1).mean()
        near = smooth[(middle >= tau / 2) & (middle <= 1.5 * tau)]
        if len(near):
            rows.append({"run": run, "peak": float(near.max())})
    return plateau_cosines(store).merge(pd.DataFrame(rows, columns=["run", "peak"]), on="run")


def on_plateau(store: EvidenceStore) -> Measured:
    """Are neighbouring updates orthogonal on the plateau?"""
    table = plateau_cosines(store)
    found = overall(table, "cosine")
    letter = overall(plateau_cosines(store, "paper"), "cosine")
    part = Part(f"mean cosine within {FLAT} of 0", inside(found, -FLAT, FLAT), shown(found))
    return Measured(
        (part,),
        found,
        "cosine",
        least_seeds(table, SETTINGS),
        scale_of(table),
        per_setting(table, "cosine", SETTINGS),
        {"paper, K 20": 0.036, "paper, K 10": 0.224},
        f"before half of tau b, the paper's phase: {shown(letter)}; that phase may hold the snap",
    )


def at_transition(store: EvidenceStore) -> Measured:
    """Do neighbouring updates agree at the transition?"""
    table = peaks(store)
    found = overall(table, "peak")
    rise = overall(table.assign(rise=table["peak"] - table["cosine"]), "rise")
    parts = (
        Part("greatest cosine near tau above 0.6", above(found, 0.6), shown(found)),
        Part("at least 0.3 above the plateau's", above(rise, 0.3), shown(rise)),
    )
    return Measured(
        parts,
        found,
        "cosine",
        least_seeds(table, SETTINGS),
        scale_of(table),
        per_setting(table, "peak", SETTINGS),
        {"paper, peak": 0.8, "paper, mean after tau b": 0.397},
        "the greatest of several noisy averages is above their mean by construction",
    )


def beyond_momentum(store: EvidenceStore) -> Measured:
    """Is the agreement more than chance and the optimizer's momentum give?"""
    table = store.joined(SIZES, "weight-updates-averages")
    table = only(table, table["cosine"].notna(), "pair of updates")
    far = pd.DataFrame(table[table["lag"] == table.groupby("run")["lag"].transform("max")])
    return Measured(
        (most_part("agreement beyond momentum and chance", _excess(far)),),
        overall(far, "cosine"),
        "cosine",
        least_seeds(far, SETTINGS),
        scale_of(table),
        per_setting(far, "cosine", SETTINGS),
        {"momentum": float(far["momentum"].mean())},
        f"whole run, {_lags(far)}, the longest; {_at_shortest(table)}",
    )


def _excess(table: pd.DataFrame) -> list[bool]:
    """Whether each cosine is above momentum by more than chance gives."""
    # fmax leaves out a band that is not known, as for a single pair.
    band = np.fmax(numbers(table, "mean_band"), numbers(table, "scatter_band"))
    excess = numbers(table, "cosine") - numbers(table, "momentum") - band
    return (excess > 0).tolist()


def _at_shortest(table: pd.DataFrame) -> str:
    """The same at the shortest lag that momentum does not reach, which does not decide."""
    free = table[table["momentum"] < FLAT]
    if free.empty:
        return f"momentum gives {FLAT} or more at every lag"
    near = pd.DataFrame(free[free["lag"] == free.groupby("run")["lag"].transform("min")])
    flags = _excess(near)
    return (
        f"at the shortest with momentum below {FLAT}, {_lags(near)}, "
        f"{shown(overall(near, 'cosine'))}, beyond both in {sum(flags)} of {len(flags)}"
    )


def _lags(table: pd.DataFrame) -> str:
    low, high = table["lag_steps"].min(), table["lag_steps"].max()
    return f"lag {low:g} steps" if low == high else f"lag {low:g} to {high:g} steps"


CLAIMS = (
    Claim(
        "cosine-plateau",
        "marginals",
        "On the plateau successive weight updates are nearly orthogonal.",
        "0.036 (K 20); 0.224 (K 10)",
        "the repository's displacement table, one seed each; the K 20 phase includes the snap",
        "mean cosine of neighbouring updates before tau/2 within 0.1 of 0",
        (SIZES,),
        on_plateau,
    ),
    Claim(
        "cosine-transition",
        "marginals",
        "At the transition they align.",
        "about 0.8 (K 20: 0.397 on average)",
        "second-hand; the repository's table has 0.397 (K 20) and 0.838 (K 10) on average after "
        "tau b, 0.8 to 0.9 at the peak; one seed each",
        "greatest smoothed cosine between tau/2 and 1.5 tau above 0.6 and 0.3 above the plateau's",
        (SIZES,),
        at_transition,
    ),
    Claim(
        "cosine-optimiser",
        "marginals",
        "The alignment is the loss's doing, not the lag's or the optimizer's.",
        "not controlled",
        "the paper has neither lags nor a model of momentum; the control is ours",
        "at the longest lag, mean cosines exceed what momentum and chance (95 %) give in most runs",
        (SIZES,),
        beyond_momentum,
    ),
)
