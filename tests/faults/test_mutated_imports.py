"""Thousands of damaged files from elsewhere: state dicts, circuits, configurations, prompts."""

import json
import random

import torch

from circuits.graph import Circuit, Graph
from circuits.interchange import from_eap_json, to_eap_json
from mechinterp.config import from_json, to_json
from mechinterp.prompt_file import read_prompts
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.runs.sealed_json import read_json
from tests.faults.children import LOOKUP
from tests.faults.mutating import json_bytes, mutate_bytes, mutate_json, withstanding

CIRCUIT = Circuit.of(Graph(2, 2), ["embed->L0H1.q", "L0H1->L1H0.v", "M0->M1", "L1H1->logits"])


def test_mutated_state_dicts_are_read_or_refused(tmp_path, count):
    path, refused = tmp_path / "model.pt", 0
    torch.save({"w": torch.ones(3, 4), "b": torch.zeros(2)}, path)
    data = path.read_bytes()
    with withstanding(count) as files:
        for seed in range(1500):
            path.write_bytes(mutate_bytes(data, random.Random(seed)))
            refused += files.offer(lambda: read_state_dict(path))
    assert refused > 400


def test_mutated_circuits_are_read_or_refused(count):
    forms = {
        CIRCUIT.to_json(): Circuit.from_json,
        to_eap_json(CIRCUIT, 16): from_eap_json,
    }
    with withstanding(count) as files:
        for text, reader in forms.items():
            refused = 0
            for seed in range(800):
                chance = random.Random(seed)
                if seed % 2:
                    new = json.dumps(mutate_json(json.loads(text), chance))
                else:
                    new = mutate_bytes(text.encode(), chance).decode("utf-8", "surrogateescape")
                refused += files.offer(lambda new=new, reader=reader: reader(new))
            assert refused > 300


def test_mutated_configurations_are_read_or_refused(tmp_path, count):
    path, body, refused = tmp_path / "config.json", to_json(LOOKUP), 0
    with withstanding(count) as files:
        for seed in range(600):
            path.write_bytes(json_bytes(mutate_json(body, random.Random(seed))))
            refused += files.offer(lambda: from_json(read_json(path)))
    assert refused > 400


def test_mutated_prompts_are_read_or_refused(tmp_path, count):
    pair = {"clean": [1, 2, 3], "corrupt": "a text", "answer": 4, "wrong": "no"}
    path, refused = tmp_path / "pairs.jsonl", 0
    with withstanding(count) as files:
        for seed in range(600):
            chance = random.Random(seed)
            data = json_bytes(pair) + b"\n" + json_bytes(mutate_json(pair, chance)) + b"\n"
            path.write_bytes(data if seed % 2 else mutate_bytes(data, chance))
            refused += files.offer(lambda: read_prompts(path))
    assert refused > 300
