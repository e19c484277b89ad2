import json
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch
from scipy.stats import spearmanr

from circuits import Graph, edge_gradients
from mechinterp.runs import Run
from mechinterp.trace import main
from mechinterp.tracing import PAIR_SEED


def _main(folder, *argv):
    return main(["--root", str(folder), "--examples", "16", *argv])


@pytest.fixture(scope="module")
def traced(tiny_runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("traced")
    files = ["--json", str(out / "t.json"), "--html", str(out / "t.html")]
    assert _main(tiny_runs, "--run", "lookup", "--ckpt", "step_40", "--quiet", *files) == 0
    return json.loads((out / "t.json").read_text()), (out / "t.html").read_text()


def test_the_json_holds_every_head_and_edge_and_what_decided_them(traced, tiny_runs):
    body, _ = traced
    graph = Graph.of(Run.open("lookup", tiny_runs).model(40))
    assert [row["edge"] for row in body["edges"]] == [edge.name for edge in graph.edges]
    assert {row["head"] for row in body["heads"]} == {"L0H0", "L0H1", "L1H0", "L1H1"}
    assert all(row["low"] <= row["effect"] <= row["high"] for row in body["edges"])
    assert set(body["circuit"]["edges"]) <= {edge.name for edge in graph.edges}
    assert body["reference_lines"]["ln_k"] == pytest.approx(math.log(3))
    asked = {"ablation": "zero", "granularity": "head", "examples": 16, "device": "cpu"}
    assert body["options"] == asked | {
        "gradients": False, "mechanism": None, "memory_budget": None,
    }  # fmt: skip
    assert body["gradients"] == {}
    assert body["mechanisms"]["selector"]["tables"]["selector"][0]["head"] == "L0H0"
    for part in ("heads", "edges"):
        assert {"torch", "transformer_lens", "dtype", "batch_sha256", "weight_processing"} <= set(
            body["provenance"][part]
        )


def test_gradient_methods_are_compared_with_the_edges_that_were_cut(
    traced, tiny_runs, tmp_path, capsys
):
    body, _ = traced
    files = ["--json", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html")]
    asked = ["--run", "lookup", "--ckpt", "step_40", "--gradients", *files]
    assert _main(tiny_runs, *asked) == 0
    found = json.loads((tmp_path / "t.json").read_text())["gradients"]
    run = Run.open("lookup", tiny_runs)
    task = run.task()
    clean = task.pairs(16, torch.Generator().manual_seed(PAIR_SEED)).clean
    estimated = edge_gradients(
        run.model(40), clean, "loss", method="eap", ablation="zero", scored=task.scored
    )
    cut = [abs(row["effect"]) for row in body["edges"]]
    by_hand = spearmanr(cut, estimated.table["effect"].abs()).statistic
    rows = {
        method: {row["measure"]: row["value"] for row in rows} for method, rows in found.items()
    }
    assert set(rows) == {"eap", "eap-ig-inputs", "eap-ig-activations"}
    assert rows["eap"]["rank correlation"] == pytest.approx(by_hand)
    assert rows["eap-ig-inputs"]["rank correlation"] != pytest.approx(by_hand)
    assert f"{by_hand:.2f}" in capsys.readouterr().out


def test_the_page_opens_without_a_network(traced):
    _, page = traced
    assert "Plotly.newPlot" in page
    assert "<script src=" not in page
    assert "lookup, step 40" in page


def test_the_terminal_shows_the_numbers_of_the_json(traced, tiny_runs, tmp_path, capsys):
    body, _ = traced
    page = str(tmp_path / "p.html")
    assert _main(tiny_runs, "--run", "lookup", "--ckpt", "last", "--top", "3", "--html", page) == 0
    out = capsys.readouterr().out
    for name, measured in body["diagnostics"].items():
        assert any(name in line and f"{measured['value']:.3f}" in line for line in out.splitlines())
    strongest = sorted(body["edges"], key=lambda row: -abs(row["effect"]))[:3]
    for row in body["heads"] + strongest:
        name = row.get("edge") or row["head"]
        assert any(name in line and f"{row['effect']:+.3f}" in line for line in out.splitlines())
    assert f"wrote {page}" in out
    assert "of the whole model on 16 examples" in out


@pytest.mark.parametrize("ablation", ["mean", "resample", "patch"])
def test_markov_chains_are_traced_under_every_ablation(tiny_runs, tmp_path, ablation):
    argv = ["--run", "chains", "--ckpt", "first", "--ablation", ablation, "--quiet"]
    out = tmp_path / "t.json"
    files = ["--json", str(out), "--html", str(tmp_path / "t.html")]
    assert _main(tiny_runs, *argv, "--granularity", "layer", *files) == 0
    assert len(json.loads(out.read_text())["edges"]) == 15


def test_one_mechanism_is_run_alone(tiny_runs, tmp_path):
    out = tmp_path / "t.json"
    argv = ["--run", "chains", "--ckpt", "last", "--mechanism", "phase", "--quiet"]
    assert _main(tiny_runs, *argv, "--json", str(out), "--html", str(tmp_path / "t.html")) == 0
    body = json.loads(out.read_text())
    assert list(body["mechanisms"]) == ["phase"]
    assert "edges" not in body


def _fails(capsys, words, folder, *argv):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert _main(folder, *argv) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert all(word in captured.err for word in words), captured.err
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--run", "lookup", "--ckpt", "step_39"], ["step_40", "step_20"]),
        (["--run", "lookup", "--ckpt", "newest"], ["'newest'", "last"]),
        (["--run", "lookpu", "--ckpt", "last"], ["'lookpu'", "lookup"]),
        (["--run", "lookup", "--ckpt", "last", "--ablation", "sum"], ["'sum'", "'patch'"]),
        (["--run", "lookup", "--ckpt", "last", "--examples", "1"], ["examples is 1"]),
        (["--run", "lookup", "--ckpt", "last", "--examples", "1000"], ["1000", "120"]),
        (["--run", "lookup", "--ckpt", "last", "--top", "-1"], ["top is -1"]),
        (["--run", "lookup", "--ckpt", "last", "--mechanism", "phase"], ["'phase'", "selector"]),
        (["--run", "lookup", "--ckpt", "last", "--device", "warp"], ["'warp'", "use cpu"]),
        (["--run", "lookup", "--ckpt", "last", "--html", "/proc/x/y.html"], ["/proc/x"]),
        (["--run", "lookup", "--ckpt", "/nowhere/step_1"], ["/nowhere/step_1"]),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    argv, words, tiny_runs, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _fails(capsys, words, tiny_runs, *argv)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_a_damaged_checkpoint_is_named(damage, tiny_runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_runs / "lookup", tmp_path / "runs" / "lookup")
    file = tmp_path / "runs" / "lookup" / "step_40" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data if damage == "flipped" else data[:-64])
    _fails(capsys, ["step_40"], tmp_path / "runs", "--run", "lookup", "--ckpt", "last")


def test_a_checkpoint_is_found_by_its_path_from_any_folder(tiny_runs, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mechinterp.trace", "--ckpt", str(tiny_runs / "lookup" / "step_20"),
         "--examples", "16", "--html", "page.html"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lookup, step 20 of 40" in done.stdout
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    assert "Traceback" not in done.stderr
