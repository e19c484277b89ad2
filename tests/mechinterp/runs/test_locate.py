"""Where runs are looked for, in which order, and what is said when there is none."""

import os
from pathlib import Path

import pytest

import mechinterp
from circuits.errors import InputError
from mechinterp.runs import DEFAULT_RUN, check_name, find_run, list_runs, locate, new_run_path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory, no variable, and a checkout of our own."""
    checkout = tmp_path / "checkout"
    (checkout / "mechinterp").mkdir(parents=True)
    (checkout / "pyproject.toml").write_text("")
    monkeypatch.setattr(mechinterp, "__file__", str(checkout / "mechinterp" / "__init__.py"))
    monkeypatch.delenv(locate.VARIABLE, raising=False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def make(*parts) -> Path:
    path = Path(*parts)
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    return path.absolute()


def test_own_runs_come_before_reference_runs_and_those_of_the_checkout(elsewhere):
    folders = [
        Path("checkpoints"),
        Path("checkpoints/reference"),
        elsewhere / "checkout/checkpoints",
        elsewhere / "checkout/checkpoints/reference",
    ]
    for folder in reversed(folders):
        expected = make(folder, "twin")
        assert find_run("twin") == expected
        assert list_runs() == {"twin": expected}


def test_a_root_is_searched_alone_and_before_the_variable(elsewhere, monkeypatch):
    make("checkpoints", "own")
    rooted = make(elsewhere, "root", "reference", "rooted")
    variable = make(elsewhere, "variable", "named")
    monkeypatch.setenv(locate.VARIABLE, str(elsewhere / "variable"))
    assert find_run("named") == variable
    assert find_run("rooted", elsewhere / "root") == rooted
    with pytest.raises(InputError, match=r"no run 'own'; there are: named \(looked in .*variable"):
        find_run("own")
    with pytest.raises(InputError, match=r"no run 'named'; there are: rooted"):
        find_run("named", elsewhere / "root")


def test_an_unknown_run_lists_the_closest(elsewhere):
    for name in ("chains-k8", "chains-k64", "marginals-k20"):
        make("checkpoints", name)
    with pytest.raises(InputError, match=r"no run 'chains-k9'; there are: chains-k8, chains-k64"):
        find_run("chains-k9")


def test_nothing_anywhere_says_where_was_looked_and_what_to_do(elsewhere):
    with pytest.raises(InputError) as caught:
        find_run(DEFAULT_RUN)
    said = str(caught.value)
    assert f"looked in {elsewhere}/cwd/checkpoints (does not exist)" in said
    assert f"{elsewhere}/checkout/checkpoints (does not exist)" in said
    assert "--root or MECHINTERP_RUNS" in said
    assert "\n" not in said


def test_a_wheel_says_that_it_has_no_checkout(elsewhere, monkeypatch):
    (elsewhere / "checkout" / "pyproject.toml").unlink()
    import importlib.metadata

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(InputError, match="no checkout, as this package was installed from a wheel"):
        find_run("any")


@pytest.mark.parametrize("kind", ["folder", "wheel", "broken"])
def test_an_installation_from_a_folder_remembers_it(elsewhere, monkeypatch, kind):
    import importlib.metadata
    import json

    source = elsewhere / "source"
    expected = make(source, "checkpoints", "reference", "kept")
    (elsewhere / "checkout" / "pyproject.toml").unlink()
    url = {"folder": source, "wheel": elsewhere / "dist" / "x.whl"}.get(kind)
    text = json.dumps({"url": f"file://{url}"}) if url else "[1]"

    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())
    assert list_runs() == ({"kept": expected} if kind == "folder" else {})


def test_a_path_is_taken_as_it_is(elsewhere):
    inside = make("deep", "er", "run")
    assert find_run("deep/er/run") == inside
    assert find_run("./deep/er/run/") == inside
    assert find_run(inside) == inside
    os.chdir("deep")
    assert find_run("../deep/er/run") == inside
    os.chdir("er")
    assert find_run("run") == inside


def test_a_path_that_is_no_run_says_why(elsewhere):
    run = make("runs", "one")
    (run / "step_4").mkdir()
    (run / "step_4" / "checkpoint.json").write_text("{}")
    with pytest.raises(InputError, match=r"no run at runs/two: .* does not exist"):
        find_run("runs/two")
    with pytest.raises(InputError, match=r"no run at \./runs: .* has no run.json"):
        find_run("./runs")
    with pytest.raises(InputError, match=r"is a checkpoint, not a run; give its run, .*runs/one"):
        find_run("runs/one/step_4")


@pytest.mark.parametrize(
    "name", ["../x", "..", ".", "a/../../x", "/etc/passwd", "~root/x", "x" * 5000, "sp ace"]
)
def test_names_that_climb_find_nothing(elsewhere, name):
    make("checkpoints", "own")
    with pytest.raises(InputError, match="no run at"):
        find_run(name)


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x1b[31m", "\ud800", "a/\ud800", "a/\0"])
def test_names_that_cannot_be_paths_are_refused(name):
    for ask in (find_run, new_run_path):
        with pytest.raises(InputError) as caught:
            ask(name)
        assert str(caught.value).isprintable()


def test_a_new_run_goes_under_the_root_or_the_variable_or_checkpoints(elsewhere, monkeypatch):
    assert new_run_path("new") == elsewhere / "cwd/checkpoints/new"
    assert new_run_path("new", Path("r")) == elsewhere / "cwd/r/new"
    assert new_run_path("some/where/new", Path("r")) == elsewhere / "cwd/some/where/new"
    assert new_run_path(elsewhere / "new") == elsewhere / "new"
    monkeypatch.setenv(locate.VARIABLE, str(elsewhere / "variable"))
    assert new_run_path("new") == elsewhere / "variable/new"
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/..", ".hidden", "runs/.tmp-1", "-rf"])
def test_a_new_run_cannot_climb_or_hide(name):
    with pytest.raises(InputError, match=r"climbs with|cannot be the name of a run"):
        new_run_path(name)


def test_names_that_are_not_names_are_told_what_is_allowed():
    assert check_name("marginals-k20_lr=1e-3,seed=0") == "marginals-k20_lr=1e-3,seed=0"
    for name in ("", "a/b", "..", "reference", "x" * 129, "K 20"):
        with pytest.raises(InputError, match="a name has 1 to 128 of the characters"):
            check_name(name)
