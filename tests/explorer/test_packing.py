"""Packed tables hold what the tables hold, and no text can leave its place."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest

from analyses.explorer_page.assembling import explorer_page
from analyses.explorer_page.content import page_content
from analyses.explorer_page.packing import pack_grid, pack_table, plain_json
from circuits.errors import InputError
from circuits.figures.circuit_page import inline_json, theme_variables
from circuits.figures.layout import curve, node_places, split_edge
from circuits.figures.theme import DARK, LIGHT
from tests.explorer.synthetic import edge_names, made_up_data, made_up_run

TYPES = {"f4": "<f4", "i4": "<i4", "u2": "<u2"}


def unpacked(packed):
    """A second route: by numpy, not by the page."""
    if packed["kind"] == "list":
        return packed["values"]
    if packed["kind"] == "codes":
        return [packed["names"][code] for code in unpacked(packed["codes"])]
    return np.frombuffer(base64.b64decode(packed["bytes"]), TYPES[packed["kind"]])


@pytest.mark.parametrize("rows", [3, 1000])
def test_columns_survive(rows):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "step": np.arange(rows),
            "name": [f"L0H{n % 5}" for n in range(rows)],
            "value": rng.standard_normal(rows).astype(np.float32),
            "born": pd.array([None, *range(1, rows)], dtype="Int64"),
            "kept": [n % 2 == 0 for n in range(rows)],
        }
    )
    packed = pack_table(table)
    assert packed["rows"] == rows
    columns = {name: unpacked(column) for name, column in packed["columns"].items()}
    assert list(columns) == list(table.columns)
    assert list(columns["name"]) == list(table["name"])
    assert list(columns["kept"]) == list(table["kept"])
    assert np.array_equal(columns["step"], table["step"])
    assert np.array_equal(np.float32(columns["value"]), table["value"])
    first, *others = columns["born"]
    assert first is None or np.isnan(first)
    assert list(others) == list(range(1, rows))
    json.dumps(packed, allow_nan=False)


def test_a_grid_is_ordered_by_step_and_name_and_marks_what_is_missing():
    table = pd.DataFrame({"step": [20, 10, 10], "edge": ["b", "a", "b"], "effect": [0.5, 1.0, 2.0]})
    packed = pack_grid(table, "edge", [10, 20], ["effect"])
    assert packed["names"] == ["b", "a"]
    assert unpacked(packed["effect"]) == [2.0, 1.0, 0.5, None]


def test_two_rows_for_one_step_and_name_are_refused():
    table = pd.DataFrame({"step": [10, 10], "edge": ["a", "a"], "effect": [0.5, 1.0]})
    with pytest.raises(InputError, match="two rows for one step and edge"):
        pack_grid(table, "edge", [10], ["effect"])


def test_json_inside_a_script_cannot_end_it():
    hostile = {"</script>": "<!-- <script> & '\"", "number": float("nan")}
    text = inline_json(plain_json(hostile))
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"</script>": "<!-- <script> & '\"", "number": None}


def test_the_page_holds_plotly_once_and_names_no_address():
    page = explorer_page(made_up_data(n_layers=1, n_heads=1, n_steps=3))
    assert page.count("* plotly.js v") == 1
    assert len(page) < 12_000_000
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=", page)
    assert re.findall(r"<link[^>]*>", page) == ['<link rel="icon" href="data:,">']
    assert "<!-- data -->" not in page


def test_every_number_of_the_edges_is_in_the_page():
    run = made_up_run(n_steps=6)
    (packed,) = page_content(made_up_data(n_steps=6))["runs"]
    grid = packed["settings"][0]["edges"]
    edges = run.settings[0].edges
    assert grid["names"] == edge_names(4, 4)
    for column in ("effect", "low", "high"):
        assert np.array_equal(unpacked(grid[column]), edges[column].to_numpy(np.float32))


def test_the_layout_is_that_of_the_figures():
    names = edge_names(2, 3)
    layout = page_content(made_up_data(n_layers=2, n_heads=3, n_steps=3))["runs"][0]["settings"][0][
        "layout"
    ]
    nodes = {node for edge in names for node in split_edge(edge)[:2]}
    places = node_places(nodes)
    assert {name: tuple(place) for name, place in layout["places"].items()} == {
        name: (place.x, place.y) for name, place in places.items()
    }


def test_the_curve_of_the_page_is_that_of_the_figure(drawn):
    """The handles of the page's curves, by its own functions, in node spacings."""
    layout = page_content(made_up_data(n_steps=3))["runs"][0]["settings"][0]["layout"]
    # Straight up in one column, over three rows: the figure bends it aside.
    start, end = (node_places(layout["places"])[name] for name in ("L0H3", "L2H3"))
    xs, _ = curve(start, end, n_points=3)
    aside = xs[1] - start.x
    path = drawn.at("#step=8000").locator('#circuit path[data-edge="L0H3->L2H3.k"]')
    left, middle, unit = path.evaluate(
        """path => { const at = (share) => path.getPointAtLength(path.getTotalLength() * share).x;
            const x = (name) => Number(document.querySelector(
                `#circuit [data-node=${name}] text`).getAttribute("x"));
            return [at(0), at(0.5), x("L0H1") - x("L0H0")]; }"""
    )
    assert aside > 0.5
    assert (middle - left) / unit == pytest.approx(aside, abs=0.02)


def test_both_themes_give_every_colour():
    styles = theme_variables()
    for theme in (LIGHT, DARK):
        for colour in (theme.positive, theme.negative, theme.neutral, *theme.sequential):
            assert styles.count(f"{colour};") >= 2
