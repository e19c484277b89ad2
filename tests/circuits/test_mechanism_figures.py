"""Figures of mechanisms: what is drawn is what the table says."""

import pandas as pd
import pytest

from circuits.errors import InputError
from circuits.figures.curves import PROBE, RANK, curve_figure, onset_figure
from circuits.figures.mechanisms import bar_figure, score_figure
from circuits.figures.theme import DARK
from circuits.onset import onsets

HEADS = pd.DataFrame(
    {
        "head": ["L0H0", "L0H1"],
        "value_patch": [4.0, -1.0],
        "value_patch_low": [3.0, -1.5],
        "value_patch_high": [5.0, -0.5],
        "copying": [0.5, float("nan")],
    }
)


def test_scores_have_their_own_scales_and_show_their_numbers():
    figure = score_figure(HEADS, ["value_patch", "copying"], title="Selector")
    grid = figure.data[0]
    assert list(grid.x) == ["L0H0", "L0H1"]
    assert list(grid.z[0]) == [1.0, 0.25]
    assert grid.z[1][0] == 1.0
    assert [list(row) for row in grid.text] == [["4", "-1"], ["0.5", ""]]
    assert grid.customdata[0][0] == "<br>95 % 3 to 5"
    assert grid.customdata[1][0] == ""


def test_bars_carry_whiskers_marks_and_joined_labels():
    table = pd.DataFrame(
        {
            "insert": ["target", "own"],
            "reader": ["M1", "M1"],
            "fraction": [0.9, 0.1],
            "low": [0.8, 0.0],
            "high": [1.0, 0.3],
        }
    )
    figure = bar_figure(
        table, ["insert", "reader"], "fraction", title="Patch", unit="fraction", marks=(0.0, 1.0)
    )
    bars = figure.data[0]
    assert list(bars.y) == ["own → M1", "target → M1"]
    assert list(bars.error_x.array) == pytest.approx([0.2, 0.1])
    assert list(bars.error_x.arrayminus) == pytest.approx([0.1, 0.1])
    assert [shape.x0 for shape in figure.layout.shapes] == [0.0, 1.0]


def test_curves_are_drawn_with_bands_and_missing_ones_left_out():
    table = pd.DataFrame(
        {"position": [0, 1], "accuracy": [0.2, 0.8], "low": [0.1, 0.7], "high": [0.3, 0.9]}
    ).assign(chance=0.25)
    figure = curve_figure(table, "position", PROBE, title="Probe", unit="accuracy", theme=DARK)
    assert [trace.name for trace in figure.data if trace.name] == ["nearest task vector", "chance"]
    assert list(figure.data[0].y) == [0.1, 0.7, 0.9, 0.3]
    assert figure.layout.paper_bgcolor == DARK.paper
    with pytest.raises(InputError, match=r"a curve needs rank and one of rank, effect, random"):
        curve_figure(table, "rank", RANK, title="Rank", unit="nats")


def test_onsets_are_starred_where_the_table_has_them():
    rows = [(s, "a", v, v - 0.1, v + 0.1) for s, v in enumerate([0, 0, 0, 1, 2])]
    rows += [(s, "b", 5.0, 4.9, 5.1) for s in range(5)]
    series = pd.DataFrame(rows, columns=["step", "signal", "value", "low", "high"])
    figure = onset_figure(series, onsets(series))
    stars = [trace for trace in figure.data if trace.marker.symbol == "star"]
    assert [list(star.x) for star in stars] == [[3]]
    assert list(stars[0].y) == pytest.approx([0.5])
    lines = [trace for trace in figure.data if trace.name]
    assert list(lines[0].y) == pytest.approx([0, 0, 0, 0.5, 1])
    assert list(lines[1].y) == [0] * 5
    with pytest.raises(InputError, match=r"the series for an onset figure is empty"):
        onset_figure(series.iloc[:0], onsets(series))


def test_a_table_without_the_columns_is_refused():
    with pytest.raises(
        InputError, match=r"the table has no column match; it has head, value_patch"
    ):
        score_figure(HEADS, ["match"], title="x")
    with pytest.raises(InputError, match=r"the table has no column fraction, low, high"):
        bar_figure(HEADS, "head", "fraction", title="x", unit="share")
