"""How figures look: one frozen value that every figure takes, and the colour of an effect.

Nothing here touches plotly's global template: a theme is an argument.
"""

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go


@dataclass(frozen=True)
class Theme:
    """Colours and fonts of a figure.

    The default ends of the diverging scale are the vermilion and the blue of Okabe and Ito, which
    stay apart under the three common forms of colour blindness; the middle is a grey that is
    still visible on the paper, because a line drawn in the paper's colour would vanish.

    Attributes:
        template: name of the plotly template that the layout starts from.
        positive: colour of a large positive effect (the ablation raised the metric).
        neutral: colour of an effect of 0.
        negative: colour of a large negative effect.
        ink: text, axes and outlines.
        paper: background.
        node: fill of a node in the circuit graph.
        sequential: colours from 0 upwards for quantities that cannot be negative.
        font: CSS font family.
    """

    template: str = "plotly_white"
    positive: str = "#d55e00"
    neutral: str = "#c9c9c9"
    negative: str = "#0072b2"
    ink: str = "#222222"
    paper: str = "#ffffff"
    node: str = "#f4f4f4"
    sequential: tuple[str, ...] = ("#ffffff", "#9ecae1", "#3182bd", "#08306b")
    font: str = "system-ui, -apple-system, 'Segoe UI', sans-serif"


LIGHT = Theme()
DARK = Theme(
    template="plotly_dark",
    positive="#ff8c42",
    neutral="#5a5a5a",
    negative="#56b4e9",
    ink="#e8e8e8",
    paper="#141414",
    node="#2a2a2a",
    sequential=("#141414", "#1f4e79", "#3182bd", "#c6dbef"),
)


def effect_colour(value: float, limit: float, theme: Theme = LIGHT) -> str:
    """Gives the colour of an effect on the diverging scale that is centred on 0.

    Args:
        value: the effect.
        limit: the size of effect at which the scale ends; larger ones get the same colour.
        theme: colours to use.

    Returns:
        A colour as `#rrggbb`.
    """
    share = 0.0 if limit <= 0 else min(abs(value) / limit, 1.0)
    middle = _channels(theme.neutral)
    end = _channels(theme.positive if value >= 0 else theme.negative)
    mixed = [round(m + (e - m) * share) for m, e in zip(middle, end, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def diverging_scale(theme: Theme) -> list[list[Any]]:
    """Gives the plotly colour scale that `effect_colour` follows."""
    return [[0.0, theme.negative], [0.5, theme.neutral], [1.0, theme.positive]]


def sequential_scale(theme: Theme) -> list[list[Any]]:
    """Gives the plotly colour scale for quantities that start at 0."""
    last = len(theme.sequential) - 1
    return [[place / last, colour] for place, colour in enumerate(theme.sequential)]


def visible_text(text: str) -> str:
    """Makes a text safe for plotly, which reads labels as a small part of HTML.

    Without this a token such as `<BOS>` is taken for an unknown tag and silently dropped.
    """
    return html.escape(text, quote=False).replace("&gt;", ">")


def themed(figure: go.Figure, theme: Theme, title: str, **layout: Any) -> go.Figure:
    """Applies a theme and a title to one figure and returns that figure."""
    figure.update_layout(
        template=theme.template,
        title={"text": visible_text(title)},
        font={"family": theme.font, "color": theme.ink},
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        **layout,
    )
    return figure


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
