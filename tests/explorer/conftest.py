"""The real Chromium, and the explorer's page of a made-up run in it."""

import pytest

from analyses.explorer_page.assembling import explorer_page
from tests.explorer.synthetic import made_up_data
from tests.explorer.visiting import Visit, find_browser, give_up


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of a session."""
    path, lack = find_browser()
    if path is None:
        give_up(lack)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser):
    """Opens a file; at the end no page may have complained or asked for anything."""
    visits = []

    def opened(file, fragment="", **options):
        visits.append(Visit(browser, file, fragment, **options))
        return visits[-1]

    yield opened
    for one in visits:
        one.close()


@pytest.fixture(scope="session")
def drawn(browser, file):
    """The page with every panel drawn, for tests that follow links within it."""
    one = Visit(browser, file, permissions=["clipboard-read", "clipboard-write"])
    one.draw_all()
    yield one
    one.close()


@pytest.fixture(scope="session")
def data():
    """A run of the size of the reference run, with 40 checkpoints."""
    return made_up_data()


@pytest.fixture(scope="session")
def file(data, tmp_path_factory):
    """Its page."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    path.write_text(explorer_page(data), encoding="utf-8")
    return path
