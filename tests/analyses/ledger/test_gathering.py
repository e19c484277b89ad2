import gzip
import json

import pandas as pd
import pytest

from analyses.command import main
from analyses.ledger import writing
from analyses.ledger.answer_tables import KEPT, analysis_of, layered, tables_of
from analyses.ledger.gathering import LOG_ROWS, thinned
from analyses.ledger.run_rows import split_settings
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import waits
from analyses.waiting.tau import tau_table
from mechinterp.config import MarginalsConfig, ModelConfig, RunConfig, TrainingConfig
from mechinterp.runs import Run
from tests.analyses.planted_logs import falling, plant_log

STEPS = list(range(0, 3000, 20))
LN_5 = 1.6094379


def rows(at):
    """A log whose losses fall around a step."""
    names = {"candidate_loss": LN_5, "first_token_ce": 3.58, "target_ce": 2.87}
    curves = {name: falling(level, at, STEPS) for name, level in names.items()}
    curves["candidate_mass"] = [0.2] * len(STEPS)
    curves["z_gap"] = [5.0 * (step > at - 100) for step in STEPS]
    for number, step in enumerate(STEPS):
        row = {name: curve[number] for name, curve in curves.items()}
        yield {"step": step, **row, **{f"{name}_se": 0.01 for name in row}}


def config(n_b, seed):
    task = MarginalsConfig(k=5, n_b=n_b, mapping_seed=seed)
    model = ModelConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=16, init_seed=seed)
    return RunConfig(task, model, TrainingConfig(steps=3000, data_seed=seed, eval_examples=32))


def complete(path, **outcome):
    body = {"reason": "budget", "step": 2980, "seconds": 30.0, "after": ["analyses snap"]}
    (path / "outcome.json").write_text(json.dumps(body | outcome))


@pytest.fixture
def sweep(tmp_path):
    """Four complete runs, of two sizes and two seeds, and one that is not."""
    folder = tmp_path / "sweep"
    for n_b in (20, 40):
        for seed in (0, 1):
            name = f"n_b{n_b}-s{seed}"
            plant_log(folder, name, config(n_b, seed), list(rows(n_b * 20 + 50 * seed)))
            complete(folder / name)
    complete(folder / "n_b40-s0", after=[])
    complete(folder / "n_b40-s1", reason="diverged", after=[])
    plant_log(folder, "late", config(80, 0), list(rows(500)))
    (folder / "spec.toml").write_text("name = 'sizes'\n")
    return folder


def gathered(sweep, tmp_path, *more):
    argv = ["evidence", "--sweep", str(sweep), "--study", "sizes"]
    return main([*argv, "--evidence", str(tmp_path / "evidence"), *more])


def test_a_sweep_becomes_a_study(sweep, tmp_path, capsys):
    assert gathered(sweep, tmp_path) == 0
    said = capsys.readouterr().out
    assert "4 runs (3 budget, 1 diverged), 0.03 hours in all; besides seeds n_b varies" in said
    assert "left out, not complete: late" in said
    assert "not all of the sweep's commands have run yet: n_b40-s0\n" in said
    store = EvidenceStore(tmp_path / "evidence")
    runs = store.runs("sizes")
    assert sorted(runs["run"]) == ["n_b20-s0", "n_b20-s1", "n_b40-s0", "n_b40-s1"]
    assert set(runs["k"]) == {5}
    assert list(runs.sort_values("run")["rank"]) == [0, 1, 0, 1]
    assert runs.set_index("run").at["n_b40-s1", "outcome"] == "diverged"
    made = store.made("sizes")
    assert made["runs"] == 4
    assert made["seconds"] == 120.0
    assert made["after"] == ["analyses snap"]
    assert made["varies"] == ["n_b"]
    assert made["settings"]["d_model"] == 8
    assert made["versions"]["torch"]
    assert made["commit"]
    assert made["commands"][0] == "python -m mechinterp.sweep checkpoints/evidence/sizes/spec.toml"
    assert (tmp_path / "evidence/sizes/spec.toml").read_text() == "name = 'sizes'\n"


def test_tau_is_that_of_the_whole_log(sweep, tmp_path):
    assert gathered(sweep, tmp_path, "--quiet") == 0
    found = waits(EvidenceStore(tmp_path / "evidence"), "sizes").set_index("run")
    for name in ("n_b20-s0", "n_b40-s1"):
        table = tau_table(Run.open(sweep / name).metrics(), LN_5, LN_5).set_index("definition")
        assert found.at[name, "time"] == pytest.approx(table.at["a", "sound"], rel=1e-5)
    assert found.at["n_b20-s0", "time"] == pytest.approx(400, abs=1)
    assert found.at["n_b40-s0", "d"] == 200


def test_the_same_runs_give_the_same_bytes(sweep, tmp_path):
    assert gathered(sweep, tmp_path, "--quiet") == 0
    folder = tmp_path / "evidence" / "sizes"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "old.csv").write_text("run\nx\n")
    assert gathered(sweep, tmp_path, "--quiet") == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_mistakes_are_told_in_one_line(sweep, tmp_path, capsys, monkeypatch):
    assert main(["evidence", "--sweep", str(sweep)]) == 2
    assert "--study is missing" in capsys.readouterr().err
    assert main(["evidence", "--study", "x"]) == 2
    assert "give --sweep FOLDER, or --answers FILE" in capsys.readouterr().err
    assert main(["evidence", "--study", "x", "--sweep", str(tmp_path / "none")]) == 2
    assert "is no folder; give the one that a sweep wrote" in capsys.readouterr().err
    for path in sweep.glob("*/outcome.json"):
        path.unlink()
    assert gathered(sweep, tmp_path) == 2
    assert "holds 5 runs and none is complete" in capsys.readouterr().err
    complete(sweep / "late")
    monkeypatch.setattr(writing, "LARGEST", 1000)
    assert gathered(sweep, tmp_path) == 2
    assert "its largest table is log.csv" in capsys.readouterr().err
    assert not (tmp_path / "evidence" / "sizes").exists()


def test_a_log_keeps_its_ends():
    log = pd.DataFrame({"step": range(1000)})
    kept = thinned(log)
    assert len(kept) == LOG_ROWS
    assert list(kept["step"].iloc[[0, -1]]) == [0, 999]
    assert thinned(log.head(50)) is not None
    assert len(thinned(log.head(50))) == 50


def test_settings_part_into_those_that_vary():
    flat = [{"k": 5, "n_b": n, "init_seed": seed} for n in (20, 40) for seed in (0, 1)]
    assert split_settings(flat) == ({"k": 5}, ("n_b",))


def test_only_what_verdicts_need_is_kept_of_an_answer(tmp_path):
    path = tmp_path / "weight_updates.json"
    groups = [{"step": 40 * s, "lag": 1, "group": g, "cosine": 0.1, "sign_band": 0.01}
              for s in range(3) for g in ("model", "L0H0")]  # fmt: skip
    path.write_text(json.dumps({"tables": {"cosines": groups, "phases": [], "groups": groups}}))
    found = tables_of(path, analysis_of(path))
    assert list(found) == ["weight-updates-cosines"]
    assert list(found["weight-updates-cosines"].columns) == ["step", "lag", "cosine"]
    assert len(found["weight-updates-cosines"]) == 3


def test_a_trace_gives_its_step_and_layers(tmp_path):
    path = tmp_path / "trace.json"
    edges = [{"edge": e, "source": "", "reader": "", "effect": 0.1, "low": 0.0, "high": 0.2}
             for e in ("L0H0->L1H0.k", "embed->M0")]  # fmt: skip
    scores = [{"head": "L0H0", "layer": 0, "previous_token": 0.9}]
    body = {
        "step": 700,
        "options": {"granularity": "head"},
        "config": {"model": {"n_heads": 1}},
        "mechanisms": {"induction": {"tables": {"induction": scores, "other": scores}}},
        "edges": edges,
    }
    path.write_text(json.dumps(body))
    found = tables_of(path, "trace")
    assert set(found) == {"trace-edges", "trace-induction-induction"}
    assert list(found["trace-edges"]["edge"]) == ["A0->A1.k", "embed->M0"]
    assert set(found["trace-edges"]["step"]) == {700}
    # With several heads a layer, an edge of one head is not the layer's.
    body["config"]["model"]["n_heads"] = 4
    path.write_text(json.dumps(body))
    assert set(tables_of(path, "trace")) == {"trace-induction-induction"}
    assert layered("L0H0->L1H1.k") == "A0->L1H1.k"


@pytest.mark.parametrize(
    ("name", "analysis"),
    [("pool-model-0", "pool-model"), ("weight_updates", "weight-updates"), ("phases", "phases"),
     ("symmetric-model-2", "symmetric-model"), ("trace-300", "trace-300")],
)  # fmt: skip
def test_the_name_of_a_file_tells_its_analysis(name, analysis, tmp_path):
    assert analysis_of(tmp_path / f"{name}.json") == analysis
    assert (analysis in KEPT) == (not name.startswith("trace"))


def test_answers_without_runs_make_a_study(tmp_path, capsys):
    paths = []
    for seed in (0, 1):
        path = tmp_path / f"linear-net-{seed}.json"
        model = {"k": 4, "n_b": 60, "seed": seed, "candidate_loss": 1.2}
        provenance = {"versions": {"torch": "2"}}
        path.write_text(json.dumps({"tables": {"models": [model]}, "provenance": provenance}))
        paths.append(str(path))
    argv = ["evidence", "--study", "minimal-models", "--evidence", str(tmp_path), "--answers"]
    assert main([*argv, *paths]) == 0
    store = EvidenceStore(tmp_path)
    assert list(store.table("minimal-models", "linear-net-models")["run"]) == [
        "linear-net-0",
        "linear-net-1",
    ]
    assert store.made("minimal-models")["versions"] == {"torch": "2"}
    (tmp_path / "other.json").write_text('{"tables": {}}')
    capsys.readouterr()
    assert main([*argv, str(tmp_path / "other.json")]) == 2
    assert "other.json is of no analysis that the ledger reads" in capsys.readouterr().err


def test_large_tables_are_packed_and_read_back(tmp_path):
    table = pd.DataFrame({"run": ["a"] * 30000, "value": [k / 7 for k in range(30000)]})
    name, content = writing.packed("log", table)
    assert name == "log.csv.gz"
    assert b"0.142857" in gzip.decompress(content)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / name).write_bytes(content)
    found = EvidenceStore(tmp_path).table("study", "log")
    assert found["value"].iloc[1] == 0.142857
    with pytest.raises(NoEvidence, match="the study study has no table other"):
        EvidenceStore(tmp_path).table("study", "other")
    with pytest.raises(NoEvidence, match="the study none has not been run"):
        EvidenceStore(tmp_path).runs("none")
