"""Without a browser the tests skip with one loud line; where they have to run, they fail."""

import pytest

from tests.explorer.visiting import REQUIRED, find_browser, give_up


def test_a_missing_browser_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    path, lack = find_browser()
    assert path is None
    assert lack.startswith("none of chromium, ")


def test_a_missing_browser_skips_here_and_fails_where_it_is_required(monkeypatch):
    for name in REQUIRED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="BROWSER TESTS DID NOT RUN: no chromium"):
        give_up("no chromium")
    for name in REQUIRED:
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            with pytest.raises(pytest.fail.Exception, match="have to run here"):
                give_up("no chromium")
