"""Claims about the direction of weight updates, against their lag and the optimizer.

Data are drawn in epochs without replacement. An update that spans less than an epoch and the next
one share no example, so that they oppose each other; one that spans several averages their noise
away. Cosines at one span therefore differ by the size of the data, and no mean over sizes is taken.
"""

import math

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, every, inside, most, number, shown
from analyses.ledger.plateau_claims import SIZES
from analyses.ledger.seeds import least_seeds, only, per_setting, scale_of
from analyses.ledger.store import EvidenceStore
from analyses.rows import keyed, numbers, records

FLAT = 0.1
"""Cosine, beyond what momentum alone gives, up to which updates count as orthogonal."""

ALIGNED, RISE = 0.6, 0.3
"""Cosine from which updates count as aligned, and how far above the plateau's it has to be."""

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
    table = _phase(store, reading)
    table = only(table, _enough(table), f"{PAIRS} pairs of updates on the plateau of each run")
    return table.merge(_spans(store)[["run", "span", "momentum"]], on="run")


def _phase(store: EvidenceStore, reading: str = "sound") -> pd.DataFrame:
    table = store.joined(SIZES, "weight-updates-phases")
    return pd.DataFrame(table[(table["reading"] == reading) & (table["phase"] == "plateau")])


def _enough(table: pd.DataFrame) -> np.ndarray:
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
    runs = keyed(_phase(store), "run")
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
    plateau = table["cosine"].where(_enough(table))
    return table.assign(rise=table["peak"] - plateau).merge(
        _spans(store)[["run", "span", "momentum"]], on="run"
    )


def on_plateau(store: EvidenceStore) -> Measured:
    """Are neighbouring updates orthogonal on the plateau?"""
    table = plateau_cosines(store)
    each = _each(table, "cosine")
    held = [inside(_estimate(row), -FLAT, row["momentum"] + FLAT) for row in records(each)]
    found, where = _alike(each)
    letter = _of_setting(_phase(store, "paper"), where)
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
        f"{_said(each, where)}; settings count from {PAIRS} pairs a run; before half of tau b, the "
        f"paper's phase, which may hold the snap: {shown(letter)}",
    )


def at_transition(store: EvidenceStore) -> Measured:
    """Do neighbouring updates agree at the transition?"""
    table = peaks(store)
    each, risen = _each(table, "peak"), _each(table.dropna(subset=["rise"]), "rise")
    high = [above(_estimate(row), ALIGNED) for row in records(each)]
    rise = [above(_estimate(row), RISE) for row in records(risen)]
    found, where = _alike(each)
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
        f"{_said(each, where)}; the greatest of several noisy averages is above their mean by "
        "construction",
    )


def beyond_momentum(store: EvidenceStore) -> Measured:
    """Is the agreement more than chance and the optimizer's momentum give?"""
    table = store.joined(SIZES, "weight-updates-averages")
    table = only(table, table["cosine"].notna(), "pair of updates")
    table = table.assign(beyond=_excess(table), span=table["lag_steps"] / table["lag"])
    far = pd.DataFrame(table[table["lag"] == table.groupby("run")["lag"].transform("max")])
    far = only(far, _enough(far), f"{PAIRS} pairs of updates at the longest lag of each run")
    each = _each(far, "cosine")
    found, where = _alike(each)
    held, seen = _most_in_each(far)
    return Measured(
        (Part("agreement beyond momentum and chance in most runs of every setting", held, seen),),
        found,
        "cosine",
        least_seeds(far, SETTINGS),
        scale_of(far),
        each,
        {"momentum": float(far["momentum"].mean())},
        f"whole run, {_lags(far)}, the longest; {_said(each, where)}, which is not in the null; "
        f"settings count from {PAIRS} pairs a run; {_at_shortest(table)}",
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
    each = _each(near, "cosine")
    return (
        f"at the shortest with momentum below {FLAT}, {_lags(near)}, {_range(each)}, beyond both "
        f"in {_most_in_each(near)[1]}"
    )


def _each(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Gives one row a setting: the mean over seeds with its interval, D, momentum's cosine, and
    the steps of an epoch over those that an update spans (`epoch`)."""
    if table.empty:
        return pd.DataFrame(columns=["label", "value", "low", "high", "momentum", "epoch", "d"])
    means = table.groupby(list(SETTINGS), as_index=False)[["momentum", "span", "batch"]].mean()
    each = per_setting(table, column, SETTINGS).merge(means, on=list(SETTINGS))
    each = each.assign(d=each["k"] * each["n_b"])
    return each.assign(epoch=each["d"] / each["batch"] / each["span"]).sort_values(["d", "k"])


def _alike(each: pd.DataFrame) -> tuple[Estimate, dict]:
    """The number in the setting that is most like the paper's K 20, and that setting: by an epoch
    over the span of an update first, on which cosines depend, then by K."""
    off = np.abs(np.log(numbers(each, "epoch") / (PAPER_EPOCH / PAPER_SPAN)))
    off_k = np.abs(np.log(numbers(each, "k") / PAPER_K))
    row = records(each)[int(np.lexsort((off_k, off.round(6)))[0])]
    return _estimate(row), row


def _of_setting(table: pd.DataFrame, where: dict) -> Estimate:
    here = pd.DataFrame(table[(table["k"] == where["k"]) & (table["n_b"] == where["n_b"])])
    return _estimate(records(per_setting(here, "cosine", SETTINGS))[0]) if len(here) else _NONE


_NONE = Estimate(math.nan)


def _said(each: pd.DataFrame, where: dict) -> str:
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


def _span(each: pd.DataFrame, held: list[bool | None]) -> str:
    if each.empty:
        return "no setting has as many"
    return f"in {sum(one is True for one in held)} of {len(held)} settings; {_range(each)}"


def _range(each: pd.DataFrame) -> str:
    return f"{number(each['value'].min())} to {number(each['value'].max())} by setting"


def _estimate(row: dict) -> Estimate:
    return Estimate(row["value"], row["low"], row["high"])


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
