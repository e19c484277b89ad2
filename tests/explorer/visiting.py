"""A visit to a page in a browser, with the network refused and every complaint kept."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = ("CI", "MECHINTERP_REQUIRE_BROWSER")
"""Environment variables that make a missing browser an error."""


def find_browser():
    """The path of a browser, or what is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None, "the Python package playwright is not installed"
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    return path, "" if path else f"none of {', '.join(BROWSERS)} is on PATH"


def give_up(lack):
    """Skips loudly, or fails where the tests have to run."""
    said = f"BROWSER TESTS DID NOT RUN: {lack}"
    if any(os.environ.get(name) not in (None, "", "0", "false") for name in REQUIRED):
        pytest.fail(f"{said}; install it, as they have to run here", pytrace=False)
    pytest.skip(said)


class Visit:
    """One page in a browser, with everything it complained about and asked for."""

    def __init__(self, browser, file, fragment="", **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.address = file.as_uri()
        self.context.route("**/*", self._refuse)
        self.page.goto(f"{self.address}{fragment}")

    def _refuse(self, route):
        url = route.request.url
        allowed = url.split("#")[0] == self.address or url.startswith(("data:", "blob:"))
        if allowed:
            route.continue_()
        else:
            route.abort()

    def foreign(self):
        """Requests that are neither the page nor inside it."""
        inside = ("data:", "blob:", self.address)
        return [url for url in self.requests if not url.startswith(inside)]

    def move_to(self, place):
        """Moves the slider as a hand would, and waits for the page to follow."""
        self.page.evaluate(
            """(place) => new Promise((done) => {
                const slider = document.getElementById("step");
                slider.value = place;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                requestAnimationFrame(() => requestAnimationFrame(done));
            })""",
            place,
        )

    def at(self, fragment):
        """Follows a link within the page, and waits until the page shows what it says."""
        self.page.evaluate(
            """(fragment) => new Promise((done) => {
                location.hash = fragment;
                setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 30);
            })""",
            fragment,
        )
        return self.page

    def close(self):
        """Closes the page, which may not have complained or asked for anything."""
        complaints, foreign = self.complaints, self.foreign()
        self.context.close()
        assert complaints == []
        assert foreign == []

    def draw_all(self):
        """Scrolls through the page, so that every panel is drawn."""
        page = self.page
        height = page.evaluate("document.body.scrollHeight")
        for top in range(0, height, 500):
            page.evaluate(f"scrollTo(0, {top})")
            page.wait_for_timeout(60)
        page.wait_for_function(
            """() => [...document.querySelectorAll(".panel:not([hidden]) > .plot")]
                .every((plot) => plot.querySelector(".main-svg"))"""
        )
        page.evaluate("scrollTo(0, 0)")
