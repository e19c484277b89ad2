"""The figure of scaling: times against what varies, with the fitted laws."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.laws.points import READINGS
from analyses.line_figure import line_colour
from analyses.rows import Row, kept, numbers, records
from circuits.figures.theme import LIGHT, Theme, themed, visible_text

X_NAMES = {
    "k": "K",
    "d": "D = K n_b",
    "n_over_log": "N / ln N",
    "length": "N",
    "n_states": "C",
    "lr": "learning rate",
    "batch": "batch size",
}
"""How the axis is called."""


def scaling_figure(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    diverging: pd.DataFrame,
    x: str,
    theme: Theme = LIGHT,
) -> go.Figure:
    """Draws the times against x on logarithmic axes, with every fitted law.

    Args:
        points: one row a run: `run`, `x`, `seed`, `paper`, `sound`, `last`.
        fits: what `power_law` gave, a row a `reading`.
        diverging: what `diverging_time` gave, likewise; may be empty.
        x: name of what varies.
        theme: colours and fonts.
    """
    figure = go.Figure()
    for number, reading in enumerate(READINGS):
        used = kept(points, np.isfinite(numbers(points, reading)))
        figure.add_trace(
            go.Scatter(
                x=used["x"].to_list(),
                y=used[reading].to_list(),
                mode="markers",
                name=reading,
                marker={"color": line_colour(number, theme), "size": 8},
                text=[visible_text(f"{row['run']} ({row['seed']})") for row in records(used)],
                hovertemplate="%{text}<br>x %{x:g}<br>step %{y:.0f}<extra></extra>",
            )
        )
        grid = np.geomspace(points["x"].min(), points["x"].max(), 60)
        for fit in _of(fits, reading):
            law = fit["amplitude"] * grid ** fit["exponent"]
            label = f"{reading}: exponent {fit['exponent']:.2f}"
            figure.add_trace(_law(grid, law, label, line_colour(number, theme), "solid"))
        for fit in _of(diverging, reading):
            law = np.exp(fit["log_amplitude"] - fit["gamma"] * np.log(fit["critical"] - grid))
            label = f"{reading}: K* {fit['critical']:.3g}, gamma {fit['gamma']:.2f}"
            figure.add_trace(_law(grid, law, label, line_colour(number, theme), "dash"))
    return themed(
        figure,
        theme,
        "Time against what varies",
        xaxis={"title": {"text": X_NAMES.get(x, x)}, "type": "log"},
        yaxis={"title": {"text": "training steps"}, "type": "log"},
        height=460,
    )


def _of(table: pd.DataFrame, reading: str) -> list[Row]:
    return [row for row in records(table) if row["reading"] == reading]


def _law(grid: np.ndarray, law: np.ndarray, label: str, colour: str, dash: str) -> go.Scatter:
    line = {"color": colour, "dash": dash, "width": 1}
    return go.Scatter(x=grid.tolist(), y=law.tolist(), mode="lines", name=label, line=line)
