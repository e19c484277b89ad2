"""The documentation builds, API pages included, without a warning."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def build(folder, config):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=CHECKOUT, env=quiet, capture_output=True, text=True)


def test_it_builds_and_the_api_pages_have_their_functions(tmp_path):
    done = build(tmp_path / "site", CHECKOUT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "api" / "circuits" / "index.html").read_text()
    assert 'id="circuits.edge_ablation.edge_effects"' in page
    assert "Raises:" in page


def test_a_page_that_is_missing_is_an_error(tmp_path):
    config = (CHECKOUT / "mkdocs.yml").read_text()
    broken = tmp_path / "mkdocs.yml"
    broken.write_text(
        config.replace("- tutorial.md", "- nowhere.md")
        .replace("docs_dir: docs", f"docs_dir: {CHECKOUT / 'docs'}")
        .replace("paths: [.]", f"paths: [{CHECKOUT}]")
    )
    done = build(tmp_path / "site", broken)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
