"""From sums over the weights to cosines, norms and alignments, and their averages by phase."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analyses.plateau import log_series
from analyses.updates.nulls import scatter_band, sign_band
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.runs import Run

READINGS = (("paper", "b"), ("sound", "a"))
"""The paper's phases hang on tau (b), of the first token; the snap is where tau (a) is."""


def cosine_table(
    sums: pd.DataFrame, groups: Sequence[str], span: int, lags: Sequence[int]
) -> pd.DataFrame:
    """Gives the cosine of every pair of updates.

    Args:
        sums: what `update_sums` gives.
        groups: its groups.
        span: steps of an update.
        lags: in updates.

    Returns:
        `step` (start of the earlier update), `lag`, `group`, `cosine`, and `sign_band`: 95 % of
        cosines lie within it if every weight's sign is random. Both are NaN for a group that did
        not move.
    """
    squares = _block(sums, "square", 0, groups)
    tables = []
    for lag in lags:
        dots, dot_squares = (_block(sums, name, lag, groups) for name in ("dot", "dot_square"))
        one = squares.loc[dots.index].to_numpy()
        other = squares.loc[dots.index + lag * span].to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            cosine = dots.to_numpy() / np.sqrt(one * other)
        band = sign_band(dot_squares.to_numpy(), one, other)
        tables.append(_long(dots, {"cosine": cosine, "sign_band": band}).assign(lag=lag))
    table = pd.concat(tables, ignore_index=True)
    return table[["step", "lag", "group", "cosine", "sign_band"]]


def update_table(sums: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Gives the size and direction of every update.

    Returns:
        `step` (start of the update), `group`, `update_norm`, `weight_norm` (at the start),
        `relative_norm`; `alignment`: cosine with the displacement from the first to the last
        checkpoint of the run, which counts the update as part of its own goal; `alignment_rest`:
        with the displacement less the update; `alignment_band`: 95 % of alignments if every
        weight's sign is random.
    """
    names = ("square", "weight_square", "along", "along_square", "displacement_square")
    square, weight, along, along_square, far = (
        _block(sums, name, 0, groups).to_numpy() for name in names
    )
    index = _block(sums, "square", 0, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = np.maximum(far - 2 * along + square, 0)
        values = {
            "update_norm": np.sqrt(square),
            "weight_norm": np.sqrt(weight),
            "relative_norm": np.sqrt(square / weight),
            "alignment": along / np.sqrt(square * far),
            "alignment_rest": (along - square) / np.sqrt(square * rest),
            "alignment_band": sign_band(along_square, square, far),
        }
    return _long(index, values)


def average_table(
    cosines: pd.DataFrame, groups: pd.DataFrame, momentum: pd.DataFrame
) -> pd.DataFrame:
    """Gives the mean cosine of every group and lag, against chance and momentum.

    Args:
        cosines: what `cosine_table` gives.
        groups: `group` and `equal_norm_band`.
        momentum: `lag`, `lag_steps` and `analytic` for the run's span.

    Returns:
        `lag`, `lag_steps`, `group`, `pairs`, `cosine` (mean); `mean_band`: 95 % of means over as
        many pairs by chance, each weight's size of move kept, and `equal_norm_mean_band`: for
        independent updates of equal norm (both take every weight as moving by itself);
        `scatter_band`: the same for independent updates of however few directions, and
        `single_band` for one pair, with `directions`, how many there effectively are (see
        `analyses.updates.nulls.scatter_band`); `momentum`, and the `verdict`, by the wider band.
    """
    grouped = cosines.groupby(["lag", "group"], sort=False, observed=True)
    table = grouped.agg(
        pairs=("cosine", "count"),
        cosine=("cosine", "mean"),
        # Under random signs the cosines of different pairs are uncorrelated even where they share
        # an update, so the variance of their mean is the sum of theirs over the square of n.
        mean_band=("sign_band", lambda band: np.sqrt((band**2).sum()) / max(band.count(), 1)),
    ).reset_index()
    table["group"] = table["group"].astype(str)
    bands = [scatter_band(group["cosine"].to_numpy(float)) for _, group in grouped]
    table["scatter_band"] = [band.mean for band in bands]
    table["single_band"] = [band.single for band in bands]
    table["directions"] = [band.dimension for band in bands]
    table = table.merge(groups[["group", "equal_norm_band"]], on="group")
    table["equal_norm_mean_band"] = table.pop("equal_norm_band") / np.sqrt(table["pairs"])
    lags = momentum[["lag", "lag_steps", "analytic"]].rename(columns={"analytic": "momentum"})
    table = table.merge(lags, on="lag")
    judged = table[["cosine", "mean_band", "scatter_band", "momentum"]].to_numpy(float)
    table["verdict"] = [agreement(*map(float, row)) for row in judged]
    order = ["lag", "lag_steps", "group", "pairs", "cosine", "mean_band", "equal_norm_mean_band"]
    scatter = ["scatter_band", "single_band", "directions"]
    return table[[*order, *scatter, "momentum", "verdict"]]


def agreement(cosine: float, by_weight: float, by_scatter: float, momentum: float) -> str:
    """Puts a mean cosine in words: more than momentum and chance, less than chance, or neither.

    Args:
        cosine: mean over pairs.
        by_weight: band of chance if every weight moves by itself.
        by_scatter: band of chance from the scatter of the cosines; NaN for a single pair.
        momentum: cosine from momentum alone.
    """
    if np.isnan(cosine):
        return "undefined, nothing moved"
    if np.isnan(by_scatter):
        return "cannot be told from one pair"
    band = max(by_weight, by_scatter)
    if cosine > momentum + band:
        return "they agree beyond both"
    if cosine < -band:
        return "they oppose each other"
    return "no more than momentum and chance give"


def phase_table(run: Run, cosines: pd.DataFrame, span: int) -> pd.DataFrame | None:
    """Gives the whole model's mean cosine at the shortest lag by phase of the plateau.

    The paper's phases are before tau/2, up to tau, and after, with tau (b) of the first token;
    where that comes late, its "plateau" already holds the snap, which tau (a) is about. A pair of
    updates belongs where the middle between them lies.

    Returns:
        `reading`, `tau`, `phase`, `pairs`, `cosine`; None if the run's log has no such tau.
    """
    config = run.config.task
    if not isinstance(config, MarginalsConfig) or config.variant != "bz_to_a" or config.k < 2:
        return None
    try:
        series = log_series(run)
    except InputError:
        return None
    taus: Any = tau_table(series, float(np.log(config.k))).set_index("definition")
    pairs = cosines[(cosines["group"] == "model") & (cosines["lag"] == cosines["lag"].min())]
    middle = pairs["step"] + (pairs["lag"] + 1) * span / 2
    rows = []
    for reading, definition in READINGS:
        tau = float(taus.at[definition, reading])
        if not np.isfinite(tau):
            continue
        edges = (-np.inf, tau / 2, tau, np.inf)
        for phase, low, high in zip(("plateau", "pre", "post"), edges, edges[1:], strict=False):
            inside = pairs[(middle >= low) & (middle < high)]["cosine"]
            mean = float(inside.mean()) if len(inside) else float("nan")
            row = {"reading": reading, "definition": definition, "tau": tau, "phase": phase}
            rows.append({**row, "pairs": len(inside), "cosine": mean})
    return pd.DataFrame(rows) if rows else None


def _block(sums: pd.DataFrame, quantity: str, lag: int, groups: Sequence[str]) -> pd.DataFrame:
    """The sums of one quantity, a row a step and a column a group."""
    chosen = sums[(sums["quantity"] == quantity) & (sums["lag"] == lag)]
    return chosen.set_index("step")[list(groups)]


def _long(index: pd.DataFrame, values: dict[str, np.ndarray]) -> pd.DataFrame:
    """A row for every step and group."""
    n_steps, n_groups = index.shape
    names: Any = list(index.columns)
    return pd.DataFrame(
        {
            "step": np.repeat(index.index.to_numpy(), n_groups),
            # As codes: a long run has half a million rows.
            "group": pd.Categorical.from_codes(
                np.tile(np.arange(n_groups), n_steps), categories=names
            ),
            **{name: value.ravel() for name, value in values.items()},
        }
    )
