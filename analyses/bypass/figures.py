"""Figures of kinetics: which runs enter 2-Gen at each K, and where the predictors' losses cross."""

import math

import pandas as pd
import plotly.graph_objects as go

from analyses.line_figure import line_colour
from analyses.rows import records
from circuits.figures.theme import LIGHT, Theme, themed, visible_text


def share_figure(shares: pd.DataFrame, k_x: float, theme: Theme = LIGHT) -> go.Figure:
    """Draws the share of runs that enter 2-Gen against K, a line an arm, with K_x.

    Args:
        shares: `arm`, `k`, `entered`, `decided`, `share`.
        k_x: the static crossing; not drawn unless finite and positive.
        theme: colours and fonts.
    """
    figure = go.Figure()
    for number, (arm, group) in enumerate(shares.groupby("arm", sort=False)):
        figure.add_scatter(
            x=group["k"].to_list(),
            y=group["share"].to_list(),
            mode="lines+markers",
            name=visible_text(str(arm)),
            line={"color": line_colour(number, theme)},
            text=[f"{row['entered']} of {row['decided']}" for row in records(group)],
            hovertemplate="K %{x}<br>%{text} enter<extra></extra>",
        )
    _mark(figure, k_x, theme)
    figure.add_hline(y=0.5, line={"color": theme.ink, "dash": "dot", "width": 1})
    return themed(
        figure,
        theme,
        "Runs that enter 2-Gen",
        xaxis={"title": {"text": "K"}, "type": "log"},
        yaxis={"title": {"text": "share of decided runs"}, "range": [-0.05, 1.05]},
        height=460,
    )


def gap_figure(gaps: pd.DataFrame, k_x: float, theme: Theme = LIGHT) -> go.Figure:
    """Draws the distance of 1-Mem and of 2-Gen to the truth against K, and where they cross.

    Args:
        gaps: `k`, `one_mem`, `two_gen` (nats).
        k_x: the crossing.
        theme: colours and fonts.
    """
    figure = go.Figure()
    for number, (name, label) in enumerate((("one_mem", "1-Mem"), ("two_gen", "2-Gen"))):
        figure.add_scatter(
            x=gaps["k"].to_list(),
            y=gaps[name].to_list(),
            mode="lines+markers",
            name=label,
            line={"color": line_colour(number, theme)},
        )
    _mark(figure, k_x, theme)
    return themed(
        figure,
        theme,
        "KL to the truth on training chains, without any training",
        xaxis={"title": {"text": "K"}, "type": "log"},
        yaxis={"title": {"text": "nats"}},
        height=460,
    )


def _mark(figure: go.Figure, k_x: float, theme: Theme) -> None:
    if 0 < k_x < math.inf:
        line = {"color": theme.ink, "dash": "dash", "width": 1}
        figure.add_vline(x=k_x, line=line, annotation={"text": f"K_x {k_x:.3g}"})
