"""Mechanisms as figures: who routes the selector, who matches, and what task vectors do."""

import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, sequential_scale, themed, visible_text


def score_figure(
    table: pd.DataFrame, scores: list[str], *, title: str, theme: Theme = LIGHT
) -> go.Figure:
    """Which heads stand out, in which scores?

    Every score has its own scale, from 0 to its largest size, because nats and shares do not
    compare; the numbers are in the cells and, with their intervals, in the hover.

    Args:
        table: one row a head with the columns `head`, each of `scores` and, where there are
            intervals, the same names with `_low` and `_high`: from `selector_evidence` or
            `induction_scores`.
        scores: columns to show.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        A heat map with one row a score and one column a head.

    Raises:
        InputError: a missing column, or no score.
    """
    _need(table, ["head", *scores])
    if not scores:
        raise InputError("scores is empty; name at least one column of the table")
    values = [table[score].astype(float).tolist() for score in scores]
    largest = [max((abs(v) for v in row if v == v), default=0.0) for row in values]
    shade = [[abs(v) / (top or 1.0) for v in row] for row, top in zip(values, largest, strict=True)]
    trace = go.Heatmap(
        z=shade,
        x=[visible_text(str(head)) for head in table["head"]],
        y=scores,
        text=[[_short(v) for v in row] for row in values],
        texttemplate="%{text}",
        customdata=[[_interval(table, score, i) for i in range(len(table))] for score in scores],
        hovertemplate="<b>%{x}</b> %{y}<br>%{text}%{customdata}<extra></extra>",
        zmin=0.0,
        zmax=1.0,
        colorscale=sequential_scale(theme),
        showscale=False,
        xgap=1,
        ygap=1,
    )
    return themed(
        go.Figure(trace),
        theme,
        title,
        xaxis={"type": "category", "side": "top"},
        yaxis={"type": "category", "autorange": "reversed"},
        height=max(260, 150 + 34 * len(scores)),
        margin={"l": 150, "r": 20, "t": 90, "b": 30},
    )


def bar_figure(
    table: pd.DataFrame,
    label: str | list[str],
    value: str,
    *,
    title: str,
    unit: str,
    marks: tuple[float, ...] = (0.0,),
    theme: Theme = LIGHT,
) -> go.Figure:
    """How large is each of a few quantities, and how sure is that?

    For the fractions of `patch_task_vector` (marks at 0 and 1), the shares of `variance_shares`
    or the effects of `k_composition`.

    Args:
        table: rows with the columns `label`, `value`, `low`, `high`.
        label: column, or columns joined by an arrow, that names the rows.
        value: column of the bars.
        title: heading of the figure.
        unit: of the values.
        marks: values to draw a line at.
        theme: colours and fonts.

    Returns:
        A horizontal bar chart with whiskers over the intervals, first row on top.

    Raises:
        InputError: a missing column.
    """
    names = [label] if isinstance(label, str) else label
    _need(table, [*names, value, "low", "high"])
    rows = table.iloc[::-1]
    titles = [" \u2192 ".join(str(x) for x in row) for row in rows[names].to_numpy().tolist()]
    figure = themed(
        go.Figure(_whiskered(rows, titles, value, theme)),
        theme,
        title,
        xaxis={"title": {"text": visible_text(unit)}},
        yaxis={"type": "category"},
        height=max(240, 130 + 30 * len(rows)),
        margin={"l": 170, "r": 20, "t": 60, "b": 50},
    )
    for mark in marks:
        figure.add_vline(x=mark, line={"color": theme.ink, "width": 1, "dash": "dot"})
    return figure


def _whiskered(rows: pd.DataFrame, titles: list[str], value: str, theme: Theme) -> go.Bar:
    return go.Bar(
        x=rows[value].tolist(),
        y=[visible_text(name) for name in titles],
        orientation="h",
        marker={"color": theme.negative},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": (rows["high"] - rows[value]).tolist(),
            "arrayminus": (rows[value] - rows["low"]).tolist(),
            "color": theme.ink,
        },
        customdata=rows[["low", "high"]].to_numpy(),
        hovertemplate="<b>%{y}</b><br>%{x:.4g}<br>95 % %{customdata[0]:.4g} to "
        "%{customdata[1]:.4g}<extra></extra>",
    )


def _need(table: pd.DataFrame, columns: list[str]) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {', '.join(missing)}; it has {', '.join(table.columns)}"
        )


def _short(value: float) -> str:
    return f"{value:.3g}" if value == value else ""


def _interval(table: pd.DataFrame, score: str, row: int) -> str:
    if f"{score}_low" not in table.columns:
        return ""
    low, high = (float(table[score + end].iloc[row]) for end in ("_low", "_high"))
    return f"<br>95 % {low:.3g} to {high:.3g}"
