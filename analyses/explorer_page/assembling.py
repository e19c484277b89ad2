"""One self-contained file: the page, its styles and scripts, plotly.js once, and the data."""

import html
from importlib.resources import files

from plotly.offline import get_plotlyjs

from analyses.explorer_data.tables import ExplorerData
from analyses.explorer_page.content import page_content
from circuits.figures.circuit_page import graph_script, graph_style, inline_json, theme_variables

SCRIPTS = (
    "data.js",
    "wording.js",
    "state.js",
    "saving.js",
    "plots.js",
    "timeline.js",
    "circuit.js",
    "side.js",
    "heatmaps.js",
    "scores.js",
    "updates.js",
    "compare.js",
    "provenance.js",
    "main.js",
)
"""In the order in which they are joined; they share one scope."""


def explorer_page(data: ExplorerData) -> str:
    """Builds the page.

    Plotly's script waits in the page as plain text and runs after the first paint, because
    compiling it takes longer than drawing the circuit.

    Args:
        data: what to show.

    Returns:
        The text of an HTML file that opens from disk and asks for nothing else.

    Raises:
        InputError: a table that cannot be packed; see `page_content`.
    """
    scripts = "\n".join([graph_script(), *(_part(name) for name in SCRIPTS)])
    parts = {
        "title": html.escape(f"{data.runs[0].name}: circuits forming"),
        "styles": "\n".join([theme_variables(), graph_style(), _part("page.css")]),
        "data": inline_json(page_content(data)),
        "scripts": f'(() => {{\n"use strict";\n{scripts}\n}})();',
        "plotly": get_plotlyjs(),
    }
    page = _part("page.html")
    for name in parts:
        head, _, page = page.partition(f"<!-- {name} -->")
        # The parts stand in the page in the order above, so none is searched for another's mark.
        parts[name] = head + parts[name]
    return "".join(parts.values()) + page


def _part(name: str) -> str:
    return (files("analyses.explorer_page") / name).read_text(encoding="utf-8")
