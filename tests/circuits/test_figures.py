"""Figures: what is drawn for a hand-written table, where, and that a page stands alone."""

import json
import math
import re

import pandas as pd
import plotly.graph_objects as go
import plotly.io
import pytest
import torch

from circuits.errors import InputError
from circuits.figures import (
    DARK,
    LIGHT,
    Theme,
    attention_figure,
    circuit_figure,
    head_bar,
    head_grid,
    heatmap,
    node_places,
    strongest,
    write_html,
)
from circuits.figures.layout import curve, split_edge
from circuits.figures.theme import effect_colour

NODES = [
    "embed",
    *(f"L{layer}H{head}" for layer in range(2) for head in range(2)),
    "M0",
    "M1",
    "logits",
]


def edge_table():
    rows = [
        ("embed->L0H0.q", 1.0, 0.8, 1.2),
        ("L0H0->L1H1.k", -0.5, -0.7, -0.3),
        ("L0H1->M0", 0.1, -0.1, 0.3),
        ("M0->M1", 0.0, 0.0, 0.0),
        ("M1->logits", 0.25, 0.2, 0.3),
    ]
    table = pd.DataFrame(rows, columns=["edge", "effect", "low", "high"])
    return table.assign(
        source=[edge.split("->")[0] for edge in table["edge"]],
        reader=[edge.split("->")[1] for edge in table["edge"]],
    )


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_one_line_an_edge_as_wide_as_its_effect_and_coloured_by_its_sign():
    drawn = traces(circuit_figure(edge_table()))
    assert set(edge_table()["edge"]) < set(drawn)
    width = {name: drawn[name].line.width for name in edge_table()["edge"]}
    assert width["embed->L0H0.q"] == pytest.approx(7.0)
    assert width["M0->M1"] == pytest.approx(0.6)
    assert width["L0H0->L1H1.k"] == pytest.approx(0.6 + 0.5 * 6.4)
    assert drawn["embed->L0H0.q"].line.color == LIGHT.positive
    assert drawn["M0->M1"].line.color == LIGHT.neutral
    # Half way from grey (201, 201, 201) to blue (0, 114, 178).
    assert drawn["L0H0->L1H1.k"].line.color in ("#649ebe", "#649ebe", "#649ebd", "#649dbd")


def test_edges_inside_their_noise_band_are_faint_and_say_so():
    drawn = traces(circuit_figure(edge_table()))
    assert drawn["L0H1->M0"].opacity < 0.3
    assert drawn["embed->L0H0.q"].opacity > 0.8
    assert "interval contains 0" in drawn["L0H1->M0"].hovertemplate
    assert "interval contains 0" not in drawn["M1->logits"].hovertemplate


def test_the_pointer_tells_name_value_and_interval():
    text = traces(circuit_figure(edge_table(), unit="bits"))["L0H0->L1H1.k"].hovertemplate
    assert "<b>L0H0->L1H1.k</b>" in text
    assert "-0.5 bits" in text
    assert "-0.7 to -0.3" in text


def test_an_interval_that_is_not_known_is_said_to_be_unknown():
    table = edge_table().assign(low=math.nan, high=math.nan)
    line = traces(circuit_figure(table))["embed->L0H0.q"]
    assert "no interval" in line.hovertemplate
    assert "nan" not in line.hovertemplate


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({"top": 2}, ["L0H0->L1H1.k", "embed->L0H0.q"]),
        ({"threshold": 0.25}, ["M1->logits", "L0H0->L1H1.k", "embed->L0H0.q"]),
        ({"threshold": 0.25, "top": 1}, ["embed->L0H0.q"]),
        ({"top": 0}, []),
    ],
)
def test_only_the_edges_asked_for_are_drawn_weakest_first(choice, kept):
    figure = circuit_figure(edge_table(), **choice)
    names = [trace.name for trace in figure.data if trace.mode == "lines"]
    assert names == kept
    assert list(strongest(edge_table(), **choice)["edge"]) == kept


def test_positions_depend_on_the_names_of_the_nodes_alone():
    whole = traces(circuit_figure(edge_table(), nodes=NODES))["nodes"]
    few = traces(circuit_figure(edge_table().head(1), nodes=reversed(NODES)))["nodes"]
    louder = edge_table().assign(effect=lambda table: table["effect"] * 40)
    loud = traces(circuit_figure(louder, nodes=NODES, top=1))["nodes"]
    for other in (few, loud):
        assert (whole.text, whole.x, whole.y) == (other.text, other.x, other.y)
    # The control: another graph is laid out in another way.
    assert node_places(NODES)["L0H0"] != node_places([*NODES, "L0H2"])["L0H0"]


def test_layers_run_from_bottom_to_top_and_nothing_shares_a_place():
    places = node_places(NODES)
    order = ["embed", "L0H0", "M0", "L1H0", "M1", "logits"]
    heights = [places[name].y for name in order]
    assert heights == sorted(set(heights))
    assert places["L0H0"].y == places["L0H1"].y
    assert places["L0H0"].x < places["L0H1"].x < places["M0"].x
    assert len(set(places.values())) == len(NODES)


def test_an_attention_only_model_has_no_empty_rows():
    places = node_places(["embed", "L0H0", "L1H0", "logits"])
    assert [places[name].y for name in ("embed", "L0H0", "L1H0", "logits")] == [0, 1, 2, 3]


def test_every_edge_rises_from_its_source_to_its_port_and_passes_no_other_node():
    places = node_places(NODES)
    figure = traces(circuit_figure(edge_table(), nodes=NODES))
    ports = dict(
        zip(
            figure["ports"].hovertext,
            zip(figure["ports"].x, figure["ports"].y, strict=True),
            strict=True,
        )
    )
    line = figure["L0H0->L1H1.k"]
    assert line.x[0] == places["L0H0"].x
    assert line.y[0] > places["L0H0"].y
    assert (line.x[-1], line.y[-1]) == pytest.approx(ports["L1H1.k"])
    assert list(line.y) == sorted(line.y)
    xs, ys = curve(places["embed"], places["logits"])
    middle = [x for x, y in zip(xs, ys, strict=True) if 1 < y < 4]
    assert all(abs(x - places["embed"].x) > 0.1 for x in middle)


def test_heads_have_q_k_v_ports_only_where_the_table_has_such_readers():
    head = traces(circuit_figure(edge_table()))["ports"]
    assert sorted(head.hovertext) == sorted(
        f"{node}.{port}" for node in ("L0H0", "L1H1") for port in "qkv"
    )
    layer = pd.DataFrame(
        [("embed->A0", 1.0, 0.5, 1.5), ("A0->M0", 0.2, 0.1, 0.3), ("M0->logits", 0.1, 0.0, 0.2)],
        columns=["edge", "effect", "low", "high"],
    )
    drawn = traces(circuit_figure(layer))
    assert "ports" not in drawn
    assert set(drawn["nodes"].text) == {"embed", "A0", "M0", "logits"}
    split = layer.assign(edge=["embed->A0.q", "A0->M0", "M0->logits"])
    assert "A0.q" in traces(circuit_figure(split))["ports"].hovertext


def test_an_empty_circuit_is_a_figure_of_nodes():
    empty = circuit_figure(edge_table().head(0), nodes=NODES)
    assert set(traces(empty)) == {"nodes", "scale"}
    assert set(traces(empty)["nodes"].marker.opacity) == {0.35}


def test_one_limit_makes_checkpoints_comparable():
    line = traces(circuit_figure(edge_table(), limit=2.0))["embed->L0H0.q"]
    assert line.line.width == pytest.approx(0.6 + 0.5 * 6.4)
    assert traces(circuit_figure(edge_table(), limit=2.0))["scale"].marker.cmax == 2.0


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (edge_table().drop(columns="low"), {}, ["no column low", "edge, effect, low, high"]),
        (edge_table().assign(effect=math.nan), {}, ["embed->L0H0.q", "not a finite number"]),
        (edge_table().assign(edge="L0H0-M0"), {}, ["'L0H0-M0'", "L0H3->L2H1.q"]),
        (edge_table().assign(edge="L0H0->L1H0.x"), {}, ["'L0H0->L1H0.x'", "ports q, k, v"]),
        (edge_table().assign(edge="embed->MLP1"), {}, ["'MLP1'", "M0"]),
        (edge_table(), {"nodes": ["embed", "logits"]}, ["L0H0", "embed, logits"]),
        (edge_table(), {"top": -1}, ["top=-1", "0 or more"]),
    ],
)
def test_a_mistake_gets_one_line_that_says_what_is_allowed(table, options, words):
    with pytest.raises(InputError) as error:
        circuit_figure(table, **options)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("edge", ["embed->L0H0.q", "M3->logits", "A0->A1.k"])
def test_edges_come_apart_and_together_again(edge):
    source, target, port = split_edge(edge)
    assert f"{source}->{target}" + (f".{port}" if port else "") == edge


def seen_by_a_deuteranope(colour):
    """Linear RGB as a deuteranope sees it (Vienot, Brettel and Mollon, 1999)."""
    linear = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    matrix = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]
    return [sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in matrix]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_two_ends_of_the_scale_stay_apart_without_red_and_green(theme):
    assert math.dist(*map(seen_by_a_deuteranope, (theme.positive, theme.negative))) > 0.3
    # The control: the usual green and red of equal lightness do not.
    assert math.dist(*map(seen_by_a_deuteranope, ("#2ca02c", "#d04a2c"))) < 0.15


def test_the_scale_is_centred_on_zero():
    assert effect_colour(0.0, 1.0) == LIGHT.neutral
    assert effect_colour(5.0, 1.0) == LIGHT.positive
    assert effect_colour(-5.0, 1.0) == LIGHT.negative
    assert effect_colour(3.0, 0.0) == LIGHT.neutral
    assert traces(circuit_figure(edge_table()))["scale"].marker.cmin == -1.0


def test_the_theme_is_an_argument_and_plotly_stays_as_it_was():
    before = plotly.io.templates.default
    figure = circuit_figure(edge_table(), theme=DARK)
    assert figure.layout.paper_bgcolor == DARK.paper
    assert traces(figure)["embed->L0H0.q"].line.color == DARK.positive
    assert plotly.io.templates.default == before
    mine = Theme(positive="#000001")
    assert traces(circuit_figure(edge_table(), theme=mine))["embed->L0H0.q"].line.color == "#000001"


def head_table():
    return pd.DataFrame(
        {
            "head": ["L0H0", "L0H1", "L1H0", "L1H1"],
            "layer": [0, 0, 1, 1],
            "index": [0, 1, 0, 1],
            "effect": [0.1, 2.0, -0.4, 0.0],
            "low": [-0.1, 1.5, -0.6, -0.1],
            "high": [0.3, 2.2, -0.2, 0.1],
        }
    )


def test_heads_are_ranked_with_their_intervals():
    bar = head_bar(head_table()).data[0]
    assert list(bar.y) == ["L1H0", "L1H1", "L0H0", "L0H1"]
    assert list(bar.x) == [-0.4, 0.0, 0.1, 2.0]
    assert bar.error_x.array[-1] == pytest.approx(0.2)
    assert bar.error_x.arrayminus[-1] == pytest.approx(0.5)
    assert list(bar.marker.opacity) == [1.0, 0.35, 0.35, 1.0]
    assert list(head_bar(head_table(), top=1).data[0].y) == ["L0H1"]
    with pytest.raises(InputError, match="no column low"):
        head_bar(head_table().drop(columns="low"))


def test_a_grid_of_heads_has_layers_upwards():
    grid = head_grid(head_table())
    assert grid.loc["L0", "H1"] == 2.0
    assert grid.loc["L1", "H0"] == -0.4
    figure = heatmap(grid, title="heads")
    drawn = figure.data[0]
    assert list(drawn.y) == ["L0", "L1"]
    assert (drawn.zmin, drawn.zmax) == (-2.0, 2.0)
    assert figure.layout.yaxis.autorange is True
    assert heatmap(grid, title="x", upwards=False).layout.yaxis.autorange == "reversed"
    assert heatmap(grid, title="x", diverging=False).data[0].zmin == 0.0
    missing = head_grid(head_table().head(3))
    assert math.isnan(missing.loc["L1", "H1"])
    assert heatmap(missing, title="x").data[0].zmax == 2.0
    with pytest.raises(InputError, match="empty"):
        heatmap(grid.head(0), title="x")


def pattern(*rows):
    return torch.tensor(rows)


def test_attention_has_tokens_on_both_axes_and_a_head_picker():
    patterns = {
        "L0H0": pattern([1.0, 0.0], [0.25, 0.75]),
        "L0H1": pattern([1.0, 0.0], [1.0, 0.0]),
    }
    figure = attention_figure(patterns, ["<BOS>", "a"])
    assert [trace.name for trace in figure.data] == ["L0H0", "L0H1"]
    assert [trace.visible for trace in figure.data] == [True, False]
    assert list(figure.data[0].x) == ["0 &lt;BOS>", "1 a"]
    assert figure.data[0].z[1][0] == 0.25
    buttons = figure.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == ["L0H0", "L0H1"]
    assert buttons[1].args[0]["visible"] == [False, True]
    assert figure.layout.yaxis.autorange == "reversed"


def test_equal_tokens_keep_their_own_places():
    figure = attention_figure({"L0H0": pattern([1.0, 0.0], [0.5, 0.5])}, ["a", "a"])
    assert len(set(figure.data[0].x)) == 2


def test_a_pattern_that_does_not_fit_its_labels_is_refused():
    with pytest.raises(InputError, match=r"L0H0 has shape \(2, 2\) but there are 3 query"):
        attention_figure({"L0H0": pattern([1.0, 0.0], [0.5, 0.5])}, ["a", "b", "c"])
    with pytest.raises(InputError, match="no attention pattern"):
        attention_figure({}, ["a"])


def test_a_page_stands_alone_and_its_titles_are_text(tmp_path):
    title = "</title><script>alert(1)</script>"
    figure = circuit_figure(edge_table(), title="<b>bold</b>")
    path = write_html({"A & <B>": figure}, tmp_path / "new" / "page.html", title, notes="1 < 2")
    text = path.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<h2>A &amp; &lt;B&gt;</h2>" in text
    assert "<pre>1 &lt; 2</pre>" in text
    assert figure.layout.title.text == "&lt;b>bold&lt;/b>"
    # Nothing is fetched: no element that loads, and plotly's script is inside, once.
    assert not re.search(r"<(script|link|img|iframe)\b[^>]*\b(src|href)\s*=", text)
    assert len(text) > 1_000_000
    assert text.count("plotly.js v") >= 1
    assert text.count("Plotly.newPlot(") >= 1


def test_two_figures_share_one_script(tmp_path):
    one = write_html([circuit_figure(edge_table())], tmp_path / "1.html", "one").stat().st_size
    two = write_html([circuit_figure(edge_table())] * 2, tmp_path / "2.html", "two").stat().st_size
    assert two - one < 0.1 * one


def test_a_page_is_complete_or_absent(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    write_html([], target, "first")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("circuits.figures.page.os.replace", fail)
    with pytest.raises(InputError, match="No space left on device"):
        write_html([], target, "second")
    assert "<title>first</title>" in target.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_page_that_cannot_be_written_says_where(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"cannot write .*page\.html"):
        write_html([], tmp_path / "file" / "page.html", "title")
    with pytest.raises(InputError, match="cannot write"):
        write_html([], tmp_path, "title")


def test_figures_survive_json():
    figure = circuit_figure(edge_table())
    assert go.Figure(json.loads(figure.to_json())) == figure
