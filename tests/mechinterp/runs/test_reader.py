"""Opening runs, choosing steps, and reading weights that may be damaged."""

import json
import os
import shutil

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import from_json, to_json
from mechinterp.runs import Run, open_checkpoint
from mechinterp.runs.sealed_json import seal


def test_a_run_tells_its_name_configuration_and_steps(run_path, config):
    run = Run.open(run_path)
    assert run.name == "small"
    assert run.path == run_path
    assert run.config == config
    assert run.steps == [0, 2, 4, 6, 8, 10, 12]
    assert run.meta["n_params"] == 15
    assert run.task() is run.task()
    assert run.task().config == config.task


@pytest.mark.parametrize(
    ("spec", "step"),
    [("step_4", 4), ("4", 4), (4, 4), ("step_0004", 4), ("last", 12), ("first", 0), ("0", 0)],
)
def test_a_step_can_be_said_in_several_ways(run_path, spec, step):
    assert Run.open(run_path).resolve_step(spec) == step


def test_a_checkpoint_can_be_said_by_its_path(run_path, tmp_path, monkeypatch):
    run = Run.open(run_path)
    assert run.resolve_step(str(run_path / "step_4")) == 4
    monkeypatch.chdir(run_path)
    assert run.resolve_step("./step_4/") == 4
    with pytest.raises(InputError, match="is not a checkpoint directory of run small"):
        run.resolve_step(str(tmp_path / "step_4"))


def test_an_unknown_step_lists_the_nearest_ones(run_path):
    with pytest.raises(InputError) as caught:
        Run.open(run_path).resolve_step("step_7")
    assert str(caught.value) == (
        "run small has no checkpoint at step 7; the nearest are step_2, step_4, step_6, step_8, "
        "step_10 (it has 7 checkpoints from step 0 to 12)"
    )


@pytest.mark.parametrize("spec", ["newest", "step_", "-4", "4.0", "", "9" * 40])
def test_what_is_no_step_is_told_what_is(run_path, spec):
    with pytest.raises(InputError, match="allowed are step_4000, 4000, last, first"):
        Run.open(run_path).resolve_step(spec)


def test_a_path_names_run_and_step_at_once(run_path, tmp_path):
    run, step = open_checkpoint(str(run_path / "step_6"), None)
    assert (run.path, step) == (run_path, 6)
    run, step = open_checkpoint("6", "small", run_path.parent)
    assert (run.path, step) == (run_path, 6)
    with pytest.raises(InputError, match=r"'6' needs a run; give --run"):
        open_checkpoint("6", None)
    with pytest.raises(InputError, match=r"no checkpoint.json"):
        open_checkpoint(str(run_path / "step_7"), None)
    os.rename(run_path / "step_6", tmp_path / "step_6")
    with pytest.raises(InputError, match=r"has no run.json"):
        open_checkpoint(str(tmp_path / "step_6"), None)
    shutil.copytree(run_path, tmp_path / "other")
    with pytest.raises(InputError, match="is not a checkpoint directory of run small"):
        open_checkpoint(str(tmp_path / "other" / "step_4"), str(run_path))


def test_weights_are_mapped_from_the_file_when_asked_for(run_path):
    def mapped() -> bool:
        with open("/proc/self/maps") as maps:
            return str(run_path) in maps.read()

    weights = Run.open(run_path).weights(4)
    assert sorted(weights) == ["b", "embed.W_E"]
    assert len(weights) == 2
    assert "c" not in weights
    with pytest.raises(KeyError):
        weights["c"]
    before = (run_path / "step_4" / "model.safetensors").read_bytes()
    tensor = weights["embed.W_E"]
    assert mapped()
    tensor += 1
    assert (run_path / "step_4" / "model.safetensors").read_bytes() == before
    del tensor, weights
    assert not mapped()


def test_weights_far_larger_than_memory_use_are_read_lazily(config, tmp_path):
    from mechinterp.runs import RunWriter

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with RunWriter.open(tmp_path / "run", config, 1, False, "train") as run:
        run.save(0, {"large": torch.zeros(2**23), "small": torch.ones(1)}, {})
    before = resident()
    weights = Run.open(tmp_path / "run").weights(0)
    assert weights["small"].item() == 1
    assert resident() - before < 2**23  # the large tensor alone has 2**25 bytes


def test_damaged_weights_are_named_with_the_hash_that_fails(run_path, flip):
    flip(run_path / "step_4" / "model.safetensors", -1)
    run = Run.open(run_path)
    with pytest.raises(
        InputError, match=r"small step_4: model.safetensors .*sha256 is [0-9a-f]{12},"
    ):
        run.weights(4)
    with pytest.raises(InputError, match=r"small step_4: model.safetensors is damaged"):
        run.model(4)
    assert len(run.weights(4, check=False)) == 2


def promise(path, shape, dtype="F32", size=48) -> None:
    """Writes a safetensors file whose header promises a tensor of some shape."""
    header = {"embed.W_E": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 48)


@pytest.mark.parametrize(
    ("shape", "size", "said"),
    [
        ([10**6, 10**9], 48, r"'embed.W_E' claims 4e\+15 bytes, 48 are there"),
        ([10**6, 10**9], 4 * 10**15, r"'embed.W_E' claims 4e\+15 bytes, 48 are there"),
        ([2**70], 2**72, "claims"),
        ([-1, -12], 48, "the header entry of 'embed.W_E' is malformed"),
        ("12", 48, "the header entry of 'embed.W_E' is malformed"),
    ],
)
def test_a_header_that_promises_too_much_is_refused_before_allocation(run_path, shape, size, said):
    promise(run_path / "step_4" / "model.safetensors", shape, size=size)
    with pytest.raises(InputError, match=said):
        Run.open(run_path).weights(4, check=False)


def test_a_header_length_beyond_the_file_is_refused(run_path):
    path = run_path / "step_4" / "model.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(InputError, match=r"its header claims 4611686018427387904 bytes"):
        Run.open(run_path).weights(4, check=False)


def reseal(run_path, change) -> None:
    path = run_path / "run.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    change(body)
    path.write_bytes(seal(body))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.update(format=2), r"has format '2', this version reads 1"),
        (lambda b: b.pop("config"), r"run.json: config is NoneType"),
        (lambda b: b.update(config=[1]), r"run.json: config is list"),
        (lambda b: b["config"]["model"].update(n_layers=0), r"n_layers is 0"),
        (lambda b: b["config"]["model"].update(d_modle=1), r"unknown fields \['d_modle'\]"),
        (lambda b: b.update(task="chess"), r"task is 'chess', its config says 'markov_chains'"),
        (lambda b: b.update(n_params="many"), r"n_params has to be of type int"),
    ],
)
def test_a_malformed_record_is_one_line(run_path, change, said):
    reseal(run_path, change)
    with pytest.raises(InputError, match=said) as caught:
        Run.open(run_path)
    assert "\n" not in str(caught.value)
    assert "run.json" in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000, b"[]"])
def test_a_record_that_is_not_json_is_one_line(run_path, text):
    (run_path / "run.json").write_bytes(text)
    with pytest.raises(InputError, match=r"run.json (is not valid JSON|holds a list)"):
        Run.open(run_path)


def test_a_model_is_loaded_exactly_and_misfits_are_named(config, tmp_path):
    from mechinterp.model import build_model, weights_of
    from mechinterp.runs import RunWriter
    from mechinterp.tasks import make_task

    model = build_model(config.model, make_task(config.task).d_vocab)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    good = weights_of(model)
    n_params = sum(tensor.numel() for tensor in good.values())
    bad = {name: tensor for name, tensor in good.items() if name != "embed.W_E"}
    with RunWriter.open(tmp_path / "run", config, n_params, False, "train") as writer:
        writer.save(0, good, {})
        writer.save(1, {**bad, "embed.W": good["embed.W_E"]}, {})
        writer.save(2, {**good, "unembed.b_U": good["unembed.b_U"] * float("nan")}, {})
    run = Run.open(tmp_path / "run")
    loaded = weights_of(run.model(0))
    assert set(loaded) == set(good)
    assert all(torch.equal(loaded[name], good[name]) for name in good)
    with pytest.raises(InputError, match=r"run step_1: .* missing embed.W_E; unexpected embed.W$"):
        run.model(1)
    with pytest.raises(InputError, match=r"run step_2: unembed.b_U holds NaN"):
        run.model(2)
    huge = to_json(config)
    huge["model"] |= {"d_model": 2**20, "d_head": 2**20}
    with pytest.raises(InputError, match=r"describes 2.\d+e\+13 parameters, the checkpoint holds"):
        Run(run.path, from_json(huge), run.meta).model(0)
