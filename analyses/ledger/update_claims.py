"""Claims about the direction of weight updates, against their lag and the optimizer.

Each is judged in every setting by itself; see `analyses.ledger.update_rows` for why.
"""

import numpy as np
import pandas as pd

from analyses.ledger.claim import UNKNOWN, Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, every, inside, most, number, shown
from analyses.ledger.plateau_claims import SIZES
from analyses.ledger.seeds import least_seeds, only, per_setting, scale_of
from analyses.ledger.store import EvidenceStore
from analyses.ledger.update_rows import (
    PAIRS,
    SETTINGS,
    by_setting,
    enough_pairs,
    estimate,
    most_alike,
    peaks,
    plateau_cosines,
    plateau_rows,
    sizes_said,
)
from analyses.rows import numbers, records

FLAT = 0.1
"""Cosine, beyond what momentum alone gives, up to which updates count as orthogonal."""

ALIGNED, RISE = 0.6, 0.3
"""Cosine from which updates count as aligned, and how far above the plateau's it has to be."""


def on_plateau(store: EvidenceStore) -> Measured:
    """Are neighbouring updates orthogonal on the plateau?"""
    table = plateau_cosines(store)
    each = by_setting(table, "cosine")
    held = [inside(estimate(row), -FLAT, row["momentum"] + FLAT) for row in records(each)]
    found, where = most_alike(each)
    letter = _of_setting(plateau_rows(store, "paper"), where)
    part = Part(
        f"mean cosine from -{FLAT} to {FLAT} above what momentum alone gives, in every setting",
        every(held),
        _span(each, held),
    )
    return Measured(
        (part,),
        found,
        "cosine",
        least_seeds(table, SETTINGS),
        scale_of(table),
        each,
        {"paper, K 20": 0.036, "paper, K 10": 0.224, "momentum": float(each["momentum"].mean())},
        f"{sizes_said(each, where)}; settings count from {PAIRS} pairs a run; before half of tau "
        f"b, the paper's phase, which may hold the snap: {shown(letter)}",
    )


def at_transition(store: EvidenceStore) -> Measured:
    """Do neighbouring updates agree at the transition?"""
    table = peaks(store)
    each, risen = by_setting(table, "peak"), by_setting(table.dropna(subset=["rise"]), "rise")
    high = [above(estimate(row), ALIGNED) for row in records(each)]
    rise = [above(estimate(row), RISE) for row in records(risen)]
    found, where = most_alike(each)
    parts = (
        Part(f"greatest cosine near tau above {ALIGNED} in every setting", every(high),
             _span(each, high)),
        Part(f"at least {RISE} above the plateau's in every setting with {PAIRS} pairs a run there",
             every(rise), _span(risen, rise)),
    )  # fmt: skip
    return Measured(
        parts,
        found,
        "cosine",
        least_seeds(table, SETTINGS),
        scale_of(table),
        each,
        {"paper, peak": 0.8, "paper, mean after tau b": 0.397},
        f"{sizes_said(each, where)}; the greatest of several noisy averages is above their mean by "
        "construction",
    )


def beyond_momentum(store: EvidenceStore) -> Measured:
    """Is the agreement more than chance and the optimizer's momentum give?"""
    table = store.joined(SIZES, "weight-updates-averages")
    table = only(table, table["cosine"].notna(), "pair of updates")
    table = table.assign(beyond=_excess(table), span=table["lag_steps"] / table["lag"])
    far = pd.DataFrame(table[table["lag"] == table.groupby("run")["lag"].transform("max")])
    far = only(far, enough_pairs(far), f"{PAIRS} pairs of updates at the longest lag of each run")
    each = by_setting(far, "cosine")
    found, where = most_alike(each)
    held, seen = _most_in_each(far)
    return Measured(
        (Part("agreement beyond momentum and chance in most runs of every setting", held, seen),),
        found,
        "cosine",
        least_seeds(far, SETTINGS),
        scale_of(far),
        each,
        {"momentum": float(far["momentum"].mean())},
        f"whole run, {_lags(far)}, the longest; {sizes_said(each, where)}, which is not in the "
        f"null; settings count from {PAIRS} pairs a run; {_at_shortest(table)}",
    )


def _excess(table: pd.DataFrame) -> list[bool]:
    """Whether each cosine is above momentum by more than chance gives."""
    # fmax leaves out a band that is not known, as for a single pair.
    band = np.fmax(numbers(table, "mean_band"), numbers(table, "scatter_band"))
    excess = numbers(table, "cosine") - numbers(table, "momentum") - band
    return (excess > 0).tolist()


def _most_in_each(table: pd.DataFrame) -> tuple[bool | None, str]:
    """Do most runs of every setting agree beyond both? And in how many runs that is."""
    groups = [group["beyond"].tolist() for _, group in table.groupby(list(SETTINGS))]
    flags = [flag for group in groups for flag in group]
    seen = f"{sum(flags)} of {len(flags)} runs in {len(groups)} settings"
    return every(most(group) for group in groups), seen


def _at_shortest(table: pd.DataFrame) -> str:
    """The same at the shortest lag that momentum does not reach, which does not decide."""
    free = table[table["momentum"] < FLAT]
    if free.empty:
        return f"momentum gives {FLAT} or more at every lag"
    near = pd.DataFrame(free[free["lag"] == free.groupby("run")["lag"].transform("min")])
    each = by_setting(near, "cosine")
    return (
        f"at the shortest with momentum below {FLAT}, {_lags(near)}, {_range(each)}, beyond both "
        f"in {_most_in_each(near)[1]}"
    )


def _of_setting(table: pd.DataFrame, where: dict) -> Estimate:
    here = pd.DataFrame(table[(table["k"] == where["k"]) & (table["n_b"] == where["n_b"])])
    return estimate(records(per_setting(here, "cosine", SETTINGS))[0]) if len(here) else UNKNOWN


def _span(each: pd.DataFrame, held: list[bool | None]) -> str:
    if each.empty:
        return "no setting has as many"
    return f"in {sum(one is True for one in held)} of {len(held)} settings; {_range(each)}"


def _range(each: pd.DataFrame) -> str:
    return f"{number(each['value'].min())} to {number(each['value'].max())} by setting"


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
        "mean cosine of neighbouring updates before tau/2 from -0.1 to 0.1 above what momentum "
        "alone gives, in every setting with 3 pairs a run",
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
        "greatest smoothed cosine between tau/2 and 1.5 tau above 0.6 in every setting, and 0.3 "
        "above the plateau's in every setting with 3 pairs a run there",
        (SIZES,),
        at_transition,
    ),
    Claim(
        "cosine-optimiser",
        "marginals",
        "The alignment is the loss's doing, not the lag's or the optimizer's.",
        "not controlled",
        "the paper has neither lags nor a model of momentum; the control is ours",
        "at the longest lag, mean cosines exceed what momentum and chance (95 %) give in most runs "
        "of every setting with 3 pairs a run",
        (SIZES,),
        beyond_momentum,
    ),
)
