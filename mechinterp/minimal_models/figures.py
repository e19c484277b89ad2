"""Figures of the minimal models: a table in, a `plotly.graph_objects.Figure` out."""

import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, sequential_scale, themed

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
    _require(landscape, "beta", "delta", "excess")
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
        _require(trajectory, "beta", "delta", "excess", "time")
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
    _require(trajectories, "time", *panels, *([label] if label else []))
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
                    line={"color": _colour(case, len(cases), theme)},
                    xaxis=f"x{axis}",
                    yaxis=f"y{axis}",
                    hovertemplate=f"time %{{x:.4g}}<br>{name} %{{y:.4g}}<extra>{text}</extra>",
                )
            )
        figure.update_layout(_panel(column, len(panels), panels[name]))
    return themed(figure, theme, title, height=420)


def bias_figure(
    table: pd.DataFrame, *, title: str = "Weak biases against length", theme: Theme = LIGHT
) -> go.Figure:
    """How do c_beta and c_delta fall with N, and where is the closed form?

    Args:
        table: what `bias_table` gave.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        Both biases against N on logarithmic axes, one line for each mu, with two standard errors;
        biases of 0 or less have no place on such an axis and are left out.

    Raises:
        InputError: a column is missing.
    """
    _require(table, "length", "mu", "c_beta", "c_beta_se", "c_delta", "c_delta_se", "closed_form")
    figure = go.Figure()
    mus = sorted(table["mu"].unique())
    for case, mu in enumerate(mus):
        for name, dash in (("c_beta", "solid"), ("c_delta", "dot")):
            rows = table[(table["mu"] == mu) & (table[name] > 0)]
            if len(rows):
                line = {"color": _colour(case, len(mus), theme), "dash": dash}
                error = {"type": "data", "array": (2 * rows[f"{name}_se"]).to_numpy()}
                figure.add_trace(_line(rows, "length", name, f"{name}, mu {mu:g}", line, error))
    first = table[table["mu"] == mus[0]]
    line = {"color": theme.ink, "dash": "dash", "width": 1}
    figure.add_trace(_line(first, "length", "closed_form", "closed form (mu 0)", line))
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": "N"}, "type": "log"},
        yaxis={"title": {"text": "nats"}, "type": "log"},
        height=460,
    )


def tau_figure(
    table: pd.DataFrame, *, title: str = "Time of the cliff", theme: Theme = LIGHT
) -> go.Figure:
    """Does the time of the cliff grow as N / ln N?

    Args:
        table: what `tau_table` gave.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        tau against N / ln N on logarithmic axes, one point for each sample and length, with the
        line of exponent 1 through the longest length.

    Raises:
        InputError: a column is missing, or no cliff was reached.
    """
    _require(table, "n_over_log", "tau", "reached", "length", "sample")
    rows = table[table["reached"]]
    if rows.empty:
        raise InputError("no cliff was reached; give the descents more steps")
    means = rows.groupby("n_over_log", as_index=False)["tau"].mean()
    means["law"] = means["tau"].iloc[-1] * means["n_over_log"] / means["n_over_log"].iloc[-1]
    figure = go.Figure(
        go.Scatter(
            x=rows["n_over_log"].to_numpy(),
            y=rows["tau"].to_numpy(),
            mode="markers",
            name="measured",
            marker={"color": theme.negative, "size": 8},
            customdata=rows[["length", "sample"]].to_numpy(),
            hovertemplate="N %{customdata[0]}, sample %{customdata[1]}<br>tau %{y:.4g}"
            "<extra></extra>",
        )
    )
    line = {"color": theme.ink, "dash": "dash", "width": 1}
    figure.add_trace(_line(means, "n_over_log", "law", "tau ~ N / ln N", line))
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": "N / ln N"}, "type": "log"},
        yaxis={"title": {"text": "tau (learning rate times steps)"}, "type": "log"},
        height=460,
    )


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


def _line(
    rows: pd.DataFrame, x: str, y: str, name: str, line: dict, error: dict | None = None
) -> go.Scatter:
    return go.Scatter(
        x=rows[x].to_numpy(),
        y=rows[y].to_numpy(),
        mode="lines" if error is None else "lines+markers",
        name=name,
        line=line,
        error_y=error,
    )


def _panel(column: int, columns: int, text: str) -> dict:
    axis = "" if column == 0 else str(column + 1)
    width = 1.0 / columns
    domain = [column * width + 0.06 * (column > 0), (column + 1) * width]
    return {
        f"xaxis{axis}": {"domain": domain, "anchor": f"y{axis}", "title": {"text": "time"}},
        f"yaxis{axis}": {"anchor": f"x{axis}", "title": {"text": text}},
    }


def _colour(case: int, cases: int, theme: Theme) -> str:
    """Colours of Okabe and Ito's kind that are in the theme, blended when there are many."""
    fixed = (theme.negative, theme.positive, theme.ink, theme.sequential[1])
    return fixed[case % len(fixed)]


def _require(table: pd.DataFrame, *columns: str) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {', '.join(missing)}; it needs {', '.join(columns)}"
        )
    if table.empty:
        raise InputError("the table is empty; give at least one row")
