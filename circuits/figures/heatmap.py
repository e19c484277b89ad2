"""Heads by effect: a ranked bar chart, a layer-by-head grid, and a heat map of any table."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import (
    LIGHT,
    Theme,
    diverging_scale,
    effect_colour,
    sequential_scale,
    themed,
    visible_text,
)


def heatmap(
    values: pd.DataFrame,
    *,
    title: str,
    unit: str = "nats",
    diverging: bool = True,
    limit: float | None = None,
    upwards: bool = True,
    theme: Theme = LIGHT,
) -> go.Figure:
    """Where in a grid (layer by position, layer by head, query by key) is a quantity large?

    Args:
        values: the numbers; its index names the rows and its columns the columns. Missing numbers
            are left blank.
        title: heading of the figure.
        unit: unit of the numbers.
        diverging: a scale centred on 0 for signed numbers; otherwise one that starts at 0.
        limit: the absolute value at which the scale ends; the largest one if not given.
        upwards: first row at the bottom, as layers are drawn; otherwise at the top, as in a
            matrix.
        theme: colours and fonts.

    Returns:
        A figure with one heat map trace.

    Raises:
        InputError: if the table is empty.
    """
    if values.empty:
        raise InputError("the table for a heat map is empty; give at least one row and column")
    grid = values.to_numpy(dtype=float)
    largest = float(np.nanmax(np.abs(grid))) if np.isfinite(grid).any() else 0.0
    bound = largest if limit is None else limit
    rows, columns = _labels(values.index), _labels(values.columns)
    trace = go.Heatmap(
        z=grid,
        x=columns,
        y=rows,
        zmin=-(bound or 1.0) if diverging else 0.0,
        zmax=bound or 1.0,
        colorscale=diverging_scale(theme) if diverging else sequential_scale(theme),
        colorbar={"title": {"text": visible_text(unit)}, "thickness": 14},
        hovertemplate="%{y}, %{x}<br>%{z:.4g} " + visible_text(unit) + "<extra></extra>",
        xgap=1,
        ygap=1,
    )
    return themed(
        go.Figure(trace),
        theme,
        title,
        xaxis={"title": {"text": str(values.columns.name or "")}, "type": "category"},
        yaxis={
            "title": {"text": str(values.index.name or "")},
            "type": "category",
            "autorange": True if upwards else "reversed",
        },
        margin={"l": 70, "r": 20, "t": 60, "b": 60},
    )


def head_bar(
    table: pd.DataFrame,
    *,
    top: int | None = None,
    title: str = "Heads by ablation effect",
    unit: str = "nats",
    theme: Theme = LIGHT,
) -> go.Figure:
    """Which heads matter most, and how sure is that?

    Args:
        table: one row a head (or set of heads) with the columns `head`, `effect`, `low`, `high`.
        top: show only this many, those with the largest effects.
        title: heading of the figure.
        unit: unit of the effects.
        theme: colours and fonts.

    Returns:
        A figure with one bar a row, the largest effect on top, whiskers over the interval; bars
        whose interval contains 0 are faint.

    Raises:
        InputError: if a column is missing.
    """
    missing = [name for name in ("head", "effect", "low", "high") if name not in table.columns]
    if missing:
        raise InputError(
            f"the head table has no column {', '.join(missing)}; it needs head, effect, low, high"
        )
    ranked = table.sort_values("effect", ascending=False, kind="stable")
    ranked = ranked.head(len(ranked) if top is None else top).iloc[::-1]
    return themed(
        go.Figure(_bars(ranked, unit, theme)),
        theme,
        title,
        xaxis={"title": {"text": f"effect, {visible_text(unit)}"}, "zeroline": True},
        yaxis={"type": "category"},
        height=max(240, 120 + 22 * len(ranked)),
        margin={"l": 90, "r": 20, "t": 60, "b": 50},
    )


def _bars(ranked: pd.DataFrame, unit: str, theme: Theme) -> go.Bar:
    limit = float(ranked["effect"].abs().max()) if len(ranked) else 0.0
    return go.Bar(
        x=ranked["effect"].tolist(),
        y=_labels(ranked["head"]),
        orientation="h",
        marker={
            "color": [effect_colour(value, limit, theme) for value in ranked["effect"]],
            "opacity": [
                0.35 if low <= 0 <= high else 1.0
                for low, high in zip(ranked["low"], ranked["high"], strict=True)
            ],
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": (ranked["high"] - ranked["effect"]).tolist(),
            "arrayminus": (ranked["effect"] - ranked["low"]).tolist(),
            "color": theme.ink,
            "thickness": 1,
        },
        customdata=ranked[["low", "high"]].to_numpy(),
        hovertemplate="<b>%{y}</b><br>%{x:+.4g} " + visible_text(unit) + "<br>95 % "
        "%{customdata[0]:+.4g} to %{customdata[1]:+.4g}<extra></extra>",
    )


def head_grid(table: pd.DataFrame, column: str = "effect") -> pd.DataFrame:
    """Arranges a table of single heads as a grid: one row a layer, one column a head.

    Args:
        table: one row a head with the columns `layer`, `index` and the one wanted.
        column: which numbers to arrange.

    Returns:
        A frame for `heatmap`, rows `L0`, `L1`, ... and columns `H0`, `H1`, ...; heads that the
        table lacks are missing numbers.
    """
    grid = table.pivot(index="layer", columns="index", values=column).astype(float)
    grid.index = pd.Index([f"L{layer}" for layer in grid.index], name="layer")
    grid.columns = pd.Index([f"H{head}" for head in grid.columns], name="head")
    return grid


def _labels(names: pd.Index | pd.Series) -> list[str]:
    return [visible_text(str(name)) for name in names]
