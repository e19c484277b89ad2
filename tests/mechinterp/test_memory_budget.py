"""A memory budget holds for the whole process; what does not fit is told before it starts."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
import transformers

from circuits.errors import InputError
from mechinterp.memory_budget import MARGIN, parse_size, written
from mechinterp.memory_needs import Shape
from mechinterp.model import build_model
from mechinterp.runs import Run
from mechinterp.trace import main
from tests.mechinterp.tiny_checkpoints import own_model, save, write

WORKER = """
import contextlib, io, json, pathlib, re, sys
from mechinterp.command import heavy_imports
from mechinterp.trace import main
with heavy_imports():
    import mechinterp.trace_report

found = []
for budget, *argv in json.loads(sys.argv[1]):
    said = io.StringIO()
    if budget == "told":
        budget = re.search(r"needs about (\\S+)", found[-1]["said"])[1]
    with contextlib.redirect_stderr(said):
        code = main([*argv, "--quiet", *(["--memory-budget", budget] if budget else [])])
    status = pathlib.Path("/proc/self/status").read_text()
    peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
    found.append({"budget": budget, "code": code, "said": said.getvalue(), "peak": peak})
print(json.dumps(found))
"""
"""Traces one after the other, in a process that has nothing else to remember."""


@pytest.fixture(scope="module")
def traces(tiny_runs, tmp_path_factory):
    """A run and a model with many tokens: refused, with the budget that the refusal names, free."""
    folder = tmp_path_factory.mktemp("budget")
    config = transformers.GPT2Config(
        vocab_size=20_000, n_positions=32, n_embd=48, n_layer=2, n_head=2, bos_token_id=0
    )
    save(own_model(config), folder / "wide")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 20_000, (24, 2, 12), generator=generator).tolist()
    rows = [{"clean": clean, "corrupt": corrupt, "answer": 5} for clean, corrupt in drawn]
    data = write(rows, folder / "pairs.jsonl")
    page = ["--html", str(folder / "p.html")]
    run = ["--run", "lookup", "--ckpt", "last", "--root", str(tiny_runs), "--examples", "16", *page]
    model = ["--model", str(folder / "wide"), "--data", str(data), *page]
    jobs = [["300MiB", *run], ["told", *run]]
    jobs += [["600MiB", *model], ["told", *model], [None, *model]]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(jobs)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_memory_of_the_process_stays_within_the_budget(traces):
    """The budget that the refusal names is enough, and the one that was refused is not."""
    refused, kept, free = traces[2:]
    assert refused["code"] == 2
    assert refused["said"].count("\n") == 1
    assert "memory-budget is 600MiB but this trace needs about " in refused["said"]
    assert "nothing was started: give that much" in refused["said"]
    assert (kept["code"], kept["said"]) == (0, "")
    assert kept["peak"] <= parse_size(kept["budget"])
    assert free["code"] == 0
    # The control: what was refused would indeed not have fitted, and the estimate is no excuse.
    assert parse_size("600MiB") < free["peak"]
    assert parse_size(kept["budget"]) < 1.6 * free["peak"]


def test_it_holds_for_the_trace_of_a_run_too(traces):
    refused, kept = traces[:2]
    assert refused["code"] == 2
    assert (kept["code"], kept["said"]) == (0, "")
    assert refused["peak"] < kept["peak"] <= parse_size(kept["budget"])


def test_a_number_of_examples_that_would_fit_is_named(tiny_runs, tmp_path, capsys, monkeypatch):
    """And it does fit, where one more does not."""
    monkeypatch.setattr("mechinterp.memory_budget.resident", lambda: 0)
    argv = ["--run", "chains", "--ckpt", "last", "--root", str(tiny_runs), "--quiet"]
    argv += ["--html", str(tmp_path / "p.html"), "--memory-budget"]
    told = []
    for examples in ("2", "200"):
        assert main([*argv, "1MiB", "--examples", examples]) == 2
        told.append(
            parse_size(re.search(r"needs about (\S+)", capsys.readouterr().err)[1]) - MARGIN
        )
    assert told[0] + 2**22 < told[1]
    argv += [str(sum(told) // 2), "--examples"]
    assert main([*argv, "200"]) == 2
    most = int(re.search(r"or --examples (\d+)", capsys.readouterr().err)[1])
    assert 2 <= most < 200
    assert main([*argv, str(most + 1)]) == 2
    capsys.readouterr()

    def begin(*_):
        raise ConnectionAbortedError("it started")

    monkeypatch.setattr("mechinterp.tracing.load", begin)
    with pytest.raises(ConnectionAbortedError, match="it started"):
        main([*argv, str(most)])


def test_the_weights_are_counted_as_they_are(tiny_runs):
    run, config = Run.open("lookup", tiny_runs), Run.open("lookup", tiny_runs).config.model
    model = build_model(config, run.task().d_vocab)
    shape = Shape.of(model.cfg, 8, 1, 2)
    own = sum(p.numel() * p.element_size() for p in model.parameters())
    assert own <= shape.weights <= 1.2 * own


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * 2**30),
        ("1.5g", 3 * 2**29),
        ("500MB", 500 * 10**6),
        ("500 mib", 500 * 2**20),
        ("7k", 7 * 1024),
        ("123", 123),
        ("123B", 123),
        ("1TB", 10**12),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("size", [1, 2**20, 5 * 2**20 + 1, 2**30 - 1, 2**30, 3 * 2**30 + 7])
def test_a_size_as_written_is_no_smaller(size):
    assert size <= parse_size(written(size)) <= 1.11 * size + 2**20


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "2GiBs", "1e9", "1,5G", "GiB", "9" * 99])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match=r"memory-budget is '.*'; give a size like 2GiB"):
        parse_size(text)


def test_another_device_has_no_budget(tiny_runs, capsys, tmp_path):
    argv = ["--run", "lookup", "--ckpt", "last", "--root", str(tiny_runs), "--device", "cuda"]
    argv += ["--memory-budget", "9GiB", "--html", str(tmp_path / "p.html")]
    assert main(argv) == 2
    assert "counts the computer's memory, not that of cuda" in capsys.readouterr().err
