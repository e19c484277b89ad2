"""Runs made of torch.save'd state dicts: good ones, misfits, and files that want to run code."""

import json
import os
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig, ModelConfig, RunConfig, TrainingConfig, to_json
from mechinterp.model import build_model, weights_of
from mechinterp.runs import Run
from mechinterp.runs.__main__ import main
from mechinterp.runs.importing import find_state_dicts, import_run
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.runs.verifying import problems_of
from mechinterp.tasks import make_task

TINY = ModelConfig(n_layers=1, n_heads=2, d_model=8, positions="rotary", n_ctx=16)
CONFIG = RunConfig(MarkovChainsConfig(n_states=4, k=2, length=16), TINY, TrainingConfig(steps=10))


@pytest.fixture(scope="module")
def model():
    return build_model(CONFIG.model, make_task(CONFIG.task).d_vocab)


@pytest.fixture
def source(model, tmp_path):
    """A directory as research code leaves it: one nested checkpoint, one flat one, and notes."""
    folder = tmp_path / "old"
    (folder / "step_000004").mkdir(parents=True)
    torch.save(model.state_dict(), folder / "step_000004" / "model.pt")
    torch.save(
        {k: v.clone() for k, v in weights_of(model).items()}, folder / "model_step_0000010.pt"
    )
    (folder / "notes.txt").write_text("")
    (folder / "config.json").write_text(json.dumps(to_json(CONFIG)))
    return folder


def bring(source, tmp_path):
    return import_run(source, source / "config.json", tmp_path / "imported", "import it")


def test_an_imported_run_is_a_run_like_any_other(source, model, tmp_path, capsys):
    arguments = [str(source), "--config", str(source / "config.json"), "--run", "imported"]
    assert main(["import", *arguments, "--root", str(tmp_path / "runs")]) == 0
    assert "2 checkpoints, step 4 to 10" in capsys.readouterr().out
    run = Run.open(tmp_path / "runs" / "imported")
    assert run.steps == [4, 10]
    assert run.config == CONFIG
    assert run.metrics().empty
    assert any("rotary_sin" in name for name in model.state_dict())
    assert not any(
        name.endswith(("mask", "IGNORE", "rotary_sin", "rotary_cos")) for name in run.weights(4)
    )
    for name, tensor in weights_of(model).items():
        assert torch.equal(run.weights(4)[name], tensor)
        assert torch.equal(weights_of(run.model(10))[name], tensor)
    assert problems_of(run.path) == []
    assert main(["import", *arguments, "--root", str(tmp_path / "runs")]) == 2
    assert "exists already" in capsys.readouterr().err


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["zip", "legacy", "bare pickle", "protocol 5"])
def test_a_payload_is_refused_in_one_line_and_does_not_run(source, tmp_path, capsys, form):
    path, marker = source / "step_000004" / "model.pt", tmp_path / "ran"
    body = {"embed.W_E": Payload(marker)}
    if form == "bare pickle":
        path.write_bytes(pickle.dumps(body))
    elif form == "protocol 5":
        torch.save(body, path, pickle_protocol=5)
    else:
        torch.save(body, path, _use_new_zipfile_serialization=form == "zip")
    arguments = [str(source), "--config", str(source / "config.json"), "--run", "imported"]
    assert main(["import", *arguments, "--root", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "model.pt cannot be imported" in error
    if form == "zip":
        assert "it refers to posix.mkdir, which is no tensor; nothing was run" in error
    assert not marker.exists()
    assert not list((tmp_path / "runs").glob("*"))
    # The control: loaded carelessly, this very file does run.
    if form == "zip":
        torch.load(path, weights_only=False)
        assert marker.exists()


def test_a_state_dict_that_does_not_fit_names_the_keys(source, model, tmp_path):
    path = source / "step_000004" / "model.pt"
    weights = {k: v for k, v in weights_of(model).items() if k != "embed.W_E"}
    torch.save({**weights, "extra": torch.ones(1)}, path)
    with pytest.raises(InputError, match=r"model.pt .* missing embed.W_E; unexpected extra"):
        bring(source, tmp_path)
    torch.save({**weights_of(model), "embed.W_E": torch.full((4, 8), float("inf"))}, path)
    with pytest.raises(InputError, match=r"model.pt .*(embed.W_E is|embed.W_E holds NaN)"):
        bring(source, tmp_path)
    assert not (tmp_path / "imported").exists()
    assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (torch.ones(2), "holds a Tensor, not a dictionary"),
        ({}, "holds a dict, not a dictionary of tensors"),
        ({"a": {"b": torch.ones(2)}}, "'a' is a dict; only tensors"),
        ({"step": 4}, "'step' is a int; only tensors"),
        ({3: torch.ones(2)}, "'3' is a Tensor; only tensors"),
        ({"a": torch.ones(1).expand(10**9)}, "'a' claims more elements than the file holds"),
        ({"a": torch.eye(2).to_sparse()}, "which is no tensor"),
    ],
)
def test_what_is_not_a_dictionary_of_dense_tensors_is_refused(tmp_path, body, said):
    torch.save(body, tmp_path / "model.pt")
    with pytest.raises(InputError, match=said):
        read_state_dict(tmp_path / "model.pt")


def test_parameters_orders_views_and_types_survive(tmp_path):
    base = torch.arange(12.0)
    body = OrderedDict(
        a=torch.nn.Parameter(base[:4].clone()), b=base[4:].reshape(2, 4).T, c=base.half()
    )
    torch.save(body, tmp_path / "model.pt")
    back = read_state_dict(tmp_path / "model.pt")
    assert list(back) == ["a", "b", "c"]
    assert all(torch.equal(back[name], body[name]) for name in body)
    assert back["c"].dtype == torch.float16


def rewrite(path, change, compression=zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(name, change(name, data))


def test_a_storage_that_claims_more_than_its_record_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(70_000)}, path)
    count = (70_000).to_bytes(4, "little")
    rewrite(path, lambda name, data: data.replace(count, (2**30).to_bytes(4, "little")))
    with pytest.raises(InputError, match=r"cannot read it|claims more elements"):
        read_state_dict(path)


def test_a_compressed_archive_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"a": torch.zeros(10**6)}, path)
    rewrite(path, lambda name, data: data, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match=r"it is compressed, which torch.save never does"):
        read_state_dict(path)


def test_a_directory_without_checkpoints_says_what_was_looked_for(source, tmp_path):
    with pytest.raises(InputError, match=r"looked for step_004000/model.pt and model_step_0004000"):
        find_state_dicts(source / "step_000004")
    with pytest.raises(InputError, match=r"cannot read .*nowhere"):
        find_state_dicts(tmp_path / "nowhere")
    os.rename(source / "model_step_0000010.pt", source / "model_step_4.pt")
    with pytest.raises(InputError, match="are both for step 4; remove one"):
        find_state_dicts(source)


def test_a_configuration_that_is_none_is_refused(source, tmp_path):
    for text, said in (("{", "is not valid JSON"), ("{}", "it needs exactly"), ("[]", "a list")):
        (source / "config.json").write_text(text)
        with pytest.raises(InputError, match=said):
            bring(source, tmp_path)
    assert not (tmp_path / "imported").exists()
