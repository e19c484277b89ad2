"""The figure of a claim, drawn from its evidence alone: intervals by setting, or a law."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.ledger.claim import Judged
from analyses.line_figure import line_colour
from analyses.rows import numbers
from circuits.figures.theme import LIGHT, Theme, themed, visible_text

SPREAD = 100.0
"""Greatest over least value from which an axis is logarithmic."""


LAW_AXIS = "waiting time (steps)"


def claim_figure(one: Judged, theme: Theme = LIGHT) -> go.Figure:
    """Draws the evidence of a claim; without any, a figure that says why."""
    table = one.measured.table
    if one.measured.missing or table.empty:
        return _empty(one.reason or "no evidence", theme)
    if {"x", "time"} <= set(table.columns):
        return law_figure(table, one.measured.unit, theme, one.measured.axis or LAW_AXIS)
    return interval_figure(
        table, dict(one.measured.marks), one.measured.axis or one.measured.unit, theme
    )


def interval_figure(
    table: pd.DataFrame, marks: dict[str, float], unit: str, theme: Theme = LIGHT
) -> go.Figure:
    """Draws one number with its interval for each setting, and reference values across.

    Args:
        table: `label` and `value`, and where known `low` and `high`.
        marks: reference values by name, in the same unit.
        unit: of the values.
        theme: colours and fonts.
    """
    values = numbers(table, "value")
    bars = None
    if {"low", "high"} <= set(table.columns):
        ends = [np.abs(numbers(table, end) - values) for end in ("high", "low")]
        up, down = ([float(v) if math.isfinite(v) else 0.0 for v in end] for end in ends)
        bars = {"type": "data", "array": up, "arrayminus": down, "symmetric": False}
    figure = go.Figure(
        go.Scatter(
            x=[visible_text(str(label)) for label in table["label"]],
            y=[float(v) if math.isfinite(v) else None for v in values],
            error_y=bars,
            mode="markers",
            name="measured",
            marker={"color": line_colour(0, theme), "size": 9},
        )
    )
    for number, (name, level) in enumerate(marks.items(), 1):
        colour = line_colour(number, theme)
        figure.add_hline(y=level, line={"color": colour, "dash": "dot", "width": 1})
        figure.add_trace(
            go.Scatter(
                x=[None], y=[None], mode="lines", name=f"{visible_text(name)} {level:.3g}",
                line={"color": colour, "dash": "dot"},
            )
        )  # fmt: skip
    return themed(
        figure,
        theme,
        unit,
        xaxis={"title": {"text": ""}, "type": "category"},
        yaxis={"title": {"text": visible_text(unit)}, "type": _axis(values, [*marks.values()])},
        height=420,
    )


def law_figure(
    table: pd.DataFrame, unit: str, theme: Theme = LIGHT, axis: str = LAW_AXIS
) -> go.Figure:
    """Draws times against what varies, on logarithmic axes, a series a label.

    Args:
        table: `x`, `time` (NaN where a run ends first), `label` and `run`.
        unit: what is read off, for the title; "exponent on D" names the axis too.
        theme: colours and fonts.
        axis: what the times are, with their unit.
    """
    figure = go.Figure()
    for number, (label, group) in enumerate(table.groupby("label", sort=False)):
        reached = group[np.isfinite(numbers(group, "time"))]
        figure.add_trace(
            go.Scatter(
                x=reached["x"].to_list(),
                y=reached["time"].to_list(),
                mode="markers",
                name=visible_text(str(label)),
                marker={"color": line_colour(number, theme), "size": 8},
                text=[visible_text(str(run)) for run in reached["run"]],
                hovertemplate="%{text}<br>x %{x:.4g}<br>%{y:.4g}<extra></extra>",
            )
        )
    return themed(
        figure,
        theme,
        unit,
        xaxis={"title": {"text": unit.partition(" on ")[2] or "what varies"}, "type": "log"},
        yaxis={"title": {"text": axis}, "type": "log"},
        height=420,
    )


def _axis(values: np.ndarray, marks: list[float]) -> str:
    known = [one for one in [*values.tolist(), *marks] if math.isfinite(one)]
    wide = bool(known) and min(known) > 0 and max(known) > SPREAD * min(known)
    return "log" if wide else "linear"


def _empty(reason: str, theme: Theme) -> go.Figure:
    figure = go.Figure()
    figure.add_annotation(text=visible_text(reason), showarrow=False, x=0.5, y=0.5)
    hidden = {"visible": False, "range": [0, 1]}
    return themed(figure, theme, "no evidence", xaxis=hidden, yaxis=hidden, height=160)
