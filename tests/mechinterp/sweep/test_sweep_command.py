import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from mechinterp.runs import Run
from mechinterp.sweep.command import main


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A sweep of four tiny runs that was run by the command, and what the command said."""
    from tests.mechinterp.sweep.conftest import TINY

    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.toml").write_text(TINY)
    said = subprocess.run(
        [sys.executable, "-m", "mechinterp.sweep", "tiny.toml", "--jobs", "2", "--root", "runs"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert said.returncode == 0, said.stderr
    return folder, said


def _call(folder, *arguments):
    return main([*arguments, "--root", str(folder / "runs")])


def test_a_sweep_says_what_it_did_and_where(done, capsys):
    folder, said = done
    assert "4 of 4 runs complete, 0 of them before; 0 diverged; in" in said.stdout
    assert "runs complete" in said.stderr  # progress
    assert (folder / "runs/tiny/spec.toml").read_text() == (folder / "tiny.toml").read_text()
    assert _call(folder, str(folder / "tiny.toml")) == 0
    assert "4 of 4 runs complete, 4 of them before" in capsys.readouterr().out


def test_a_sweep_as_json_is_one_object_of_counts(done, capsys):
    folder, _ = done
    assert _call(folder, str(folder / "tiny.toml"), "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "runs": 4,
        "complete": 4,
        "before": 4,
        "diverged": 0,
        "failed": {},
        "folder": str(folder / "runs/tiny"),
    }
    assert _call(folder, str(folder / "tiny.toml"), "--json", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_mistyped_subcommand_is_told_from_a_file(done, capsys):
    folder, _ = done
    assert main(["statsu", str(folder / "tiny.toml")]) == 2
    assert "there is no 'statsu'; near matches: status" in capsys.readouterr().err
    assert main([str(folder / "tinny.toml")]) == 2
    assert "tinny.toml" in capsys.readouterr().err


def test_status_and_table_tell_of_every_run(done, capsys):
    folder, _ = done
    assert _call(folder, "status", str(folder / "tiny.toml")) == 0
    assert capsys.readouterr().out.startswith("4 budget\n")
    assert _call(folder, "status", str(folder / "tiny.toml"), "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["step"] for row in rows} == {24}
    metrics = folder / "metrics.parquet"
    assert _call(folder, "table", str(folder / "tiny.toml"), "--metrics", str(metrics)) == 0
    table = pd.read_csv(folder / "runs/tiny/table.csv")
    pd.testing.assert_frame_equal(table, pd.read_parquet(folder / "runs/tiny/table.parquet"))
    assert list(table["run"]) == [row["run"] for row in rows]
    assert list(table["training.lr"]) == [1e-3, 1e-3, 3e-3, 3e-3]
    assert list(table["model.init_seed"]) == [0, 1, 0, 1]
    whole = pd.read_parquet(metrics)
    for _, row in table.iterrows():
        log = Run.open(str(folder / "runs/tiny" / row["run"])).metrics()
        assert row["candidate_loss"] == log["candidate_loss"].iloc[-1]
        mine = whole[whole["run"] == row["run"]].reset_index(drop=True)
        assert list(mine["step"]) == list(log["step"])
        assert list(mine["train_loss"].dropna()) == list(log["train_loss"].dropna())


def test_a_dry_run_prints_the_runs_that_are_left_and_trains_none(done, capsys):
    folder, _ = done
    text = (folder / "tiny.toml").read_text().replace("values = [0, 1]", "values = [0, 1, 2]")
    (folder / "wider.toml").write_text('name = "tiny"\n' + text)
    before = sorted(os.listdir(folder / "runs/tiny"))
    assert _call(folder, str(folder / "wider.toml"), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "6 runs, 4 complete" in out
    assert "lr0.001-s2-" in out
    assert "lr0.001-s1-" not in out
    assert "minutes of training" in out
    assert sorted(os.listdir(folder / "runs/tiny")) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--jobs", "0"], "jobs is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--address", "auto"], "--engine ray"),
        (["--engine", "ray", "--gpus", "-1"], "gpus is -1"),
        (["--engine", "slurm"], "slurm"),
    ],
)
def test_options_that_do_not_fit_are_refused(done, capsys, options, words):
    folder, _ = done
    assert _call(folder, str(folder / "tiny.toml"), *options) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_table_of_nothing_is_refused(done, capsys):
    folder, _ = done
    text = (folder / "tiny.toml").read_text()
    (folder / "never.toml").write_text(text)
    assert _call(folder, "table", str(folder / "never.toml")) == 2
    assert "run it first" in capsys.readouterr().err
    assert _call(folder, "status", str(folder / "never.toml")) == 0
    assert capsys.readouterr().out.startswith("4 waiting")


def test_failed_runs_are_named_and_the_exit_code_says_so(done, capsys):
    folder, _ = done
    text = (folder / "tiny.toml").read_text()
    (folder / "bad.toml").write_text('after = ["no_such_module"]\n' + text)
    assert _call(folder, str(folder / "bad.toml"), "--quiet") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("No module named no_such_module") == 4
    assert "4 of 4 runs failed" in said.err
