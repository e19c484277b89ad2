"""How long do the marginals runs of a study wait, and how do two arms of it compare?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyses.ledger.claim import UNKNOWN, Estimate
from analyses.ledger.seeds import labelled, over_seeds, seeds_in
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.rows import numbers

BASE = {
    "label_noise": 0.0,
    "random_z_until": 0,
    "weight_decay": 0.01,
    "beta2": 0.999,
    "gradient_noise": 0.0,
    "attn_only": False,
}
"""What a run is trained with unless it belongs to an arm of its own."""


@dataclass(frozen=True)
class Ratio:
    """How many times as long one arm takes as another.

    Attributes:
        found: geometric mean over pairs of seeds, with its interval; where runs end before they
            get there, the end that is unknown is 0 or infinite.
        bound: "exact", "at least", "at most" or "undefined".
        pairs: pairs of seeds.
        unreached: runs that end first.
    """

    found: Estimate
    bound: str
    pairs: int
    unreached: int


def waits(
    store: EvidenceStore, study: str, definition: str = "a", reading: str = "sound"
) -> pd.DataFrame:
    """Gives one row a run with its settings and how long it waits.

    Args:
        store: the evidence.
        study: of marginals runs, with the table plateau-taus.
        definition: of tau, see `analyses.waiting.tau`.
        reading: "sound", crossed for good and interpolated, or "paper", first seen.

    Returns:
        The settings, `d` (K n_b), `time` (steps; NaN where the run ends first), `last` and `arm`.
    """
    table = store.joined(study, "plateau-taus")
    table = pd.DataFrame(table[table["definition"] == definition])
    table["time"] = numbers(table, reading)
    table.loc[~np.isfinite(table["time"]), "time"] = np.nan
    return with_arms(table).assign(last=numbers(table, "steps_trained"))


def with_arms(runs: pd.DataFrame) -> pd.DataFrame:
    """Adds `d` and `arm`: what sets a run apart from an ordinary one, "base" if nothing does."""
    known = [name for name in BASE if name in runs]
    arms = []
    for _, row in runs.iterrows():
        apart = [f"{n} {_text(row[n])}" for n in known if _text(row[n]) != _text(BASE[n])]
        arms.append(", ".join(apart) or "base")
    return runs.assign(arm=arms, d=runs["k"].astype(float) * runs["n_b"].astype(float))


def ratio(
    one: pd.DataFrame, other: pd.DataFrame, column: str = "time", least: float = 1.0
) -> Ratio:
    """How many times as long does one arm take as another, over matched seeds?

    A run that ends first counts with its last step, so that the ratio becomes a bound.

    Args:
        one: rows of the arm above the line: `rank`, `last` and the column.
        other: rows of the arm below it.
        column: the time to compare; may be scaled, as in examples, and then so is `last`.
        least: what a shorter time counts as, in the unit of the column: one step.
    """
    missed = [int(arm[column].isna().sum()) for arm in (one, other)]
    logs = [
        arm.assign(log=np.log(arm[column].fillna(arm["last"]).clip(lower=least)))
        .groupby("rank")["log"]
        .mean()
        for arm in (one, other)
    ]
    both = logs[0].index.intersection(logs[1].index)
    value, low, high = over_seeds((logs[0][both] - logs[1][both]).to_list())
    found = Estimate(math.exp(value), math.exp(low), math.exp(high)) if len(both) else UNKNOWN
    bound = "exact"
    if all(missed):
        found, bound = UNKNOWN, "undefined"
    elif missed[0]:
        found, bound = found._replace(high=math.inf), "at least"
    elif missed[1]:
        found, bound = found._replace(low=0.0), "at most"
    return Ratio(found, bound, len(both), sum(missed))


def arrived(table: pd.DataFrame, settings: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Leaves out settings of which a run ends first: those that got there are the quicker ones.

    Returns:
        The runs of the other settings, and a remark on those left out; empty if none is.
    """
    missed = table["time"].isna().groupby([table[n] for n in settings]).transform("sum")
    kept, out = table[missed == 0], table[missed > 0]
    if out.empty:
        return pd.DataFrame(kept), ""
    names = sorted({labelled(settings, key) for key, _ in out.groupby(list(settings))})
    late = int(out["time"].isna().sum())
    return pd.DataFrame(kept), f"left out, as {late} of their runs end first: {'; '.join(names)}"


def pair_seeds(*arms: pd.DataFrame) -> int:
    """Fewest seeds of several arms."""
    return min(seeds_in(arm) for arm in arms)


def chosen(table: pd.DataFrame, what: str, **settings: object) -> pd.DataFrame:
    """Gives the rows with these settings.

    Raises:
        NoEvidence: there are none, or the study does not vary such a setting.
    """
    kept = np.ones(len(table), dtype=bool)
    for name, value in settings.items():
        if name not in table:
            raise NoEvidence(f"no {what} among the runs: they have no setting {name}")
        kept &= np.array([_text(one) == _text(value) for one in table[name]])
    if not kept.any():
        raise NoEvidence(f"no {what} among the runs")
    return pd.DataFrame(table[kept])


def _text(value: object) -> str:
    """A setting as text, alike whether it was read as a whole number or not."""
    if isinstance(value, bool | np.bool_) or str(value) in ("True", "False"):
        return str(value)
    try:
        return f"{float(str(value)):.6g}"
    except ValueError:
        return str(value)
