"""Thousands of damaged runs: each is read, or refused in one line, and nothing else happens."""

import contextlib
import json
import random
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.errors import InputError
from mechinterp.runs import Run, RunWriter
from mechinterp.runs.describe import as_json, table, text
from mechinterp.runs.header import layout
from mechinterp.runs.metrics_log import read_rows
from mechinterp.runs.sealed_json import seal
from mechinterp.runs.verifying import problems_of
from tests.faults.children import CHAINS
from tests.faults.mutating import json_bytes, mutate_bytes, mutate_json, withstanding

FILES = {
    "run.json": 1200,
    "metrics.jsonl": 1500,
    "step_3/checkpoint.json": 1000,
    "step_3/model.safetensors": 900,
    "step_3/resume.safetensors": 300,
}
EVERY = 40
"""One mutant in so many is also taken up by a trainer, on a copy."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run of two checkpoints with two small tensors each."""
    path = tmp_path_factory.mktemp("mutated") / "original"
    with RunWriter.open(path, CHAINS, 15, False, "train") as run:
        for step in (0, 3):
            run.log({"step": step, "loss": 0.5})
            weights = {"embed.W_E": torch.ones(3, 4), "b": torch.zeros(3)}
            run.save(step, weights, {"exp_avg/b": torch.zeros(3, dtype=torch.float64)})
    return path


def mutant(name: str, data: bytes, chance: random.Random) -> bytes:
    if not name.endswith(".json") or chance.random() < 0.5:
        return mutate_bytes(data, chance)
    body = json.loads(data)
    body.pop("sha256")
    mutated = mutate_json(body, chance)
    # Sealed again, so that what lies behind the seal is reached.
    try:
        return seal(mutated) if isinstance(mutated, dict) else json_bytes(mutated)
    except UnicodeEncodeError:
        return json_bytes(mutated)


def weights(path) -> None:
    run = Run(path, CHAINS, {})
    for step in run.steps:
        for check in (True, False):
            # An unchecked tensor may hold any value, but it has the promised form.
            assert all(torch.is_tensor(t) for t in run.weights(step, check).values())


def take_up(path) -> None:
    with RunWriter.open(path, CHAINS, 15, True, "train") as run:
        run.resume_point()


def described(path) -> None:
    """What the command prints; it has to be encoded for that."""
    text(path).encode()
    table({"x": path}).encode()
    json.dumps(as_json(path)).encode()


def uses(path, name):
    """What is asked of a run when one of its files is damaged: all that reads it."""
    if name == "run.json":
        return [lambda: described(path), lambda: Run.open(path).task().batch, lambda: model(path)]
    if name == "metrics.jsonl":
        return [lambda: Run(path, CHAINS, {}).metrics()]
    return [lambda: weights(path)]


def model(path) -> None:
    run = Run.open(path)
    # The weights fit none of the models there could be; what counts is that none is too large.
    with contextlib.suppress(InputError):
        run.model(3)


@pytest.mark.parametrize("name", FILES)
def test_mutated_runs_are_read_or_refused(original, tmp_path, name, count):
    path = tmp_path / "mutant"
    shutil.copytree(original, path)
    data = (path / name).read_bytes()
    noticed = looked = 0
    with withstanding(count) as files:
        for seed in range(FILES[name]):
            chance = random.Random(f"{name} {seed}")
            new = mutant(name, data, chance)
            (path / name).write_bytes(new)
            refused = files.offer(*uses(path, name))
            if seed % 5 == 0:
                looked += 1
                noticed += refused or new == data or bool(problems_of(path))
            if seed % EVERY == 0:
                copy = tmp_path / "copy"
                shutil.copytree(path, copy)
                files.offer(lambda: take_up(tmp_path / "copy"))
                shutil.rmtree(copy)
    # A run.json sealed again may well describe another run.
    assert noticed > (0.75 if name == "run.json" else 0.9) * looked
    (path / name).write_bytes(data)
    assert problems_of(path) == []


def test_mutated_headers_of_tensors_are_read_or_refused(tmp_path, count):
    header = {
        "__metadata__": {"a": "b"},
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
    }
    path, refused = tmp_path / "model.safetensors", 0
    with withstanding(count) as files:
        for seed in range(2500):
            body = json_bytes(mutate_json(header, random.Random(seed)))
            path.write_bytes(len(body).to_bytes(8, "little") + body + b"\0" * 32)
            refused += files.offer(lambda: layout(path))
    assert 1000 < refused < 2500


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_at_all_as_metrics(tmp_path, data, count):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(data)
    with withstanding(count) as files:
        files.offer(lambda: read_rows(path))
