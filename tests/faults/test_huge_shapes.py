"""Files that declare more than they hold are refused by their headers, before any allocation."""

import dataclasses
import json
import shutil

import pytest
import torch

from circuits.errors import InputError
from circuits.graph import Circuit
from circuits.interchange import from_eap_json
from mechinterp.config import from_json, to_json
from mechinterp.runs import Run
from mechinterp.runs.header import layout
from mechinterp.runs.importing import import_run
from mechinterp.runs.manifest import read_manifest
from mechinterp.runs.oversize import refuse_larger
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.runs.sealed_json import seal
from tests.faults.children import LOOKUP
from tests.faults.mutating import withstanding

HUGE = ([2**40], [2**20, 2**20], [2**62, 4], [3, 2**33], [10**30])


@pytest.fixture
def refused(count):
    """Makes sure of a refusal in one line, with little memory to spare for anything else."""

    def check(use, said):
        with withstanding(lambda *_, **__: None), pytest.raises(InputError, match=said) as caught:
            use()
        assert "\n" not in str(caught.value)
        count("huge shapes", tried=1, refused_before_allocation=1)

    return check


def safetensors(path, shape, claimed=None) -> None:
    size = claimed if claimed is not None else 16
    header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("honest", [True, False])
def test_a_tensor_that_claims_more_than_there_is(shape, honest, tmp_path, refused):
    path = tmp_path / "model.safetensors"
    size = 4
    for length in shape:
        size *= length
    safetensors(path, shape, size if honest else None)
    refused(lambda: layout(path), r"'w' claims .* bytes, 16 are there for all tensors")


def test_a_header_longer_than_the_file(tmp_path, refused):
    path = tmp_path / "model.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    refused(lambda: layout(path), r"its header claims \d+ bytes, the file has 10")


def test_a_checkpoint_with_a_huge_tensor(grown, tmp_path, refused):
    path = tmp_path / "lookup"
    shutil.copytree(grown / "lookup", path)
    safetensors(path / "step_4/model.safetensors", [2**40], 2**42)
    run = Run.open(path)
    refused(lambda: run.weights(4), "is damaged")
    refused(lambda: run.weights(4, check=False), "'w' claims")
    refused(lambda: run.model(4), "is damaged")
    # What a run says of another step is of no weight.
    assert read_manifest(path, 6).step == 6


@pytest.mark.parametrize(
    "changes",
    [{"d_model": 2**20}, {"n_layers": 10**6}, {"n_ctx": 2**31}, {"d_mlp": 2**40}],
    ids=str,
)
def test_a_configuration_far_larger_than_its_weights(changes, grown, tmp_path, refused):
    path = tmp_path / "lookup"
    shutil.copytree(grown / "lookup", path)
    body = json.loads((path / "run.json").read_text())
    body.pop("sha256")
    body["config"]["model"] |= changes
    (path / "run.json").write_bytes(seal(body))
    said = "the weights do not fit the configuration: it describes|n_ctx is"
    refused(lambda: Run.open(path).model(4), said)
    model = dataclasses.replace(LOOKUP.model, **changes)
    refused(lambda: refuse_larger(model, 10**4), said)


@pytest.mark.parametrize("changes", [{"d_model": 2**20}, {"d_mlp": 2**40}], ids=str)
def test_an_import_by_a_configuration_far_larger_than_its_weights(
    changes, grown, tmp_path, refused
):
    (tmp_path / "dicts/step_4").mkdir(parents=True)
    shutil.copy(grown / "lookup/step_4/model.safetensors", tmp_path / "dicts/step_4")
    body = to_json(LOOKUP)
    body["model"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(body))
    refused(
        lambda: import_run(
            tmp_path / "dicts", tmp_path / "config.json", tmp_path / "run", "the command"
        ),
        "model.safetensors cannot be imported: the weights do not fit the configuration",
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["k", "n_b"])
def test_a_task_larger_than_any_there_can_be(field, refused):
    body = to_json(LOOKUP)
    body["task"][field] = 10**12

    def make():
        from mechinterp.tasks import make_task

        return make_task(from_json(body).task).batch(0, 1, torch.Generator())

    refused(make, f"{field}=10+ .*out of range")


def test_a_state_dict_that_claims_more_than_it_holds(tmp_path, refused):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(1).expand(2**33)}, path)
    refused(lambda: read_state_dict(path), "'w' claims more elements than the file holds")
    torch.save({"w": torch.ones(70_000)}, path)
    count = (70_000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(count, (2**30).to_bytes(4, "little")))
    refused(lambda: read_state_dict(path), "cannot be imported")


def test_a_graph_of_more_edges_than_can_be_listed(refused):
    for n_layers, n_heads in ((10**9, 1), (1, 10**6), (5000, 5000)):
        own = {"graph": {"n_layers": n_layers, "n_heads": n_heads}, "edges": ["embed->logits"]}
        refused(lambda own=own: Circuit.from_json(json.dumps(own)), "edges; at most 4,000,000")
        cfg = {"n_layers": n_layers, "n_heads": n_heads, "parallel_attn_mlp": False}
        theirs = {"cfg": cfg, "nodes": {}, "edges": {}}
        refused(lambda theirs=theirs: from_eap_json(json.dumps(theirs)), "edges; at most 4,000,000")
