"""The same circuit view for one checkpoint, above the figures of another page."""

import numpy as np
import pytest

from circuits.figures import circuit_view, page_html
from tests.explorer.synthetic import made_up_setting

SETTING = made_up_setting(np.array([0, 4000]), 2, 3, 0, "zero")
TABLE = SETTING.edges[SETTING.edges["step"] == 4000].reset_index(drop=True)
KEPT = SETTING.circuits[4000]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("view") / "trace.html"
    file.write_text(page_html({}, "trace", above=circuit_view(TABLE, kept=KEPT)), encoding="utf-8")
    return file


def shown(page):
    return page.locator("svg.circuit path:not([display=none])").count()


def test_the_view_shows_every_edge_the_circuit_alone_and_one_nodes_relatives(visit, path):
    page = visit(path).page
    assert shown(page) == len(TABLE)
    page.get_by_label("only the edges").check()
    assert shown(page) == len(KEPT)
    page.get_by_label("only the edges").uncheck()
    page.locator('[data-node="L0H1"] rect').click()
    lit = page.locator("svg.circuit path[opacity='0.9']").evaluate_all(
        "all => all.map(path => path.dataset.edge)"
    )
    clear = TABLE[(TABLE["low"] > 0) | (TABLE["high"] < 0)]["edge"]
    assert {edge for edge in clear if edge.startswith(("L0H1->",)) or "->L0H1." in edge} <= set(lit)
    assert not [edge for edge in lit if edge.startswith("L0H2->") or "->L0H2." in edge]


def test_the_threshold_hides_what_is_smaller(visit, path):
    page = visit(path).page
    page.locator("input[type=range]").evaluate(
        "slider => { slider.value = 500; slider.dispatchEvent(new Event('input')); }"
    )
    least = 0.125 * TABLE["effect"].abs().max()
    assert shown(page) == int((TABLE["effect"].abs() >= least).sum())


def test_without_intervals_or_a_circuit_the_view_still_opens(visit, tmp_path):
    file = tmp_path / "bare.html"
    bare = TABLE.assign(low=float("nan"), high=float("nan"))
    file.write_text(page_html({}, "<trace>", above=circuit_view(bare)), encoding="utf-8")
    page = visit(file).page
    assert shown(page) == len(TABLE)
    assert page.get_by_label("only the edges").is_hidden()
