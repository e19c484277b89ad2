"""Figures of the curvature: extreme eigenvalues, density of the spectrum, and gradient noise."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.line_figure import Line, line_colour, time_figure
from circuits.figures.theme import LIGHT, Theme, themed

WIDTH = 0.02
"""Standard deviation of the bell that stands for a node, as a share of the spectrum's width."""


def eigenvalue_figure(points: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws both ends of the spectrum against the step, with the paper's estimates."""
    table = points.copy()
    for name in ("lambda_max", "lambda_min"):
        table[f"{name}_low"] = table[name] - table[f"{name}_residual"]
        table[f"{name}_high"] = table[name] + table[f"{name}_residual"]
    lines = [
        *(Line(n, n, low=f"{n}_low", high=f"{n}_high") for n in ("lambda_max", "lambda_min")),
        Line("paper_max", "power iteration, largest", dash="dot"),
        Line("paper_min", "shifted power iteration, smallest", dash="dot"),
    ]
    return time_figure(
        table, lines, title="Both ends of the Hessian's spectrum", unit="eigenvalue", theme=theme
    )


def density_figure(density: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the density of eigenvalues, every node of the quadrature as a narrow bell."""
    values = density["eigenvalue"].to_numpy()
    width = float(np.ptp(values)) * WIDTH or 1.0
    at = np.linspace(values.min() - 3 * width, values.max() + 3 * width, 400)
    figure = go.Figure()
    for number, (step, rows) in enumerate(density.groupby("step")):
        away = (at[:, None] - rows["eigenvalue"].to_numpy()) / width
        bells = np.exp(-0.5 * away**2) / (width * np.sqrt(2 * np.pi))
        height = np.maximum(bells @ rows["weight"].to_numpy(), 1e-9)
        figure.add_scatter(
            x=at.tolist(), y=height.tolist(), mode="lines", name=f"step {step}",
            line={"color": line_colour(number, theme)},
        )  # fmt: skip
    return themed(
        figure,
        theme,
        "Density of the Hessian's eigenvalues",
        xaxis={"title": {"text": "eigenvalue"}},
        yaxis={"title": {"text": "density (weights add up to 1)"}, "type": "log"},
        height=460,
    )


def noise_figure(directions: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the gradient noise along the sharpest and the escape direction against the step."""
    ends = directions.sort_values("index").groupby("step")["noise_ratio"].agg(["first", "last"])
    lines = [Line("first", "sharpest direction"), Line("last", "escape direction")]
    title = "Variance of the gradient between examples, along two directions"
    return time_figure(
        ends.reset_index(),
        lines,
        title=title,
        unit="times an average direction",
        levels={"average direction": 1.0},
        log=True,
        theme=theme,
    )
