"""The attention pattern of every head, tokens on both axes, with a head picker."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, sequential_scale, themed, visible_text


def attention_figure(
    patterns: Mapping[str, Float[Tensor, "query_pos key_pos"]],
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    title: str = "Attention patterns",
    theme: Theme = LIGHT,
) -> go.Figure:
    """Where does each head look?

    Args:
        patterns: attention of each head, under its name.
        tokens: one label a query position (equal labels are told apart by their position).
        keys: one label a key position, if they differ from those of the queries.
        title: heading of the figure.
        theme: colours and fonts.

    Returns:
        A figure with one heat map a head, the first one visible, and a menu to pick another. All
        share the scale from 0 to 1.

    Raises:
        InputError: if no pattern is given or a label is missing.
    """
    if not patterns:
        raise InputError("no attention pattern was given; give at least one head")
    rows = _numbered(tokens)
    columns = _numbered(tokens if keys is None else keys)
    for head, pattern in patterns.items():
        if tuple(pattern.shape) != (len(rows), len(columns)):
            raise InputError(
                f"the pattern of {head} has shape {tuple(pattern.shape)} but there are "
                f"{len(rows)} query and {len(columns)} key labels; give one label a position"
            )
    traces = [
        _pattern_trace(pattern.detach().cpu().float().numpy(), head, rows, columns, first, theme)
        for first, (head, pattern) in zip(
            [True] + [False] * (len(patterns) - 1), patterns.items(), strict=True
        )
    ]
    side = 26 * max(len(rows), len(columns))
    return themed(
        go.Figure(traces),
        theme,
        title,
        xaxis={"title": {"text": "key (looked at)"}, "type": "category", "side": "bottom"},
        yaxis={"title": {"text": "query"}, "type": "category", "autorange": "reversed"},
        updatemenus=[_picker(list(patterns))],
        width=max(480, 220 + side),
        height=max(440, 200 + side),
        margin={"l": 90, "r": 20, "t": 90, "b": 80},
    )


def _pattern_trace(
    grid: np.ndarray, head: str, rows: list[str], columns: list[str], visible: bool, theme: Theme
) -> go.Heatmap:
    return go.Heatmap(
        z=grid,
        x=columns,
        y=rows,
        name=head,
        zmin=0.0,
        zmax=1.0,
        visible=visible,
        colorscale=sequential_scale(theme),
        colorbar={"title": {"text": "attention"}, "thickness": 14},
        hovertemplate=f"{head}<br>%{{y}} looks at %{{x}}<br>%{{z:.3f}}<extra></extra>",
        xgap=1,
        ygap=1,
    )


def _picker(heads: list[str]) -> dict[str, object]:
    buttons = [
        {
            "label": head,
            "method": "restyle",
            "args": [{"visible": [other == head for other in heads]}],
        }
        for head in heads
    ]
    return {"buttons": buttons, "x": 0.0, "xanchor": "left", "y": 1.12, "yanchor": "top"}


def _numbered(labels: Sequence[str]) -> list[str]:
    """Adds the position, because a category axis would merge two equal tokens into one."""
    return [f"{place} {visible_text(label)}" for place, label in enumerate(labels)]
