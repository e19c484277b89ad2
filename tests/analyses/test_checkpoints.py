import hashlib

import pandas as pd
import pytest

from analyses.cache import cached
from analyses.checkpoints import measure_checkpoints, read_from
from mechinterp.runs import Run


def _norms(seen):
    def measure(model):
        seen.append(1)
        return pd.DataFrame([{"norm": model.W_U.norm().item(), "name": "W_U"}])

    return measure


def test_what_was_measured_is_not_measured_again(tiny_runs):
    run, seen = Run.open("lookup-6", tiny_runs), []
    first = measure_checkpoints(run, [0, 8], "norm", {"a": 1}, _norms(seen))
    assert len(seen) == 2
    assert first["step"].tolist() == [0, 8]
    assert first["norm"].tolist() == [run.model(s).W_U.norm().item() for s in (0, 8)]
    again = measure_checkpoints(run, [0, 8, 16], "norm", {"a": 1}, _norms(seen))
    assert len(seen) == 3  # only the new one
    pd.testing.assert_frame_equal(again.head(2), first)
    measure_checkpoints(run, [0], "norm", {"a": 2}, _norms(seen))
    measure_checkpoints(run, [0], "other norm", {"a": 1}, _norms(seen))
    assert len(seen) == 5  # other options, another version


def test_other_weights_are_other_numbers(tiny_runs):
    seen = []
    for name in ("lookup-6", "lookup-12"):
        run = Run.open(name, tiny_runs)
        measure_checkpoints(run, [120], "norm", {}, _norms(seen))
    assert len(seen) == 2


def test_the_cache_can_be_off_and_heals_itself(cache, monkeypatch):
    calls = []

    def compute():
        calls.append(1)
        return pd.DataFrame({"a": [1.5]})

    cached({"x": 1}, compute)
    assert cached({"x": 1}, compute)["a"].tolist() == [1.5]
    assert len(calls) == 1
    (entry,) = cache.iterdir()
    entry.write_bytes(b"nonsense")
    assert cached({"x": 1}, compute)["a"].tolist() == [1.5]
    monkeypatch.setenv("MECHINTERP_CACHE", "off")
    cached({"x": 1}, compute)
    assert len(calls) == 3


def test_a_folder_that_cannot_be_written_to_only_costs_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("MECHINTERP_CACHE", str(blocked))
    assert cached({"x": 1}, lambda: pd.DataFrame({"a": [2]}))["a"].tolist() == [2]


def test_what_was_read_is_named(tiny_runs):
    run = Run.open("lookup-6", tiny_runs)
    found = read_from(run, [8])
    assert found["checkpoints"] == {"8": run.checkpoint_hash(8)}
    assert found["config"]["task"]["n_b"] == 6
    assert "torch" in found["versions"]
    log = (tiny_runs / "lookup-6" / "metrics.jsonl").read_bytes()
    assert found["metrics_sha256"] == hashlib.sha256(log).hexdigest()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals_only(terminal, tiny_runs, capsys, monkeypatch):
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    measure_checkpoints(Run.open("lookup-6", tiny_runs), [0], "norm", {}, _norms([]))
    out, err = capsys.readouterr()
    assert out == ""
    assert ("norm: checkpoints" in err) == terminal
