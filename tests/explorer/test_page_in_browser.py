"""The page in a real browser: what it shows is what the tables say."""

import csv
import dataclasses
import io
import re

import numpy as np
import pandas as pd
import pytest

from analyses.explorer_data.tables import ExplorerData
from analyses.explorer_page.assembling import explorer_page
from tests.explorer.synthetic import made_up_data, made_up_run
from tests.explorer.visiting import Visit


def number(text):
    return float(text.replace("−", "-"))


def at_step(setting, step, kind="edges"):
    table = getattr(setting, kind)
    return table[table["step"] == step].set_index(kind[:-1])


def shown_edges(page):
    return page.locator("#circuit svg.circuit path:not([display=none])").count()


def downloaded(page, section, title="download the table"):
    with page.expect_download() as waiting:
        page.locator(f"#{section} .tools").get_by_role("button", name=title).first.click()
    return waiting.value


def read_csv(download):
    return pd.read_csv(io.StringIO(download.path().read_text(encoding="utf-8")))


def test_every_panel_is_drawn_without_a_complaint_or_a_request(drawn):
    one = drawn
    assert one.complaints == []
    assert one.page.title() == "made-up: circuits forming"
    assert one.page.locator("#circuit svg.circuit .node").count() == 4 * 4 + 4 + 2
    assert one.page.locator("#compare svg.circuit").count() == 3
    assert one.requests == [one.address]


def test_a_foreign_request_would_be_seen(browser, file, tmp_path):
    page = tmp_path / "calls.html"
    page.write_text('<img src="https://example.org/x.png"><script>console.error("no")</script>')
    one = Visit(browser, page)
    one.page.wait_for_timeout(50)
    assert one.foreign() == ["https://example.org/x.png"]
    assert any("no" in said for said in one.complaints)
    one.context.close()


@pytest.mark.parametrize("place", [0, 17, 39])
def test_the_slider_shows_the_numbers_of_the_table(drawn, data, place):
    one, run = drawn, data.runs[0]
    one.at("#node=L0H3")
    one.move_to(place)
    step, setting = run.steps[place], run.settings[0]
    assert one.page.locator("#now").inner_text().startswith(f"step {step} ")
    head = at_step(setting, step, "heads").loc["L0H3"]
    shown = one.page.locator("#node-effect")
    assert number(shown.inner_text()) == pytest.approx(head["effect"], rel=1e-3)
    assert float(shown.get_attribute("data-value")) == pytest.approx(head["effect"], rel=1e-6)
    edges = at_step(setting, step)
    into = edges[edges["reader"].str.startswith("L0H3.")]["effect"]
    rows = one.page.locator("#side .part", has_text="edges into it").locator("tbody tr")
    assert rows.count() == len(into)
    for row in rows.all():
        name, effect = (row.locator("td").nth(column).inner_text() for column in (0, 1))
        assert number(effect) == pytest.approx(into[name], rel=1e-3)
    sizes = [abs(number(row.locator("td").nth(1).inner_text())) for row in rows.all()]
    assert sizes == sorted(sizes, reverse=True)


def test_keys_move_the_checkpoint_and_play_stops_at_the_end(drawn, data):
    page, steps = drawn.at("#step=0"), data.runs[0].steps

    def stands(place):
        page.wait_for_function(
            "(text) => document.getElementById('now').textContent.startsWith(text)",
            arg=f"step {steps[place]} ",
        )

    stands(0)
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 39)):
        page.keyboard.press(key)
        stands(place)
    page.keyboard.press("ArrowLeft")
    stands(38)
    page.get_by_role("button", name="Play").click()
    stands(39)
    page.wait_for_selector("#play[aria-pressed=false]")
    assert page.locator("#play").inner_text() == "Play"


def test_a_click_on_a_head_fills_its_panel_and_isolates_it(drawn):
    page = drawn.at("#step=8000")
    assert page.locator("#side").get_by_text("Click a node").count() == 1
    page.locator('#circuit [data-node="L0H3"] rect').click()
    assert page.locator("#selected").inner_text() == "L0H3"
    for title in ("Effect through training", "Attention at step 8000", "Strongest edges into it"):
        assert page.locator("#side h3", has_text=title).count() == 1
    # Everything in its layer but itself is neither before nor after it.
    aside = page.locator("#circuit .node.aside").evaluate_all("all => all.map(n => n.dataset.node)")
    assert {"L0H0", "L0H1", "L0H2"} <= set(aside)
    assert "L0H3" not in aside
    assert "node=L0H3" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector("#side .empty")
    assert page.locator("#circuit .node.aside").count() == 0


def test_a_node_is_reached_and_chosen_by_keys(drawn):
    page = drawn.at("#step=8000")
    page.locator('#circuit [data-node="L2H1"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#selected")
    assert page.locator("#selected").inner_text() == "L2H1"
    assert page.locator('#circuit [data-node="L2H1"]').get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("threshold", [0.02, 0.3])
def test_the_threshold_shows_as_many_edges_as_the_table_has(drawn, data, threshold):
    one, setting = drawn, data.runs[0].settings[0]
    one.at("#step=8000")
    effects = at_step(setting, 8000)["effect"].abs()
    assert shown_edges(one.page) == len(effects) == 479
    limit = float(np.abs(setting.edges["effect"]).max())
    turn = round(1000 * (threshold / limit) ** (1 / 3))
    one.page.locator("#threshold").evaluate(
        """(slider, turn) => { slider.value = turn;
            slider.dispatchEvent(new Event("input", { bubbles: true })); }""",
        turn,
    )
    least = limit * (turn / 1000) ** 3
    expected = int((effects >= least).sum())
    assert 0 < expected < 479
    one.page.wait_for_function("() => location.hash.includes('threshold')")
    assert shown_edges(one.page) == expected
    assert one.page.locator("#shown").inner_text().startswith(f"{expected} of 479 edges shown")


def test_only_the_pruned_circuit(drawn, data):
    page, setting = drawn.at("#step=8000"), data.runs[0].settings[0]
    page.locator("#pruned").check()
    page.wait_for_function("() => document.querySelector('#shown').textContent.includes('pruned')")
    assert shown_edges(page) == len(setting.circuits[8000])
    assert "circuit=1" in page.url


def test_faint_edges_are_those_in_their_noise_band(drawn, data):
    page, setting = drawn.at("#step=8000"), data.runs[0].settings[0]
    edges = at_step(setting, 8000)
    bands = setting.births.set_index("component").loc[edges.index]
    within = edges["effect"].between(bands["band_low"], bands["band_high"])
    faint = page.locator("#circuit svg.circuit path[opacity='0.16']").evaluate_all(
        "all => all.map(path => path.dataset.edge)"
    )
    assert set(faint) == set(edges.index[within])


def test_the_tip_of_an_edge_names_effect_interval_rank_and_birth(drawn, data):
    page, setting = drawn.at("#step=8000&threshold=0.3"), data.runs[0].settings[0]
    edges = at_step(setting, 8000)
    name = edges["effect"].abs().idxmax()
    spot = page.locator(f'#circuit path[data-edge="{name}"]').evaluate(
        """path => { const at = path.getPointAtLength(path.getTotalLength() * 0.5);
            path.ownerSVGElement.scrollIntoView();
            scrollBy(0, -80);
            const box = path.ownerSVGElement.getBoundingClientRect();
            return [box.left + at.x, box.top + at.y]; }"""
    )
    page.mouse.move(*spot)
    told = page.locator(".tip:not([hidden])").inner_text().splitlines()
    row, born = edges.loc[name], setting.births.set_index("component").loc[name, "born"]
    assert told[0] == name
    found = [number(text) for text in re.findall(r"[+−][\d.]+", told[1])]
    assert found == pytest.approx([row["effect"], row["low"], row["high"]], rel=1e-3)
    assert told[2] == f"rank 1 of 479, born at step {born:.0f}"


def test_a_deep_link_restores_the_view(visit, file, data):
    page = visit(file, "#step=4100&node=L0H3&threshold=0.05&view=mean/head/all").page
    assert page.locator("#now").inner_text().startswith("step 4100 ")
    assert page.locator("#selected").inner_text() == "L0H3"
    effects = at_step(data.runs[0].settings[1], 4100)["effect"].abs()
    assert shown_edges(page) == int((effects >= 0.05).sum())
    assert page.get_by_label("ablation").first.input_value() == "mean"
    page.evaluate("location.hash = '#step=0&node=L1H1'")
    page.wait_for_function("() => document.querySelector('#selected')?.textContent === 'L1H1'")
    assert page.locator("#now").inner_text().startswith("step 0 ")


@pytest.mark.parametrize(
    "link", ["#step=x&node=L9H9&threshold=-3&view=no", "#%ff&&=", "#step=1e99"]
)
def test_a_broken_link_still_opens_the_page(visit, file, link):
    page = visit(file, link).page
    assert page.locator("#circuit svg.circuit .node").count() == 22
    assert page.locator("#selected").count() == 0


def test_another_ablation_shows_its_own_numbers(drawn, data):
    page = drawn.at("#step=8000&node=L0H3")
    page.get_by_label("ablation").first.select_option("mean")
    head = at_step(data.runs[0].settings[1], 8000, "heads").loc["L0H3", "effect"]
    page.wait_for_function("() => location.hash.includes('mean')")
    assert number(page.locator("#node-effect").inner_text()) == pytest.approx(head, rel=1e-3)


def test_the_downloaded_table_is_the_table(drawn, data):
    one, run = drawn, data.runs[0]
    one.at("#step=8000")
    download = downloaded(one.page, "edges")
    assert download.suggested_filename == "made-up-edges-over-training.csv"
    table, truth = read_csv(download), run.settings[0].edges
    assert list(table.columns) == ["step", "edge", "effect", "low", "high"]
    assert list(table["edge"]) == list(truth["edge"])
    for column in ("step", "effect", "low", "high"):
        assert np.array_equal(
            table[column].to_numpy(dtype=np.float32), truth[column].to_numpy(dtype=np.float32)
        )
    log = read_csv(downloaded(one.page, "timeline"))
    pd.testing.assert_frame_equal(log, run.log, check_dtype=False, rtol=1e-12)
    circuit = read_csv(downloaded(one.page, "circuit"))
    edges = at_step(run.settings[0], 8000)["effect"]
    assert list(circuit["rank"]) == list(range(1, 480))
    assert circuit["edge"][0] == edges.abs().idxmax()


def test_attention_and_attribution_of_the_side_panel(drawn, data):
    one, run = drawn, data.runs[0]
    one.at("#step=8000&node=L0H3")
    part = one.page.locator("#side .part", has_text="Attention")
    with one.page.expect_download() as waiting:
        part.get_by_role("button", name="download the table").click()
    pattern = read_csv(waiting.value)["attention"].to_numpy().reshape(14, 14)
    truth = run.attention.patterns[-1, run.attention.heads.index("L0H3")]
    np.testing.assert_allclose(pattern, truth, atol=2e-5)
    shares = run.tables["attribution"]
    truth = shares[shares["step"] == 8000].set_index("source")["contribution"]
    rows = one.page.locator("#side .part", has_text="answer's logit").locator("tbody tr")
    for row in rows.all():
        source, value = (row.locator("td").nth(column).inner_text() for column in (0, 1))
        assert number(value) == pytest.approx(truth[source], rel=1e-3)


@pytest.mark.parametrize(("kind", "start"), [("SVG", b"<svg"), ("PNG", b"\x89PNG")])
@pytest.mark.parametrize("section", ["circuit", "heads"])
def test_pictures_are_made_by_the_browser(drawn, section, kind, start):
    download = downloaded(drawn.at("#step=8000"), section, f"download the picture as {kind}")
    content = download.path().read_bytes()
    assert content.startswith(start)
    assert len(content) > 5000


def test_the_table_can_be_copied(drawn, data):
    one = drawn
    one.page.locator("#heads .tools").get_by_role("button", name="copy the table").click()
    one.page.wait_for_selector("#heads .tools button:has-text('copied')")
    rows = list(csv.reader(io.StringIO(one.page.evaluate("navigator.clipboard.readText()"))))
    assert rows[0] == ["step", "head", "effect", "low", "high"]
    assert len(rows) == 1 + len(data.runs[0].settings[0].heads)


def test_a_click_on_a_cell_moves_the_cursor_and_chooses_the_head(drawn, data):
    page = drawn.at("#step=0")
    page.locator("#heads .plot").scroll_into_view_if_needed()
    spot = page.locator("#heads .plot").evaluate(
        """plot => { const box = plot.getBoundingClientRect(), { xaxis, yaxis } = plot._fullLayout;
            return [box.left + xaxis._offset + xaxis.c2p(30),
                    box.top + yaxis._offset + yaxis.c2p(3)]; }"""
    )
    page.mouse.move(*spot)
    page.mouse.click(*spot)
    page.wait_for_selector("#selected")
    assert page.locator("#selected").inner_text() == "L0H3"
    assert page.locator("#now").inner_text().startswith(f"step {data.runs[0].steps[30]} ")


def test_the_cursor_stands_on_the_checkpoint_in_every_panel(drawn, data):
    one = drawn
    one.move_to(20)
    off = one.page.evaluate(
        """(step) => [...document.querySelectorAll(".panel:not([hidden]) > .plot")]
            .map((plot) => {
                const { xaxis } = plot._fullLayout, cursor = plot.querySelector(".cursor");
                const value = xaxis.type === "category"
                    ? xaxis._categories.indexOf(String(step)) : step;
                return parseFloat(cursor.style.left) - xaxis._offset - xaxis.c2p(value);
            })""",
        data.runs[0].steps[20],
    )
    # Timeline, heads, edges, scores, two of updates, overlap, agreement.
    assert len(off) == 8
    assert np.abs(off).max() < 0.5


def test_comparing_two_checkpoints_gives_their_difference(drawn, data):
    page, setting = drawn.at("#step=8000"), data.runs[0].settings[0]
    page.locator("#compare").scroll_into_view_if_needed()
    page.locator("#compare-a").select_option(label="1030")
    page.locator("#compare-b").select_option(label="5130")
    table = read_csv(downloaded(page, "compare")).set_index("edge")
    a, b = at_step(setting, 1030)["effect"], at_step(setting, 5130)["effect"]
    np.testing.assert_allclose(table["difference"], (b - a)[table.index], atol=1e-6)
    first = page.locator("#compare tbody tr").first.locator("td")
    assert first.nth(0).inner_text() == (b - a).abs().idxmax()


def test_two_runs_are_compared_over_the_edges_that_both_have(visit, tmp_path):
    small, large = made_up_run("small", 1, 2, 5), made_up_run("large", 2, 2, 6, seed=5)
    path = tmp_path / "two.html"
    path.write_text(explorer_page(ExplorerData((small, large), "command")), encoding="utf-8")
    one = visit(path)
    one.draw_all()
    page = one.page
    assert page.locator("#compare figcaption").first.inner_text() == "A: small, step 8000"
    table = read_csv(downloaded(page, "compare"))
    assert list(table["edge"]) == [
        edge for edge in small.settings[0].edges["edge"].unique() if "logits" not in edge
        or edge in set(large.settings[0].edges["edge"])
    ]  # fmt: skip
    assert "edges are in A alone and" in page.locator("#compare .note").inner_text()


HOSTILE = """"><script>document.title='broken'</script><img src=x onerror=alert(1)>'&amp;<b>"""


def test_hostile_names_are_shown_as_text(visit, tmp_path):
    data = made_up_data(name=HOSTILE, task=HOSTILE, text=HOSTILE, n_steps=5, ablations=(HOSTILE,))
    path = tmp_path / "hostile.html"
    path.write_text(explorer_page(data), encoding="utf-8")
    one = visit(path, "#node=L0H3")
    dialogs = []
    one.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    one.draw_all()
    page = one.page
    assert dialogs == []
    assert page.title() == f"{HOSTILE}: circuits forming"
    assert page.locator("#name").inner_text() == HOSTILE
    assert page.get_by_label("ablation").first.input_value() == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("main b").filter(has_text=HOSTILE).count() == 0
    assert HOSTILE in page.locator("#provenance pre").text_content().replace('\\"', '"')
    legend = page.locator("#scores .plot .legendtext").all_text_contents()
    assert "L0H0" in legend
    assert any(
        HOSTILE in text for text in page.locator("#agreement .legendtext").all_text_contents()
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_and_the_button_between_them(visit, file, scheme):
    one = visit(file, color_scheme=scheme)
    paper = "getComputedStyle(document.body).backgroundColor"
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 20, 20)"}
    assert one.page.evaluate(paper) == papers[scheme]
    button = one.page.locator("#theme")
    for kind in ("light", "dark"):
        button.click()
        assert button.inner_text() == f"Theme: {kind}"
        assert one.page.evaluate(paper) == papers[kind]


def test_plots_follow_the_theme(drawn):
    page = drawn.page
    page.locator("#heads .plot").scroll_into_view_if_needed()
    button = page.locator("#theme")
    for paper in ("#ffffff", "#141414"):
        # Not a click of the mouse, which would scroll the plot out of view: it waits there.
        button.dispatch_event("click")
        page.wait_for_function(
            "(paper) => document.querySelector('#heads .plot')._fullLayout.paper_bgcolor === paper",
            arg=paper,
        )
    button.dispatch_event("click")
    assert button.inner_text() == "Theme: auto"


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(visit, file, width):
    one = visit(file, "#node=L0H3", viewport={"width": width, "height": 850})
    one.draw_all()
    page = one.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.locator("#circuit .node text:first-of-type").evaluate_all(
        "all => all.map(text => text.getBoundingClientRect().height)"
    )
    assert min(sizes) > 9
    overlapping = page.evaluate(
        """() => { const boxes = [...document.querySelectorAll("#circuit .node rect")]
            .map((box) => box.getBoundingClientRect());
            return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right
                && b.left < a.right && a.top < b.bottom && b.top < a.bottom)); }"""
    )
    assert not overlapping


def test_positions_are_stable_from_step_to_step(drawn):
    one = drawn
    one.at("#step=0")
    read = """() => [...document.querySelectorAll("#circuit .node rect")]
        .map((box) => [box.getAttribute("x"), box.getAttribute("y")].join())"""
    before = one.page.evaluate(read)
    one.move_to(35)
    assert one.page.evaluate(read) == before
    assert len(set(before)) == 22


def test_panels_without_data_say_why(visit, tmp_path):
    run = made_up_run(n_steps=4)
    bare = type(run)(run.name, run.task, run.steps, run.settings, run.log.iloc[:0],
                     absent={"cosines": "Too <few> updates."})  # fmt: skip
    path = tmp_path / "bare.html"
    path.write_text(explorer_page(ExplorerData((bare,), "c")), encoding="utf-8")
    one = visit(path, "#node=L0H3")
    one.draw_all()
    said = one.page.locator("#missing li").all_inner_texts()
    assert "Do weight updates agree?: Too <few> updates." in said
    assert any(text.startswith("Mechanism scores") for text in said)
    assert one.page.locator("#scores").is_hidden()
    assert one.page.locator("#heads").is_visible()


def test_what_was_never_born_or_has_died_says_so(visit, tmp_path):
    run = made_up_run(n_layers=2, n_heads=2, n_steps=4)
    setting, edge = run.settings[0], run.settings[0].edges["edge"].iloc[0]
    births = setting.births.astype({"born": "Int64", "died": "Int64"}).set_index("component")
    births.loc[["L0H1", edge], ["born", "died"]] = pd.NA
    births.loc["L1H0", ["born", "died"]] = [run.steps[1], run.steps[3]]
    setting = dataclasses.replace(setting, births=births.reset_index(), circuits={})
    run = dataclasses.replace(run, settings=(setting,))
    path = tmp_path / "births.html"
    path.write_text(explorer_page(ExplorerData((run,), "c")), encoding="utf-8")
    one = visit(path, "#node=L0H1")
    one.draw_all()
    side = one.page.locator("#side")
    assert "; never wholly outside its noise band." in side.inner_text()
    one.at("#node=L1H0")
    assert f"; born at step {run.steps[1]}, gone at {run.steps[3]}." in side.inner_text()
    n_born = births[births["kind"] == "edge"]["born"].notna().sum()
    note = one.page.locator("#edges .note").inner_text()
    assert f"{n_born} of {setting.edges['edge'].nunique()} edges leave their noise band" in note


def test_a_merged_layer_of_one_head_shows_that_head(visit, tmp_path):
    run = made_up_run(n_layers=2, n_heads=1, n_steps=4)
    (setting,) = run.settings[:1]
    merged = setting.edges.assign(
        edge=setting.edges["edge"].str.replace(r"L(\d)H0", r"A\1", regex=True)
    )
    setting = dataclasses.replace(setting, edges=merged, granularity="layer-qkv", circuits={})
    run = dataclasses.replace(run, settings=(setting,))
    path = tmp_path / "merged.html"
    path.write_text(explorer_page(ExplorerData((run,), "c")), encoding="utf-8")
    page = visit(path, "#step=8000&node=A1").page
    head = at_step(setting, 8000, "heads").loc["L1H0", "effect"]
    assert number(page.locator("#node-effect").inner_text()) == pytest.approx(head, rel=1e-3)
    assert page.locator("#side h3", has_text="Attention at step 8000").count() == 1
    by_head = visit(path, "#step=8000&node=L1H0").page
    assert by_head.locator("#selected").inner_text() == "A1"
