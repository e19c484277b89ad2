"""Pictures of the page: always taken, and kept for the documentation when asked to.

`MECHINTERP_SCREENSHOTS=1` opens the reference run's page instead of a made-up one and writes its
pictures to docs/; measuring that run takes some minutes the first time.
"""

import os
from pathlib import Path

import pytest

from analyses.catalogue import Explorer
from analyses.explorer import answer

DOCS = Path(__file__).parents[2] / "docs"
KEPT = os.environ.get("MECHINTERP_SCREENSHOTS") == "1"
SHOTS = {
    "explorer-circuit": ("#step=4000&node=L0H3&threshold=0.02", 1280, "light", "#circuit"),
    "explorer-timeline": ("#step=4000&node=L0H3&threshold=0.02", 1280, "dark", None),
    "explorer-phone": ("#step=4000&node=L0H3&threshold=0.02", 390, "light", "#circuit"),
}
"""Link, width of the window, colours, and the panel at the top of the picture."""


@pytest.fixture(scope="module")
def pictured(file, tmp_path_factory):
    """The page to take pictures of."""
    if not KEPT:
        return file
    path = tmp_path_factory.mktemp("reference") / "reference.html"
    (page,) = answer(Explorer(prune=(4000, 8000), out=path, quiet=True)).pages.values()
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list(SHOTS))
def test_a_picture_is_taken(visit, pictured, name, tmp_path):
    link, width, scheme, panel = SHOTS[name]
    size = {"width": width, "height": 900 if width > 600 else 800}
    one = visit(pictured, link, viewport=size, color_scheme=scheme)
    page = one.page
    page.wait_for_selector("#timeline .main-svg")
    if panel:
        page.locator(panel).evaluate("panel => panel.scrollIntoView()")
    page.wait_for_timeout(300)
    file = (DOCS if KEPT else tmp_path) / f"{name}.png"
    picture = page.screenshot(path=file)
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    assert len(picture) < 400_000
