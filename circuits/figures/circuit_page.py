"""The circuit graph as part of a page: drawn by the browser, the same view wherever it stands."""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import pandas as pd

from circuits.figures.layout import PORT_OFFSETS, node_places, split_edge
from circuits.figures.theme import DARK, LIGHT, Theme

_FOLDER = "circuit_view"
_SCRIPTS = ("colours.js", "geometry.js", "graph.js")
_VIEW = """<div class="circuit-view">
<label>threshold <input type="range" min="0" max="1000" value="0"> <output></output></label>
<label><input type="checkbox"> only the edges that are enough</label>
<div class="graph" style="overflow-x: auto"></div>
<p role="status"></p>
<script type="application/json">{data}</script>
</div>
<style>:root {{ {variables} }} .circuit-view label {{ margin-right: 1.5rem; }}
{style}</style>
<script>(() => {{
"use strict";
{script}
}})();</script>"""


def circuit_view(
    table: pd.DataFrame,
    *,
    nodes: Iterable[str] = (),
    kept: Sequence[str] | None = None,
    unit: str = "nats",
    theme: Theme = LIGHT,
) -> str:
    """Which nodes write to which at one checkpoint, to explore: the explorer's view of a circuit.

    A threshold, the kept edges alone, every edge's numbers under the pointer, and on a click a
    node's ancestors and descendants. Positions are those of `circuit_figure`; width and colour grow
    with the square root of the effect.

    Args:
        table: one row an edge with `edge`, `effect`, `low`, `high`, as from `edge_effects`.
        nodes: names of nodes to draw besides those that the table mentions.
        kept: edges of a smaller circuit, to show alone on demand.
        unit: unit of the effects.
        theme: colours.

    Returns:
        A piece of HTML for `page_html(..., above=...)`; it needs nothing from elsewhere. One page
        holds one view.

    Raises:
        InputError: an edge or node has a name of another form than `L0H3->L2H1.q` or `M0`.
    """
    names = [str(name) for name in table["edge"]]
    numbers = {name: [_plain(value) for value in table[name]] for name in ("effect", "low", "high")}
    data = {"layout": graph_layout(names, nodes), "names": names, **numbers}
    data |= {"kept": None if kept is None else list(kept), "unit": unit}
    return _VIEW.format(
        data=inline_json(data),
        variables=_variables(theme),
        style=graph_style(),
        script=f"{graph_script()}\n{_part('standalone.js')}",
    )


def graph_layout(edges: Iterable[str], nodes: Iterable[str] = ()) -> dict[str, Any]:
    """Where the nodes of some edges, and further ones, stand: what the page's graph is drawn from.

    Returns:
        `places` of the nodes in node spacings, names of those that are `ported`, and `ports`.
    """
    ends = [split_edge(edge) for edge in edges]
    named = {node for source, target, _ in ends for node in (source, target)}
    return {
        "places": {name: [at.x, at.y] for name, at in node_places(named | set(nodes)).items()},
        "ported": sorted({target for _, target, port in ends if port is not None}),
        "ports": PORT_OFFSETS,
    }


def graph_script() -> str:
    """Gives the JavaScript of the circuit graph: `circuitGraph`, `drawGraph`, `effectColour`."""
    return "\n".join(_part(name) for name in _SCRIPTS)


def graph_style() -> str:
    """Gives the styles of the circuit graph, in terms of the theme's style variables."""
    return _part("graph.css")


def inline_json(value: Any) -> str:
    """Writes JSON that may stand inside a script element, whatever texts it holds."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def theme_variables() -> str:
    """Gives the colours of both themes as style variables, so that they have one source."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f':root[data-theme="light"] {{ color-scheme: light; {light} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}'
    )


def _variables(theme: Theme) -> str:
    named = {name: getattr(theme, name) for name in ("positive", "neutral", "negative", "ink")}
    named |= {"paper": theme.paper, "node": theme.node, "font": theme.font}
    named |= {f"sequential-{n}": colour for n, colour in enumerate(theme.sequential)}
    return " ".join(f"--{name}: {value};" for name, value in named.items())


def _plain(value: float) -> float | None:
    """NaN, the bounds of a single example, has no place in JSON."""
    return None if pd.isna(value) else float(value)


def _part(name: str) -> str:
    return (files("circuits.figures") / _FOLDER / name).read_text(encoding="utf-8")
