"""Curves with intervals: signals over training, a probe over the context, a loss over the rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed, visible_text


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        value: column of the line.
        name: in the legend.
        low: column of the lower end of its interval, if it has one.
        high: column of the upper end.
    """

    value: str
    name: str
    low: str | None = None
    high: str | None = None


PROBE = (
    Curve("accuracy", "nearest task vector", "low", "high"),
    Curve("best", "exact posterior", "best_low", "best_high"),
    Curve("chance", "chance"),
)
"""Curves of the table of `probe_task_vectors` against `position`; "best" may be missing."""

RANK = (
    Curve("effect", "principal axes of the task vectors", "low", "high"),
    Curve("random", "random axes", "random_low", "random_high"),
)
"""Curves of the table of `rank_curve` against `rank`."""


def curve_figure(
    table: pd.DataFrame,
    x: str,
    curves: Sequence[Curve],
    *,
    title: str,
    unit: str,
    theme: Theme = LIGHT,
) -> go.Figure:
    """How do a few quantities change along an axis?

    Args:
        table: one row a point.
        x: column of the axis.
        curves: what to draw, such as `PROBE` or `RANK`; a curve whose column the table lacks is
            left out, as long as one is there.
        title: heading of the figure.
        unit: of the vertical axis.
        theme: colours and fonts.

    Returns:
        Lines with bands over their intervals.

    Raises:
        InputError: no column for the axis, or for any curve.
    """
    present = [curve for curve in curves if curve.value in table.columns]
    if x not in table.columns or not present:
        wanted = ", ".join([x, *(curve.value for curve in curves)])
        raise InputError(
            f"the table has {', '.join(table.columns)}; a curve needs {x} and one of {wanted}"
        )
    figure = go.Figure()
    for curve, colour in zip(present, _colours(theme, len(present)), strict=True):
        names = [] if curve.low is None or curve.high is None else [curve.low, curve.high]
        bounds = [_numbers(table, name) for name in names]
        _draw(figure, _numbers(table, x), _numbers(table, curve.value), bounds, curve.name, colour)
    return _finished(figure, x, title, unit, theme)


def onset_figure(
    series: pd.DataFrame,
    onsets: pd.DataFrame,
    *,
    title: str = "When does each signal leave its noise?",
    theme: Theme = LIGHT,
) -> go.Figure:
    """When does each signal leave its noise for good?

    Every signal is drawn from its value at the first step (0) to that at the last (1), so that
    nats and shares share an axis; the star is its onset.

    Args:
        series: `step`, `signal`, `value`, `low`, `high`, as given to `onsets`.
        onsets: what `onsets` made of it.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        One line a signal with its interval, and one star a signal that has an onset.

    Raises:
        InputError: an empty series.
    """
    if series.empty:
        raise InputError("the series for an onset figure is empty; give at least one step")
    figure = go.Figure()
    when = dict(zip(onsets["signal"], onsets["onset"], strict=True))
    signals = list(dict.fromkeys(series["signal"]))
    for signal, colour in zip(signals, _colours(theme, len(signals)), strict=True):
        one = pd.DataFrame(series[series["signal"] == signal]).sort_values("step")
        steps, value = _numbers(one, "step"), _numbers(one, "value")
        scale = (value[-1] - value[0]) or 1.0
        value, low, high = (
            [(x - value[0]) / scale for x in _numbers(one, name)]
            for name in ("value", "low", "high")
        )
        _draw(figure, steps, value, [low, high], signal, colour)
        onset = when.get(signal)
        if onset is not None and not pd.isna(onset):
            star = {"symbol": "star", "size": 13, "color": colour}
            figure.add_scatter(
                x=[int(onset)], y=[value[steps.index(float(onset))]], mode="markers", marker=star,
                hovertemplate=f"{visible_text(signal)}: onset %{{x}}<extra></extra>",
                showlegend=False, legendgroup=signal,
            )  # fmt: skip
    return _finished(figure, "step", title, "share of the way from first to last value", theme)


def _draw(
    figure: go.Figure,
    x: list[float],
    value: list[float],
    bounds: list[list[float]],
    name: str,
    colour: str,
) -> None:
    if bounds:
        figure.add_scatter(
            x=x + x[::-1], y=bounds[0] + bounds[1][::-1], fill="toself", fillcolor=colour,
            opacity=0.18, line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=name,
        )  # fmt: skip
    figure.add_scatter(
        x=x, y=value, mode="lines+markers", name=visible_text(name), line={"color": colour},
        marker={"size": 5}, legendgroup=name,
    )  # fmt: skip


def _numbers(table: pd.DataFrame, column: str) -> list[float]:
    return table[column].to_numpy(dtype=float).tolist()


def _finished(figure: go.Figure, x: str, title: str, unit: str, theme: Theme) -> go.Figure:
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": visible_text(x)}},
        yaxis={"title": {"text": visible_text(unit)}},
        margin={"l": 70, "r": 20, "t": 60, "b": 50},
    )


def _colours(theme: Theme, n: int) -> list[str]:
    """Colours of Okabe and Ito that are apart from both papers, after the theme's own two."""
    others = ["#009e73", "#cc79a7", "#b8860b", "#7a6fbe", "#5f9ea0", "#a05a2c", "#8a8a8a"]
    palette = [theme.negative, theme.positive, *others]
    return [palette[i % len(palette)] for i in range(n)]
