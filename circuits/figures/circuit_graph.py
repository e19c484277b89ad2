"""The circuit graph: nodes in rows by layer, one line an edge, width and colour by effect."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from circuits.errors import InputError
from circuits.figures.layout import PORT_OFFSETS, Place, curve, node_places, split_edge
from circuits.figures.theme import (
    LIGHT,
    Theme,
    diverging_scale,
    effect_colour,
    themed,
    visible_text,
)

_COLUMNS = ("edge", "effect", "low", "high")
_FAINT, _SOLID = 0.18, 0.9
_THIN, _THICK = 0.6, 7.0
_FOOT, _PORT_DROP = 0.2, 0.27
_ROW_PIXELS, _COLUMN_PIXELS = 92, 150


@dataclass(frozen=True)
class _Line:
    """One edge to draw."""

    edge: str
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class _Scale:
    """How an effect becomes width and colour."""

    limit: float
    unit: str
    theme: Theme


def circuit_figure(
    table: pd.DataFrame,
    *,
    nodes: Iterable[str] | None = None,
    threshold: float = 0.0,
    top: int | None = None,
    limit: float | None = None,
    title: str = "Circuit",
    unit: str = "nats",
    theme: Theme = LIGHT,
) -> go.Figure:
    """Which nodes write to which, how much each connection matters, and which way?

    Layers run from bottom to top. An edge is as wide and as far from grey as its effect is large,
    orange when cutting it raised the metric and blue when it lowered it; an edge whose interval
    contains 0 is drawn faint. Every point of an edge tells its name, effect and interval under
    the pointer. Heads carry their q, k and v ports when the table has such readers.

    Args:
        table: one row an edge with the columns `edge`, `effect`, `low`, `high`, as from
            `edge_effects`.
        nodes: names of all nodes of the graph, which fix where each is drawn; those that the
            table mentions if not given.
        threshold: draw only edges with an absolute effect of at least this.
        top: draw only this many edges, those with the largest absolute effects.
        limit: absolute effect at which width and colour are full; the largest one of the whole
            table if not given. Pass one value for all steps to compare checkpoints.
        title: heading of the figure.
        unit: unit of the effects, shown under the pointer and on the scale.
        theme: colours and fonts.

    Returns:
        A figure with one trace an edge (named after it, weakest first), one for the ports if
        there are any, one for the nodes and one for the scale.

    Raises:
        InputError: if a column is missing, an effect is not a finite number, an edge is not a
            name of the form `L0H3->L2H1.q`, or an edge mentions a node that `nodes` lacks.
    """
    _check_table(table)
    ends = {edge: split_edge(edge) for edge in table["edge"]}
    mentioned = {node for source, target, _ in ends.values() for node in (source, target)}
    places = node_places(mentioned if nodes is None else nodes)
    _check_known(mentioned, places)
    sizes = [abs(float(effect)) for effect in table["effect"]]
    scale = _Scale(max(sizes, default=0.0) if limit is None else limit, unit, theme)
    drawn = strongest(table, threshold=threshold, top=top)
    columns = [drawn[name].tolist() for name in _COLUMNS]
    traces = [_edge_trace(_Line(*row), places, scale) for row in zip(*columns, strict=True)]
    ported = sorted({target for _, target, port in ends.values() if port is not None})
    if ported:
        traces.append(_port_trace(ported, places, theme))
    traces.append(_node_trace(places, drawn, theme))
    traces.append(_scale_trace(scale))
    return _framed(go.Figure(traces), places, title, theme)


def strongest(
    table: pd.DataFrame, *, threshold: float = 0.0, top: int | None = None
) -> pd.DataFrame:
    """Which rows have the largest absolute effects, weakest first?

    Args:
        table: any table with an `effect` column.
        threshold: keep rows with an absolute effect of at least this.
        top: keep only this many.

    Returns:
        The kept rows, ordered from the smallest to the largest absolute effect; rows of equal
        effect keep their order.

    Raises:
        InputError: if `top` or `threshold` is negative.
    """
    if threshold < 0 or (top is not None and top < 0):
        raise InputError(f"threshold={threshold} and top={top} were given; both must be 0 or more")
    sizes = table["effect"].abs().to_numpy(dtype=float)
    order = np.argsort(-sizes, kind="stable")
    kept = order[sizes[order] >= threshold][:top]
    return table.iloc[kept[::-1]]


def _check_table(table: pd.DataFrame) -> None:
    missing = [column for column in _COLUMNS if column not in table.columns]
    if missing:
        raise InputError(
            f"the edge table has no column {', '.join(missing)}; "
            f"it needs {', '.join(_COLUMNS)}, as edge_effects gives them"
        )
    wild = table.loc[[not math.isfinite(value) for value in table["effect"]], "edge"]
    if len(wild):
        raise InputError(
            f"the effect of {wild.iloc[0]} is not a finite number ({len(wild)} such rows); "
            "drop these rows or look for the metric value that is not finite"
        )


def _check_known(mentioned: set[str], places: dict[str, Place]) -> None:
    unknown = sorted(mentioned - set(places))
    if unknown:
        raise InputError(
            f"the edge table mentions {', '.join(unknown)}, which is not among the nodes given "
            f"({', '.join(places)}); pass the nodes of the same graph"
        )


def _anchor(place: Place, port: str | None) -> Place:
    """Edges end at the port of a head, or at the foot of any other node."""
    if port is None:
        return Place(place.x, place.y - _FOOT)
    return Place(place.x + PORT_OFFSETS[port], place.y - _PORT_DROP)


def _edge_trace(line: _Line, places: dict[str, Place], scale: _Scale) -> go.Scatter:
    source, target, port = split_edge(line.edge)
    start = places[source]
    xs, ys = curve(Place(start.x, start.y + _FOOT), _anchor(places[target], port))
    share = 0.0 if scale.limit <= 0 else min(abs(line.effect) / scale.limit, 1.0)
    in_noise = line.low <= 0.0 <= line.high
    return go.Scatter(
        x=xs,
        y=ys,
        mode="lines",
        name=line.edge,
        line={
            "width": _THIN + (_THICK - _THIN) * share,
            "color": effect_colour(line.effect, scale.limit, scale.theme),
        },
        opacity=_FAINT if in_noise else _SOLID,
        hovertemplate=_hover(line, scale.unit, in_noise) + "<extra></extra>",
        showlegend=False,
    )


def _hover(line: _Line, unit: str, in_noise: bool) -> str:
    """Name, value and interval; one example alone has no interval."""
    text = f"<b>{line.edge}</b><br>{line.effect:+.4g} {visible_text(unit)}<br>"
    if math.isnan(line.low) or math.isnan(line.high):
        return text + "no interval"
    text += f"95 % {line.low:+.4g} to {line.high:+.4g}"
    return text + ("<br>interval contains 0" if in_noise else "")


def _port_trace(nodes: list[str], places: dict[str, Place], theme: Theme) -> go.Scatter:
    spots = [(node, port, _anchor(places[node], port)) for node in nodes for port in PORT_OFFSETS]
    return go.Scatter(
        x=[spot.x for _, _, spot in spots],
        y=[spot.y for _, _, spot in spots],
        mode="markers+text",
        name="ports",
        text=[port for _, port, _ in spots],
        textfont={"size": 8, "color": theme.ink},
        marker={
            "symbol": "circle",
            "size": 11,
            "color": theme.node,
            "line": {"width": 1, "color": theme.ink},
        },
        hovertext=[f"{node}.{port}" for node, port, _ in spots],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )


def _node_trace(places: dict[str, Place], drawn: pd.DataFrame, theme: Theme) -> go.Scatter:
    """Nodes keep their place when no edge of theirs is drawn, but step back."""
    ends = [split_edge(edge) for edge in drawn["edge"]]
    out_of = {name: sum(source == name for source, _, _ in ends) for name in places}
    into = {name: sum(target == name for _, target, _ in ends) for name in places}
    return go.Scatter(
        x=[place.x for place in places.values()],
        y=[place.y for place in places.values()],
        mode="markers+text",
        name="nodes",
        text=list(places),
        textfont={"size": 11, "color": theme.ink},
        marker={
            "symbol": "square",
            "size": 36,
            "color": theme.node,
            "opacity": [1.0 if out_of[name] + into[name] else 0.35 for name in places],
            "line": {"width": 1.2, "color": theme.ink},
        },
        hovertext=[f"{name}: {into[name]} edges in, {out_of[name]} out" for name in places],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )


def _scale_trace(scale: _Scale) -> go.Scatter:
    """A trace without points whose only purpose is the colour bar."""
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        name="scale",
        marker={
            "color": [0.0],
            "cmin": -(scale.limit or 1.0),
            "cmax": scale.limit or 1.0,
            "colorscale": diverging_scale(scale.theme),
            "showscale": True,
            "colorbar": {"title": {"text": f"effect, {visible_text(scale.unit)}"}, "thickness": 14},
        },
        hoverinfo="skip",
        showlegend=False,
    )


def _framed(figure: go.Figure, places: dict[str, Place], title: str, theme: Theme) -> go.Figure:
    """Fixes axes and size from the places alone, so that figures of one model can be overlaid."""
    xs = [place.x for place in places.values()] or [0.0]
    ys = [place.y for place in places.values()] or [0.0]
    hidden = {"visible": False, "fixedrange": False}
    return themed(
        figure,
        theme,
        title,
        xaxis={**hidden, "range": [min(xs) - 0.9, max(xs) + 0.9]},
        yaxis={**hidden, "range": [min(ys) - 0.6, max(ys) + 0.6]},
        width=max(560, round(_COLUMN_PIXELS * (max(xs) - min(xs) + 2.0))),
        height=max(360, round(_ROW_PIXELS * (max(ys) - min(ys) + 2.0))),
        hovermode="closest",
        margin={"l": 20, "r": 20, "t": 60, "b": 20},
    )
