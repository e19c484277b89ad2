import json

import pytest

from mechinterp.runs import Run
from mechinterp.trace import main
from mechinterp.trace_json import as_json
from mechinterp.tracing import Options, trace


@pytest.fixture(scope="module")
def traced(tiny_runs, tmp_path_factory):
    """All checkpoints of the tiny chain run, traced by the command; the file, and the cache."""
    folder = tmp_path_factory.mktemp("all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECHINTERP_CACHE", str(folder / "cache"))
        assert _call(tiny_runs, folder / "all.json") == 0
    return folder


def _call(root, file, *more):
    return main(
        [
            "--run", "chains", "--ckpt", "all", "--root", str(root), "--granularity", "layer",
            "--examples", "8", "--jobs", "2", "--json", str(file), *more,
        ]
    )  # fmt: skip


def test_every_checkpoint_has_the_trace_it_has_alone(traced, tiny_runs):
    documents = json.loads((traced / "all.json").read_text())
    run = Run.open(tiny_runs / "chains")
    assert [one["step"] for one in documents] == run.steps == [0, 20, 40]
    alone = as_json(trace(run, 40, Options("zero", "layer", 8)))
    found = {row["edge"]: row["effect"] for row in documents[2]["edges"]}
    assert found == pytest.approx({row["edge"]: row["effect"] for row in alone["edges"]}, abs=1e-6)
    assert documents[0]["edges"] != documents[2]["edges"]
    shas = [one["provenance"]["checkpoint_sha256"] for one in documents]
    assert shas == [run.checkpoint_hash(step) for step in run.steps]


def test_nothing_is_traced_twice_and_damage_costs_one_trace(traced, tiny_runs, monkeypatch, capsys):
    monkeypatch.setenv("MECHINTERP_CACHE", str(traced / "cache"))
    kept = sorted((traced / "cache").glob("*.trace.json"))
    assert len(kept) == 3
    before = {path: path.stat().st_mtime_ns for path in kept}
    kept[1].write_text("{")
    assert _call(tiny_runs, traced / "again.json") == 0
    said = capsys.readouterr().out
    assert "3 checkpoints of chains, 2 traced before" in said
    assert "strongest edge" in said
    after = {path: path.stat().st_mtime_ns for path in kept}
    assert [path for path in kept if before[path] != after[path]] == [kept[1]]
    assert (traced / "again.json").read_text() == (traced / "all.json").read_text()


def test_another_question_is_another_trace(traced, tiny_runs, monkeypatch, capsys):
    monkeypatch.setenv("MECHINTERP_CACHE", str(traced / "cache"))
    assert _call(tiny_runs, traced / "mean.json", "--ablation", "mean") == 0
    assert "0 traced before" in capsys.readouterr().out
    assert len(list((traced / "cache").glob("*.trace.json"))) == 6


def test_a_damaged_checkpoint_is_named_and_the_others_are_kept(
    tiny_runs, tmp_path, monkeypatch, capsys
):
    import shutil

    shutil.copytree(tiny_runs / "chains", tmp_path / "chains")
    weights = tmp_path / "chains" / "step_20" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    monkeypatch.setenv("MECHINTERP_CACHE", str(tmp_path / "cache"))
    assert _call(tmp_path, tmp_path / "all.json", "--quiet") == 2
    said = capsys.readouterr().err
    assert "1 of 3 checkpoints were not traced, the first at step 20: " in said
    assert "is damaged" in said
    assert said.count("\n") == 1
    assert len(list((tmp_path / "cache").glob("*.trace.json"))) == 2
    assert not (tmp_path / "all.json").exists()


def test_more_examples_than_the_task_has_are_refused_at_once(tiny_runs, capsys):
    assert main(["--run", "lookup", "--ckpt", "all", "--root", str(tiny_runs)]) == 2
    assert "--examples is 256, and the task of run lookup has 120" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ckpt", "all", "--html", "x.html"], "--html is for one checkpoint"),
        (["--ckpt", "all", "--memory-budget", "1GiB"], "--memory-budget is for one checkpoint"),
        (["--ckpt", "all", "--jobs", "0"], "jobs is 0"),
        (["--ckpt", "all", "--run", "nowhere"], "no run 'nowhere'"),
        (["--ckpt", "last", "--jobs", "2"], "--jobs goes with --ckpt all"),
        (["--ckpt", "last", "--engine", "ray"], "--engine ray goes with --ckpt all"),
    ],
)
def test_options_that_do_not_fit_are_refused(capsys, options, words):
    assert main(options) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
