"""`python -m mechinterp.runs`: what it prints, and one line for every mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mechinterp.config import from_json
from mechinterp.runs import Run
from mechinterp.runs.__main__ import main

ROOT = Path(__file__).parents[3]


def test_list_shows_every_run_even_an_unreadable_one(run_path, capsys):
    broken = run_path.parent / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    assert main(["list", "--root", str(run_path.parent)]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "TASK", "STEP", "OF", "CHECKPOINTS", "SIZE", "PATH"]
    assert first.startswith("broken  unreadable:")
    assert second.split() == ["small", "markov_chains", "12", "12", "7", "0.0", "MB", str(run_path)]


def test_list_says_where_it_looked_when_there_is_nothing(tmp_path, capsys):
    assert main(["list", "--root", str(tmp_path / "none")]) == 0
    assert f"no runs; looked in {tmp_path}/none (does not exist)" in capsys.readouterr().out


def test_show_prints_lines_json_or_the_configuration(run_path, capsys):
    assert main(["show", str(run_path)]) == 0
    text = capsys.readouterr().out
    assert "n_params" in text
    assert "config.training" in text
    assert "last.loss" in text
    assert main(["show", str(run_path), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["steps"] == [0, 2, 4, 6, 8, 10, 12]
    assert body["resumable"] == [10, 12]
    assert body["last_row"] == {"step": 12, "loss": 1 / 13}
    assert main(["show", str(run_path), "--config"]) == 0
    assert from_json(json.loads(capsys.readouterr().out)) == Run.open(run_path).config


def test_verify_is_content_with_a_good_run_and_names_the_damage_of_a_bad_one(
    run_path, flip, capsys
):
    assert main(["verify", "small", "--root", str(run_path.parent)]) == 0
    assert capsys.readouterr().out == "small: 7 checkpoints, every hash matches\n"
    flip(run_path / "step_4" / "model.safetensors", -1)
    assert main(["verify", "--root", str(run_path.parent)]) == 2
    said = capsys.readouterr()
    assert said.out == "small: 7 checkpoints, 1 problem\n"
    assert "small step_4: model.safetensors is damaged: its sha256 is" in said.err
    assert said.err.count("\n") == 1
    flip(run_path / "metrics.jsonl", 3)
    assert main(["verify", "--root", str(run_path.parent)]) == 2
    said = capsys.readouterr()
    assert "metrics.jsonl is damaged" in said.out
    assert "2 problems, listed above" in said.err


def test_verify_repair_removes_leftovers_and_nothing_else(run_path, capsys):
    before = {path: path.read_bytes() for path in run_path.rglob("*") if path.is_file()}
    (run_path / ".tmp-1-step_14").mkdir()
    (run_path / ".tmp-1-step_14" / "model.safetensors").write_bytes(b"half")
    (run_path / "step_4" / ".tmp-2-x").write_bytes(b"")
    (run_path / ".lock").write_text("1\n")
    (run_path.parent / ".tmp-3-other").mkdir()
    assert main(["verify", "--root", str(run_path.parent)]) == 0
    said = capsys.readouterr().out
    assert "small: 3 files of a killed process; --repair removes them" in said
    assert ".tmp-3-other was never finished" in said
    assert main(["verify", "--root", str(run_path.parent), "--repair"]) == 0
    assert "small: removed .tmp-1-step_14" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in run_path.rglob("*") if path.is_file()}
    assert after == before
    assert [path.name for path in run_path.parent.iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "smal"], "no run 'smal'; there are: small"),
        (["verify", "../nowhere"], "no run at ../nowhere"),
        (
            ["import", "nowhere", "--config", "c.json", "--run", "a b"],
            "cannot be the name of a run",
        ),
        (["import", "nowhere", "--config", "c.json", "--run", "new"], "nowhere is no directory"),
        (["import", "nowhere"], "--run"),
        (["remove"], "remove"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(run_path, capsys, arguments, said):
    root = [] if arguments == ["remove"] else ["--root", str(run_path.parent)]
    assert main([*arguments, *root]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert error.startswith("python -m mechinterp.runs: ")


def test_the_command_works_from_any_folder_without_loading_torch(run_path, tmp_path):
    code = (
        "import sys; from mechinterp.runs.__main__ import main; code = main(sys.argv[1:]); "
        "assert not {'torch', 'pandas', 'transformer_lens'} & set(sys.modules); sys.exit(code)"
    )
    for arguments in (["list"], ["show", "small"], ["verify"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path / "checkpoints" / "small",
            env={"PYTHONPATH": str(ROOT), "MECHINTERP_RUNS": str(run_path.parent), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr == ""
        assert done.returncode == 0
        assert "small" in done.stdout


def _json_of(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_verify_as_json_names_the_problems_of_each_run(run_path, flip, capsys):
    root = ["--root", str(run_path.parent)]
    (run_path / "step_4" / ".tmp-2-x").write_bytes(b"")
    (run_path.parent / ".tmp-3-other").mkdir()
    assert main(["verify", *root, "--json"]) == 0
    body = _json_of(capsys)
    small = body["runs"][0]
    assert (small["run"], small["checkpoints"], small["problems"]) == ("small", 7, [])
    assert (small["leftovers"], small["removed"]) == (["step_4/.tmp-2-x"], False)
    [unborn] = body["unfinished"]
    assert unborn == {"path": str(run_path.parent / ".tmp-3-other"), "removed": False}
    flip(run_path / "step_4" / "model.safetensors", -1)
    flip(run_path / "metrics.jsonl", 3)
    assert main(["verify", *root, "--json", "--repair"]) == 2
    out, err = capsys.readouterr()
    small = json.loads(out)["runs"][0]
    assert small["removed"]
    assert len(small["problems"]) == 2
    assert "model.safetensors is damaged" in small["problems"][0]
    assert err.count("\n") == 1
    assert not (run_path / "step_4" / ".tmp-2-x").exists()


def test_verify_quietly_prints_the_problems_alone(run_path, flip, capsys):
    root = ["--root", str(run_path.parent)]
    assert main(["verify", *root, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    flip(run_path / "step_4" / "model.safetensors", -1)
    assert main(["verify", *root, "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "model.safetensors is damaged" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "small", "--to", "."], ". exists already; choose another --to"),
        (["export", "smal", "--to", "new"], "no run 'smal'"),
        (["import", "nowhere", "--run", "new"], "nowhere is no directory"),
        (["verfy"], "there is no 'verfy'; near matches: verify"),
    ],
)
def test_a_mistake_is_answered_before_anything_heavy_is_imported(run_path, arguments, said):
    code = (
        "import sys; from mechinterp.runs.__main__ import main; code = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    root = ["--root", str(run_path.parent)] if len(arguments) > 1 else []
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, *root],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
