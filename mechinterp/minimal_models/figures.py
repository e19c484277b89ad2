"""Figures of the minimal models: a table in, a `plotly.graph_objects.Figure` out.

Those over the scalars beta and delta are here; those over length and size in `law_figures`.
"""

import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, sequential_scale, themed
from mechinterp.minimal_models.law_figures import (
    bias_figure,
    capacity_figure,
    case_colour,
    require,
    tau_figure,
)

__all__ = [
    "bias_figure",
    "capacity_figure",
    "landscape_figure",
    "tau_figure",
    "trajectory_figure",
]

PATH_LIFT = 0.003
"""Nats that a path is drawn above the surface, lest it vanish in it."""


def landscape_figure(
    landscape: pd.DataFrame,
    trajectory: pd.DataFrame | None = None,
    *,
    title: str = "Loss of the symmetric model over its two scalars",
    theme: Theme = LIGHT,
) -> go.Figure:
    """Where are plateau, cliff and valley, and which way does gradient descent take?

    Args:
        landscape: one row for each `beta` and `delta` of a full grid, with `excess` (nats).
        trajectory: what `descend` gave on the same sample; drawn on the surface if given.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        A surface that can be turned, with beta and delta on the floor.

    Raises:
        InputError: a column is missing, or the grid has holes.
    """
    require(landscape, "beta", "delta", "excess")
    grid = landscape.pivot(index="delta", columns="beta", values="excess")
    if grid.isna().to_numpy().any():
        raise InputError("the landscape has holes; give every delta for every beta")
    figure = go.Figure(
        go.Surface(
            x=grid.columns.to_numpy(),
            y=grid.index.to_numpy(),
            z=grid.to_numpy(),
            colorscale=sequential_scale(theme),
            colorbar={"title": {"text": "nats"}, "thickness": 14},
            hovertemplate="beta %{x:.2f}<br>delta %{y:.2f}<br>%{z:.4f} nats<extra></extra>",
        )
    )
    if trajectory is not None:
        require(trajectory, "beta", "delta", "excess", "time")
        figure.add_trace(_path(trajectory, theme))
    axes = {"x": "beta (matching)", "y": "delta (previous state)", "z": "KL to the truth, nats"}
    scene = {f"{axis}axis": {"title": {"text": text}} for axis, text in axes.items()}
    return themed(figure, theme, title, scene=scene, height=640, showlegend=False)


def trajectory_figure(
    trajectories: pd.DataFrame,
    *,
    label: str | None = None,
    title: str = "Gradient descent from 1-Gen: linear growth, then a cliff",
    theme: Theme = LIGHT,
) -> go.Figure:
    """How do beta, delta and the loss move in time?

    Args:
        trajectories: what `descend` gave; several one below the other when `label` names them.
        label: the column that tells them apart.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        Three panels over one time axis: beta, delta, KL to the truth (nats).

    Raises:
        InputError: a column is missing.
    """
    panels = {"beta": "beta", "delta": "delta", "excess": "KL to the truth, nats"}
    require(trajectories, "time", *panels, *([label] if label else []))
    cases = list(trajectories.groupby(label, sort=False)) if label else [("", trajectories)]
    figure = go.Figure()
    for column, name in enumerate(panels):
        axis = "" if column == 0 else str(column + 1)
        for case, (text, path) in enumerate(cases):
            figure.add_trace(
                go.Scatter(
                    x=path["time"].to_numpy(),
                    y=path[name].to_numpy(),
                    mode="lines",
                    name=str(text),
                    legendgroup=str(text),
                    showlegend=bool(label) and column == 0,
                    line={"color": case_colour(case, theme)},
                    xaxis=f"x{axis}",
                    yaxis=f"y{axis}",
                    hovertemplate=f"time %{{x:.4g}}<br>{name} %{{y:.4g}}<extra>{text}</extra>",
                )
            )
        figure.update_layout(_panel(column, len(panels), panels[name]))
    return themed(figure, theme, title, height=420)


def _path(trajectory: pd.DataFrame, theme: Theme) -> go.Scatter3d:
    return go.Scatter3d(
        x=trajectory["beta"].to_numpy(),
        y=trajectory["delta"].to_numpy(),
        z=trajectory["excess"].to_numpy() + PATH_LIFT,
        mode="lines+markers",
        line={"color": theme.positive, "width": 6},
        marker={"size": 2, "color": theme.positive},
        customdata=trajectory["time"].to_numpy(),
        hovertemplate="time %{customdata:.4g}<br>beta %{x:.3f}<br>delta %{y:.3f}<br>"
        "%{z:.4f} nats<extra>gradient descent</extra>",
    )


def _panel(column: int, columns: int, text: str) -> dict:
    axis = "" if column == 0 else str(column + 1)
    width = 1.0 / columns
    domain = [column * width + 0.06 * (column > 0), (column + 1) * width]
    return {
        f"xaxis{axis}": {"domain": domain, "anchor": f"y{axis}", "title": {"text": "time"}},
        f"yaxis{axis}": {"anchor": f"x{axis}", "title": {"text": text}},
    }
