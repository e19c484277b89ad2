"""Hundreds of mutated files: each is read, or refused in one line, and nothing else happens."""

import json
import random
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.errors import InputError
from mechinterp.runs import Run, RunWriter
from mechinterp.runs.describe import table, text
from mechinterp.runs.header import layout
from mechinterp.runs.metrics_log import read_rows
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.runs.sealed_json import seal
from mechinterp.runs.verifying import problems_of

ODD = [None, True, -1, 2**80, 1e308, float("nan"), "", "\ud800", "../../x", [], [[]], {}, {"a": 1}]


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    at = chance.randrange(len(data) + 1)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + chance.randbytes(chance.choice([1, 8, 100])) + data[at:]
    if kind == 2:
        return data[:at] + data[at + chance.choice([1, 8, 100]) :]
    flipped = bytearray(data)
    for _ in range(chance.choice([1, 5])):
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def mutate_json(body: object, chance: random.Random) -> object:
    """Puts something odd in the place of a random part."""
    if isinstance(body, dict) and body and chance.random() < 0.9:
        name = chance.choice(list(body))
        if chance.random() < 0.1:
            return {key: value for key, value in body.items() if key != name}
        return {**body, name: mutate_json(body[name], chance)}
    if isinstance(body, list) and body and chance.random() < 0.7:
        at = chance.randrange(len(body))
        return [*body[:at], mutate_json(body[at], chance), *body[at + 1 :]]
    return chance.choice(ODD)


def refused(action) -> bool:
    try:
        action()
    except InputError as error:
        said = str(error)
    else:
        return False
    assert "\n" not in said
    return True


def use(path) -> int:
    """Asks everything of a run that can be asked; counts the refusals."""

    def read():
        run = Run.open(path)
        for step in run.steps:
            for check in (True, False):
                # An unchecked tensor may hold any value, but it has the promised form.
                assert all(torch.is_tensor(t) for t in run.weights(step, check).values())

    actions = [
        read,
        lambda: Run.open(path).metrics(),
        lambda: Run.open(path).resolve_step("last"),
        lambda: text(path).encode(),
        lambda: table({"x": path}).encode(),
    ]
    return sum(refused(action) for action in actions) + len(problems_of(path))


def take_up(growth, path) -> None:
    with RunWriter.open(path, growth.config, growth.n_params, True, "train") as run:
        run.resume_point()


@pytest.mark.parametrize(
    "name", ["run.json", "metrics.jsonl", "checkpoint.json", "model.safetensors"]
)
def test_mutated_files_are_read_or_refused(growth, tmp_path, name):
    original = tmp_path / "original"
    growth.train(original, 1, every=1)
    (file,) = [f for f in original.rglob(name) if f.parent.name in ("original", "step_1")]
    data = file.read_bytes()
    found = 0
    for seed in range(75):
        chance = random.Random(seed)
        path = tmp_path / "mutant"
        shutil.copytree(original, path)
        if name.endswith(".json") and seed % 2:
            body = json.loads(data)
            body.pop("sha256")
            mutated = mutate_json(body, chance)
            # Sealed again, so that what lies behind the seal is reached.
            new = seal(mutated) if isinstance(mutated, dict) else json.dumps(mutated).encode()
        else:
            new = mutate_bytes(data, chance)
        (path / file.relative_to(original)).write_bytes(new)
        found += use(path) > 0
        refused(lambda: take_up(growth, tmp_path / "mutant"))
        shutil.rmtree(path)
    assert found > 60


def test_mutated_headers_of_tensors_are_read_or_refused(tmp_path):
    header = {
        "__metadata__": {"a": "b"},
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
    }
    found = 0
    path = tmp_path / "model.safetensors"
    for seed in range(150):
        body = json.dumps(mutate_json(header, random.Random(seed))).encode()
        path.write_bytes(len(body).to_bytes(8, "little") + body + b"\0" * 32)
        found += refused(lambda: layout(path))
    assert 60 < found < 150


def test_mutated_state_dicts_are_read_or_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(3, 4), "b": torch.zeros(2)}, path)
    data = path.read_bytes()
    found = 0
    for seed in range(100):
        path.write_bytes(mutate_bytes(data, random.Random(seed)))
        found += refused(lambda: read_state_dict(path))
    assert found > 30


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_at_all_as_metrics(tmp_path, data):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(data)
    refused(lambda: read_rows(path))
