"""`python -m mechinterp.train`: what it prints at the end, and where."""

import json

import pytest

from mechinterp.runs import Run
from mechinterp.train import main

SMALL = "--k 3 --n-b 20 --n-layers 1 --n-heads 1 --d-model 8 --steps 12 --batch 4 --eval-every 6"


def _train(folder, *options):
    argv = ["marginals", "--run", "tiny", "--root", str(folder), *SMALL.split()]
    return main([*argv, "--eval-examples", "8", "--threads", "1", *options])


def test_the_end_is_one_json_object_and_progress_is_elsewhere(tmp_path, capsys):
    assert _train(tmp_path, "--json") == 0
    out, err = capsys.readouterr()
    body = json.loads(out)
    assert body["seconds"] > 0
    assert (body["run"], body["steps"]) == ("tiny", 12)
    assert body["path"] == str(tmp_path / "tiny")
    logged = Run.open(body["path"]).metrics().iloc[-1]
    assert body["metrics"]["train_loss"] == logged["train_loss"]
    assert err.startswith("step 0/12")  # Not a terminal: lines in place of a bar.
    assert "\x1b" not in err
    # A run that is complete says the same again.
    assert _train(tmp_path, "--json", "--quiet", "--resume") == 0
    again, err = capsys.readouterr()
    assert err == ""
    assert json.loads(again)["metrics"] == body["metrics"]


@pytest.mark.parametrize(("options", "lines"), [(["--quiet"], 0), ([], 1)])
def test_without_json_the_end_is_a_line_or_nothing(options, lines, tmp_path, capsys):
    assert _train(tmp_path, *options) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == lines
    assert bool(err) == bool(lines)
    assert out == "" or out.startswith("run tiny: 12 steps, ")


@pytest.mark.parametrize("k", ["0", "-2"])
def test_no_selectors_are_refused_in_one_line(k, tmp_path, capsys):
    assert _train(tmp_path, "--k", k) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"k={k} is out of range" in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())
