"""Figures of the minimal models' laws: biases, time of the cliff, capacity."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed


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
    require(table, "length", "mu", "c_beta", "c_beta_se", "c_delta", "c_delta_se", "closed_form")
    figure = go.Figure()
    mus = sorted(table["mu"].unique())
    for case, mu in enumerate(mus):
        for name, dash in (("c_beta", "solid"), ("c_delta", "dot")):
            rows = table.loc[(table["mu"] == mu) & (table[name] > 0)]
            if len(rows):
                line = {"color": case_colour(case, theme), "dash": dash}
                error = {"type": "data", "array": 2 * rows[f"{name}_se"].to_numpy(dtype=float)}
                figure.add_trace(_line(rows, "length", name, f"{name}, mu {mu:g}", line, error))
    first = table.loc[table["mu"] == mus[0]]
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
    require(table, "n_over_log", "tau", "reached", "length", "sample")
    rows = table.loc[table["reached"].astype(bool)]
    if rows.empty:
        raise InputError("no cliff was reached; give the descents more steps")
    x, tau = rows["n_over_log"].to_numpy(dtype=float), rows["tau"].to_numpy(dtype=float)
    at = np.unique(x)
    law = pd.DataFrame({"n_over_log": at, "law": tau[x == at[-1]].mean() * at / at[-1]})
    figure = go.Figure(
        go.Scatter(
            x=x,
            y=tau,
            mode="markers",
            name="measured",
            marker={"color": theme.negative, "size": 8},
            customdata=rows[["length", "sample"]].to_numpy(),
            hovertemplate="N %{customdata[0]}, sample %{customdata[1]}<br>tau %{y:.4g}"
            "<extra></extra>",
        )
    )
    line = {"color": theme.ink, "dash": "dash", "width": 1}
    figure.add_trace(_line(law, "n_over_log", "law", "tau ~ N / ln N", line))
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": "N / ln N"}, "type": "log"},
        yaxis={"title": {"text": "tau (learning rate times steps)"}, "type": "log"},
        height=460,
    )


def capacity_figure(
    table: pd.DataFrame, *, title: str = "Chains memorised against size", theme: Theme = LIGHT
) -> go.Figure:
    """How does the number of memorised chains grow with the task vector and the decoder?

    Args:
        table: what `capacity` gave.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        K_c against d_task on logarithmic axes, one line for each d_hidden; the whisker reaches to
        the next K of the grid, and a triangle marks a K_c that is only a lower bound. A model that
        does not memorise even the smallest K is left out.

    Raises:
        InputError: a column is missing, or no model memorised anything.
    """
    require(table, "d_task", "d_hidden", "k_c", "next_k", "bounded")
    shown = table.loc[table["k_c"] > 0].sort_values("d_task")
    if shown.empty:
        raise InputError("no model memorised the smallest K; train longer, or add smaller K")
    figure = go.Figure()
    for case, d_hidden in enumerate(sorted(shown["d_hidden"].unique())):
        rows = shown.loc[shown["d_hidden"] == d_hidden]
        up = [
            high - low if math.isfinite(high) else 0.0
            for low, high in zip(rows["k_c"], rows["next_k"], strict=True)
        ]
        whisker = {"type": "data", "array": up, "arrayminus": [0.0] * len(up), "symmetric": False}
        trace = _line(
            rows,
            "d_task",
            "k_c",
            f"d_hidden {d_hidden}",
            {"color": case_colour(case, theme)},
            whisker,
        )
        trace.marker = {
            "size": 9,
            "symbol": ["circle" if bounded else "triangle-up" for bounded in rows["bounded"]],
        }
        figure.add_trace(trace)
    return themed(
        figure,
        theme,
        title,
        xaxis={"title": {"text": "d_task"}, "type": "log"},
        yaxis={"title": {"text": "K_c, chains"}, "type": "log"},
        height=460,
    )


def case_colour(case: int, theme: Theme) -> str:
    """Gives the colour of the n-th line of a figure; four, then they repeat."""
    fixed = (theme.negative, theme.positive, theme.ink, theme.sequential[1])
    return fixed[case % len(fixed)]


def require(table: pd.DataFrame, *columns: str) -> None:
    """Refuses a table that a figure cannot be drawn from.

    Raises:
        InputError: a column is missing, or there is no row.
    """
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {', '.join(missing)}; it needs {', '.join(columns)}"
        )
    if table.empty:
        raise InputError("the table is empty; give at least one row")


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
