"""The figure most answers need: quantities against the training step, with bands and marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed, visible_text


@dataclass(frozen=True)
class Line:
    """One quantity of a table: its column, what to call it, and where its interval is."""

    column: str
    label: str
    low: str | None = None
    """Column of the lower end; with `high`, a band is drawn."""
    high: str | None = None
    se: str | None = None
    """Column of the standard error; the band is then 1.96 of them wide on either side."""
    dash: str = "solid"


def time_figure(
    table: pd.DataFrame,
    lines: Sequence[Line],
    *,
    title: str,
    unit: str,
    levels: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None,
    log: bool = False,
    theme: Theme = LIGHT,
) -> go.Figure:
    """How do these quantities change over training?

    Args:
        table: one row a step, with the column `step` and those of the lines.
        lines: what to draw.
        title: heading of the figure.
        unit: unit of all the quantities.
        levels: horizontal reference lines by name.
        marks: steps to mark by a vertical line, by name; those that are not finite are left out.
        log: logarithmic vertical axis.
        theme: colours and fonts.

    Returns:
        A figure with one line, and where there is an interval one band, for each quantity.

    Raises:
        InputError: a column is missing or the table is empty.
    """
    needed = ["step", *(line.column for line in lines)]
    missing = [column for column in needed if column not in table.columns]
    if missing or table.empty:
        lack = f"no column {', '.join(missing)}" if missing else "no rows"
        raise InputError(f"the table has {lack}; the figure needs rows with {', '.join(needed)}")
    figure = go.Figure()
    for number, line in enumerate(lines):
        _band(figure, table, line, line_colour(number, theme))
        figure.add_trace(_drawn(table, line, line_colour(number, theme)))
    for name, level in (levels or {}).items():
        figure.add_trace(_level(table, name, level, theme))
    for name, step in (marks or {}).items():
        if step < float("inf"):
            figure.add_vline(
                x=step,
                line={"color": theme.ink, "width": 1, "dash": "dash"},
                annotation={"text": visible_text(name), "font": {"size": 11}, "textangle": -90},
            )
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": "training step"}},
        yaxis={"title": {"text": visible_text(unit)}, "type": "log" if log else "linear"},
        height=460,
    )


def line_colour(number: int, theme: Theme = LIGHT) -> str:
    """Gives the colour of a line: the theme's own, then the rest of Okabe and Ito's palette."""
    colours = (theme.negative, theme.positive, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    return colours[number % len(colours)]


def _drawn(table: pd.DataFrame, line: Line, colour: str) -> go.Scatter:
    return go.Scatter(
        x=table["step"].to_list(),
        y=table[line.column].to_list(),
        mode="lines+markers",
        name=visible_text(line.label),
        legendgroup=line.label,
        marker={"size": 4},
        line={"color": colour, "dash": line.dash},
        hovertemplate=f"step %{{x}}<br>%{{y:.4g}}<extra>{visible_text(line.label)}</extra>",
    )


def _level(table: pd.DataFrame, name: str, level: float, theme: Theme) -> go.Scatter:
    """A trace rather than a shape: plotly misplaces a shape's label on a logarithmic axis."""
    return go.Scatter(
        x=[table["step"].min(), table["step"].max()],
        y=[level, level],
        mode="lines",
        name=visible_text(name),
        line={"color": theme.ink, "width": 1, "dash": "dot"},
    )


def _band(figure: go.Figure, table: pd.DataFrame, line: Line, colour: str) -> None:
    """Fills between the ends of the interval; the two edges themselves are invisible."""
    if line.se is not None:
        half = 1.96 * table[line.se]
        low, high = table[line.column] - half, table[line.column] + half
    elif line.low is not None and line.high is not None:
        low, high = table[line.low], table[line.high]
    else:
        return
    for edge, fill in ((low, None), (high, "tonexty")):
        figure.add_trace(
            go.Scatter(
                x=table["step"].to_list(),
                y=edge.to_list(),
                mode="lines",
                line={"width": 0, "color": colour},
                fill=fill,
                opacity=0.25,
                showlegend=False,
                legendgroup=line.label,
                hoverinfo="skip",
            )
        )
