"""Every code block of the documentation runs."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCS = [page for page in (CHECKOUT / "docs").rglob("*.md") if "api" not in page.parts]
PAGES = [*sorted(DOCS), CHECKOUT / "README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _blocks(page):
    return BLOCK.findall(page.read_text())


def run_command(line):
    """Runs `python -m MODULE ARGUMENTS` in this process, which has its imports behind it."""
    words = shlex.split(line, comments=True)
    assert words[:2] == ["python", "-m"], line
    name = words[2]
    try:
        module = importlib.import_module(f"{name}.__main__")
    except ModuleNotFoundError:
        module = importlib.import_module(name)
    assert module.main(words[3:]) == 0, line


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_python_blocks_run_one_after_the_other(page):
    names = {"__name__": f"page_{page.stem}"}
    for language, code in _blocks(page):
        if language == "python":
            exec(compile(code, str(page), "exec"), names)


@pytest.mark.parametrize(
    "line",
    sorted(
        {
            line.strip()
            for page in PAGES
            if page.name != "README.md"
            for language, code in _blocks(page)
            if language == "console"
            for line in code.splitlines()
        }
    ),
)
def test_commands_run(line):
    run_command(line)


def test_blocks_say_what_they_are():
    kinds = {language for page in PAGES for language, _ in _blocks(page)}
    assert kinds <= {"python", "console", "text", "toml", ""}
    unnamed = [page.name for page in PAGES for language, _ in _blocks(page) if not language]
    assert set(unnamed) <= {"README.md"}


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
