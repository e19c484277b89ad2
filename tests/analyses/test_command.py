import json
import subprocess
import sys
from importlib import import_module

import pytest

from analyses.catalogue import REQUESTS, question
from analyses.command import main


def test_the_list_names_every_analysis_with_its_question(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(REQUESTS)
    for line, (name, kind) in zip(lines, REQUESTS.items(), strict=True):
        assert line.startswith(name.replace("_", "-"))
        assert line.endswith(question(kind))
        assert question(kind).endswith("?")


def test_the_list_as_json_is_the_question_by_the_name(capsys):
    assert main(["list", "--json"]) == 0
    questions = json.loads(capsys.readouterr().out)
    assert questions == {name.replace("_", "-"): question(kind) for name, kind in REQUESTS.items()}


@pytest.mark.parametrize("name", list(REQUESTS))
def test_every_analysis_has_its_module(name):
    assert callable(import_module(f"analyses.{name}").answer)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from analyses.command import main\n"
        "try: main(['plateau', '--help'])\n"
        "except SystemExit as leave: assert leave.code == 0\n"
        "heavy = {'torch', 'pandas', 'plotly', 'transformer_lens', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "marginal or" in done.stdout


def _files(tmp_path):
    return ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]


def test_json_and_html_hold_what_is_printed(tiny_runs, tmp_path, capsys):
    argv = ["plateau", "--run", "lookup-12", "--root", str(tiny_runs), *_files(tmp_path)]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    body = json.loads((tmp_path / "a.json").read_text())
    assert out.splitlines() == body["summary"]
    assert err.count("wrote") == 2
    assert [row["definition"] for row in body["tables"]["taus"]] == list("abcde")
    assert body["provenance"]["run"] == "lookup-12"
    assert body["provenance"]["options"] == {"source": "log", "examples": 12}
    page = (tmp_path / "a.html").read_text()
    assert "Plotly.newPlot" in page
    assert "<script src=" not in page
    assert "plateau: How long" in page


@pytest.mark.parametrize(
    ("argv", "tables"),
    [
        (["snap", "--run", "lookup-12", "--groups", "12", "--permutations", "100"], "snap verdict"),
        (["phases", "--run", "chains", "--examples", "8"], "phases log transitions transience"),
        (["scaling", "--runs", "lookup-6", "lookup-12", "lookup-24"], "fits points"),
        (
            ["weight-updates", "--run", "lookup-12"],
            "phases averages cosines updates groups momentum",
        ),
        (
            ["asymmetry", "--forward", "forward-12", "--reverse", "lookup-12"],
            "ratios times",
        ),
    ],
)
def test_every_analysis_writes_both_files(argv, tables, tiny_runs, tmp_path, capsys):
    assert main([*argv, "--root", str(tiny_runs), "--quiet", *_files(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert set(json.loads((tmp_path / "a.json").read_text())["tables"]) == set(tables.split())
    assert (tmp_path / "a.html").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plato"], ["plato", "plateau"]),
        (["plateau", "--run", "lookup-21"], ["'lookup-21'", "lookup-12"]),
        (["plateau", "--run", "chains"], ["chains", "bz_to_a"]),
        (["plateau", "--source", "memory"], ["'memory'", "'checkpoints"]),
        (["snap", "--run", "short", "--groups", "6"], ["short has 3 rows", "--eval-every"]),
        (["phases", "--run", "lookup-6"], ["markov_chains", "lookup-6"]),
        (["scaling", "--runs", "lookup-6"], ["at least 3"]),
        (["scaling", "--x", "z"], ["'z'"]),
        (["asymmetry", "--reverse", "lookup-6"], ["--forward names no run", "az_to_b"]),
        (["asymmetry", "--forward", "forward-12", "--reverse", "lookup-6"], ["n_b 12", "mapping"]),
        (["kinetics", "--runs", "chains"], ["at least 2", "different k"]),
        (["kinetics", "--runs", "chains", "lookup-6"], ["lookup-6", "markov_chains"]),
        (["kinetics", "--runs", "chains", "chains"], ["twice"]),
        ([], ["plateau"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv, words, tiny_runs, capsys):
    root = ["--root", str(tiny_runs)] if argv[:1] not in ([], ["plato"]) else []
    assert main([*argv, *root]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("python -m analyses: ")
    assert all(word in err for word in words), err


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tiny_runs, tmp_path, capsys):
    root = ["--run", "no-such-run", "--root", str(tiny_runs)]
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "file" / "a.json", "a part of the path is a file"),
        (tmp_path, "it is a directory, not a file"),
    ):
        assert main(["plateau", *root, "--json", str(path)]) == 2
        assert reason in capsys.readouterr().err
