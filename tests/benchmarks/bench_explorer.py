"""How fast is the explorer's page in headless Chromium, and how large is its file?

Pages of a made-up run with 479 edges at 40 checkpoints (the size of the reference run) and with
over 2,000 edges at 200. First paint is the browser's own mark; a slider move is timed from the
input event to the second frame after it, with a head selected, the slowest of all moves counting
beside the median. The wanted numbers hold for a machine of 2 cores without other work.
"""

import contextlib
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from analyses.explorer_page.assembling import explorer_page
from tests.explorer.synthetic import made_up_data

SIZES = {
    "479 edges, 40 checkpoints": {"n_layers": 4, "n_heads": 4, "n_steps": 40},
    "2188 edges, 200 checkpoints": {"n_layers": 6, "n_heads": 6, "n_steps": 200},
}
WANTED = {"first paint (ms)": 1500, "slider move, median (ms)": 100, "file (MB)": 12}
"""For the first size; the second is reported only."""

MOVES = 30

MOVE = """(place) => new Promise((done) => {
    const slider = document.getElementById("step"), started = performance.now();
    slider.value = place;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - started)));
})"""

FIRST_PAINT = """() => new Promise((done) => {
    const read = () => {
        const marks = performance.getEntriesByName("first-contentful-paint");
        if (marks.length) done(marks[0].startTime);
        else setTimeout(read, 20);
    };
    read();
})"""


def measure(browser: object, file: Path, n_steps: int) -> dict[str, float]:
    """Opens a page and moves its slider."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()  # type: ignore[attr-defined]
    page.goto(f"{file.as_uri()}#step=0&node=L0H3")
    found = {"first paint (ms)": page.evaluate(FIRST_PAINT)}
    started = time.perf_counter()
    page.wait_for_selector("#timeline .main-svg")
    found["timeline drawn, after that (ms)"] = 1000 * (time.perf_counter() - started)
    page.locator("#circuit").scroll_into_view_if_needed()
    page.wait_for_timeout(1000)
    places = [round(n * (n_steps - 1) / MOVES) for n in range(1, MOVES + 1)]
    moves = [page.evaluate(MOVE, place) for place in places]
    found["slider move, median (ms)"] = statistics.median(moves)
    found["slider move, slowest (ms)"] = max(moves)
    page.locator("#edges .plot").scroll_into_view_if_needed()
    started = time.perf_counter()
    page.wait_for_selector("#edges .main-svg")
    found["edge heat map drawn (ms)"] = 1000 * (time.perf_counter() - started)
    page.context.close()
    return found


def main() -> None:
    """Prints the table; fails where a target is missed."""
    path = shutil.which("chromium")
    if path is None:
        print("no chromium on PATH: nothing measured")
        return
    from playwright.sync_api import sync_playwright

    missed = []
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as driver,
        contextlib.closing(driver.chromium.launch(executable_path=path)) as browser,
    ):
        for number, (name, options) in enumerate(SIZES.items()):
            file = Path(folder) / f"{number}.html"
            started = time.perf_counter()
            file.write_text(explorer_page(made_up_data(ablations=("zero",), **options)))
            found = {"built (ms)": 1000 * (time.perf_counter() - started)}
            found["file (MB)"] = file.stat().st_size / 1e6
            found |= measure(browser, file, options["n_steps"])
            print(name)
            for what, value in found.items():
                print(f"  {what:<34}{value:>8.1f}")
                if number == 0 and value > WANTED.get(what, float("inf")):
                    missed.append(f"{what} {value:.0f}, wanted {WANTED[what]}")
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
