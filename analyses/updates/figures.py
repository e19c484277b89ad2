"""Figures of the weight updates: cosines over training, their nulls, norms and alignment."""

import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from analyses.line_figure import Line, line_colour, time_figure
from analyses.updates.weight_groups import MODEL
from circuits.figures.heatmap import heatmap
from circuits.figures.theme import LIGHT, Theme, themed


def cosine_figure(cosines: pd.DataFrame, averages: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the whole model's cosine at every lag, with the band of chance and momentum's level."""
    model = cosines[cosines["group"] == MODEL]
    lags = sorted(model["lag"].unique())
    table = model.pivot(index="step", columns="lag", values="cosine")
    table.columns = [f"lag {lag}" for lag in table.columns]
    first = model[model["lag"] == lags[0]].set_index("step")["sign_band"]
    own = averages[(averages["group"] == MODEL) & (averages["lag"] == lags[0])]
    wide = float(own["single_band"].iloc[0])
    table = table.assign(chance=0.0, low=-first, high=first, wide=wide, wide_low=-wide)
    table = table.reset_index()
    lines = [Line(f"lag {lag}", f"lag {lag}") for lag in lags]
    lines += [Line("chance", "chance by weight (95 %)", low="low", high="high", dash="dot")]
    if not math.isnan(wide):
        sound = "chance by scatter (95 %, sound)"
        lines.append(Line("chance", sound, low="wide_low", high="wide", dash="dash"))
    level = own["momentum"]
    return time_figure(
        table,
        lines,
        title="Do updates agree? Cosine with the update that many spans later",
        unit="cosine",
        levels={f"momentum alone, lag {lags[0]}": float(level.iloc[0])},
        theme=theme,
    )


def momentum_figure(momentum: pd.DataFrame, band: float, theme: Theme = LIGHT) -> go.Figure:
    """Draws the cosine that momentum alone gives, against the lag, for each span."""
    figure = go.Figure()
    for number, (span, rows) in enumerate(momentum.groupby("span")):
        colour, name = line_colour(number, theme), f"updates of {span} steps"
        figure.add_scatter(
            x=rows["lag"].to_list(), y=rows["analytic"].to_list(), mode="lines", name=name,
            legendgroup=name, line={"color": colour},
        )  # fmt: skip
        figure.add_scatter(
            x=rows["lag"].to_list(), y=rows["simulated"].to_list(), mode="markers",
            name=f"{name}, simulated", legendgroup=name, showlegend=False,
            marker={"color": colour},
            error_y={"array": (1.96 * rows["simulated_se"]).to_list(), "color": colour},
        )  # fmt: skip
    figure.add_hline(
        y=band,
        line={"color": theme.ink, "dash": "dot", "width": 1},
        annotation={"text": "independent updates of equal norm, 95 %", "font": {"size": 11}},
    )
    return themed(
        figure,
        theme,
        "What momentum alone gives: lines by formula, points by AdamW on noise",
        xaxis={"title": {"text": "lag (updates)"}},
        yaxis={"title": {"text": "cosine"}},
        height=420,
    )


def group_figure(
    cosines: pd.DataFrame, groups: pd.DataFrame, kinds: Sequence[str], theme: Theme = LIGHT
) -> go.Figure:
    """Draws the cosine at the shortest lag for every group of some kinds, over training."""
    names = groups[groups["kind"].isin(kinds)]["group"]
    chosen = cosines[(cosines["lag"] == cosines["lag"].min()) & cosines["group"].isin(names)]
    grid = chosen.pivot(index="group", columns="step", values="cosine").reindex(list(names))
    title = f"Cosine of neighbouring updates by {' and '.join(kinds)}"
    return heatmap(grid, title=title, unit="cosine", theme=theme)


def norm_figure(updates: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the whole model's update norm and weight norm."""
    table = updates[updates["group"] == MODEL]
    lines = [Line("update_norm", "update norm"), Line("weight_norm", "weight norm")]
    title = "How far an update moves, and how large the weights are"
    return time_figure(table, lines, title=title, unit="Euclidean norm", log=True, theme=theme)


def alignment_figure(updates: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws how far each update points to where the weights end up."""
    table = updates[updates["group"] == MODEL]
    table = table.assign(chance=0.0, low=-table["alignment_band"], high=table["alignment_band"])
    lines = [
        Line("alignment", "with the displacement"),
        Line("alignment_rest", "with the rest of it"),
        Line("chance", "chance (95 %)", low="low", high="high", dash="dot"),
    ]
    title = "Does an update point to where the weights end up?"
    return time_figure(table, lines, title=title, unit="cosine", theme=theme)
