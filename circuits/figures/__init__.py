"""Figures: functions from a table to a `plotly.graph_objects.Figure`, and one that writes them."""

from circuits.figures.attention import attention_figure
from circuits.figures.circuit_graph import circuit_figure, strongest
from circuits.figures.circuit_page import circuit_view
from circuits.figures.heatmap import head_bar, head_grid, heatmap
from circuits.figures.layout import Place, node_places
from circuits.figures.page import page_html, write_html
from circuits.figures.theme import DARK, LIGHT, Theme

__all__ = [
    "DARK",
    "LIGHT",
    "Place",
    "Theme",
    "attention_figure",
    "circuit_figure",
    "circuit_view",
    "head_bar",
    "head_grid",
    "heatmap",
    "node_places",
    "page_html",
    "strongest",
    "write_html",
]
