"""At which training step does a signal leave its noise for good?"""

from collections.abc import Mapping

import pandas as pd

from circuits.errors import InputError, refuse_other_kinds
from circuits.intervals import mean_interval
from circuits.selector_head import SelectorEvidence
from circuits.selector_signals import SIGNALS

COLUMNS = ("step", "signal", "value", "low", "high")


def selector_series(evidence: Mapping[int, SelectorEvidence], head: str) -> pd.DataFrame:
    """Follows one head's signals over the checkpoints of a run.

    Args:
        evidence: by training step.
        head: whose signals.

    Returns:
        Rows for `onsets`: `step`, `signal`, `value`, `low`, `high`, in order of
        steps. `metric` (of the clean model) and `selector_effect` are signals of the whole model.

    Raises:
        InputError: no such head, or no evidence.
    """
    refuse_other_kinds("evidence", evidence, Mapping, "a dict of what was found by step")
    refuse_other_kinds("head", head, str, "a name such as 'L0H3'")
    for found in evidence.values():
        refuse_other_kinds("an entry of evidence", found, SelectorEvidence, "SelectorEvidence")
    if not evidence:
        raise InputError("evidence is empty: give the evidence of at least one step")
    rows = []
    for step in sorted(evidence):
        found = evidence[step]
        table = found.table.set_index("head")
        if head not in table.index:
            raise InputError(f"{head!r} is not in the evidence: {', '.join(table.index)}")
        for signal in SIGNALS:
            bounds = [table.at[head, signal + end] for end in ("", "_low", "_high")]
            rows.append((step, signal, *bounds))
        for signal, values in (("metric", found.clean), ("selector_effect", found.selector_effect)):
            rows.append((step, signal, *(float(x) for x in mean_interval(values))))
    return pd.DataFrame(rows, columns=["step", "signal", "value", "low", "high"])


def onsets(series: pd.DataFrame, early: int = 3, widen: float = 1.0) -> pd.DataFrame:
    """Gives, for every signal, the step from which it stays outside its noise band.

    The band spans the intervals of the first `early` checkpoints, from their least `low` to their
    greatest `high`. The onset is the first step from which, at every later checkpoint too, the
    signal's own interval has no point in common with the band. So noise has two sources: the
    examples (intervals) and training itself before anything happens (several early checkpoints).

    Args:
        series: rows with `step`, `signal`, `value`, `low`, `high`, such as `selector_series` gives;
            other signals (losses, gaps) may be added as further rows.
        early: how many first checkpoints make the band; they cannot be onsets.
        widen: stretches the band around its middle, to ask for more than the least departure.

    Returns:
        One row a signal, in the order of the series: `signal`, `onset` (missing if it never leaves
        or comes back), `direction` ("up", "down" or ""), `band_low`, `band_high`, `last` (its value
        at the last step). Onsets are resolved no better than the steps of the checkpoints.

    Raises:
        InputError: a missing column, a repeated step, or no checkpoint after the early ones.
    """
    missing = [column for column in COLUMNS if column not in series.columns]
    if missing:
        raise InputError(
            f"series has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}"
        )
    if early < 1 or widen < 1:
        raise InputError(f"early={early} and widen={widen} must be at least 1")
    rows = []
    for signal in series["signal"].unique():
        one = pd.DataFrame(series[series["signal"] == signal]).sort_values("step")
        if one["step"].duplicated().any():
            raise InputError(f"series has signal {signal!r} twice at one step: give it once a step")
        if len(one) <= early:
            raise InputError(
                f"signal {signal!r} has {len(one)} checkpoints, and the first {early} make its "
                "noise band: give more checkpoints, or a smaller early"
            )
        rows.append((signal, *_onset(one, early, widen)))
    table = pd.DataFrame(
        rows, columns=["signal", "onset", "direction", "band_low", "band_high", "last"]
    )
    return table.astype({"onset": "Int64"})


def _onset(
    one: pd.DataFrame, early: int, widen: float
) -> tuple[int | None, str, float, float, float]:
    first, rest = one.iloc[:early], one.iloc[early:]
    middle = (first["low"].min() + first["high"].max()) / 2
    half = widen * (first["high"].max() - first["low"].min()) / 2
    above, below = rest["low"] > middle + half, rest["high"] < middle - half
    onset, direction = None, ""
    for outside, name in ((above, "up"), (below, "down")):
        stays = outside[::-1].cummin()[::-1]  # outside here and at every later step
        if stays.any():
            onset, direction = int(rest["step"][stays].iloc[0]), name
    return (
        onset,
        direction,
        float(middle - half),
        float(middle + half),
        float(one["value"].iloc[-1]),
    )
