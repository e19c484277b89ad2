"""Exported checkpoints, read by the tools they are for, and imported again."""

import json
import os
import shutil
import subprocess

import pytest
import safetensors.torch
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from mechinterp.config import MarkovChainsConfig, ModelConfig, RunConfig, TrainingConfig
from mechinterp.model import weights_of
from mechinterp.runs import Run
from mechinterp.runs.__main__ import main
from mechinterp.training_loop import train
from tests.peer_environment import NATIVE_BRIDGE, ROOT

RUNS = ("lookup", "chains")
"""LN with embedded positions and two heads; no norm, rotary positions and one head."""


def export(folder, run, target, *argv):
    assert main(["export", run, "--root", str(folder), "--to", str(target), *argv]) == 0
    return target


def same(weights, run, step):
    own = weights_of(run.model(step))
    assert set(weights) == set(own)
    assert all(torch.equal(weights[name], tensor) for name, tensor in own.items())


@pytest.mark.parametrize("name", RUNS)
def test_safetensors_hold_the_trained_tensors_by_plain_names(name, tiny_runs, tmp_path, capsys):
    target = export(tiny_runs, name, tmp_path / "out", "--ckpt", "all")
    run = Run.open(name, tiny_runs)
    assert [f"wrote {target / f'model_step_{step}.safetensors'}" for step in run.steps] == (
        capsys.readouterr().out.splitlines()
    )
    for step in run.steps:
        same(safetensors.torch.load_file(target / f"model_step_{step}.safetensors"), run, step)
    with pytest.raises(AssertionError):
        same(safetensors.torch.load_file(target / "model_step_20.safetensors"), run, 40)


@pytest.mark.parametrize("name", RUNS)
def test_a_state_dict_loads_strictly_into_a_hooked_transformer(name, tiny_runs, tmp_path):
    """With nothing but TransformerLens and the two files."""
    target = export(tiny_runs, name, tmp_path / "out", "--form", "state-dict", "--ckpt", "40")
    arguments = json.loads((target / "transformer_lens.json").read_text())
    model = HookedTransformer(HookedTransformerConfig(**arguments, device="cpu"))
    state = torch.load(target / "model_step_40.pt", weights_only=True)
    model.load_state_dict(state, strict=True)
    run = Run.open(name, tiny_runs)
    tokens = run.task().evaluation(4)[:, :-1]
    with torch.no_grad():
        assert torch.equal(model(tokens), run.model(40)(tokens))


@pytest.mark.parametrize("form", ["safetensors", "state-dict"])
@pytest.mark.parametrize("name", RUNS)
def test_what_was_exported_is_imported_bit_for_bit(name, form, tiny_runs, tmp_path):
    target = export(tiny_runs, name, tmp_path / "out", "--form", form, "--ckpt", "all")
    assert main(["import", str(target), "--run", "back", "--root", str(tmp_path / "runs")]) == 0
    back, run = Run.open("back", tmp_path / "runs"), Run.open(name, tiny_runs)
    assert back.config == run.config
    assert back.steps == run.steps
    for step in run.steps:
        same(dict(back.weights(step)), run, step)


def test_what_is_meant_for_the_bridge_is_not_taken_for_a_state_dict(tiny_runs, tmp_path, capsys):
    """Its queries and keys are in another order, which no name in it tells."""
    target = export(tiny_runs, "chains", tmp_path / "out", "--form", "native-bridge")
    state = torch.load(target / "for_bridge_step_40.pt", weights_only=True)
    own = weights_of(Run.open("chains", tiny_runs).model(40))
    assert torch.equal(state["blocks.0.attn.W_Q"][..., ::2], own["blocks.0.attn.W_Q"][..., :8])
    assert not torch.equal(state["blocks.0.attn.W_Q"], own["blocks.0.attn.W_Q"])
    assert main(["import", str(target), "--run", "back", "--root", str(tmp_path / "runs")]) == 2
    assert "holds no checkpoints; looked for" in capsys.readouterr().err


@pytest.mark.parametrize("name", RUNS)
def test_a_state_dict_of_the_native_bridge_is_imported(name, tiny_runs, tmp_path):
    """From a bridge of TransformerLens's own making, whose logits the imported run has."""
    target = export(tiny_runs, name, tmp_path / "out", "--form", "native-bridge")
    arguments = json.loads((target / "transformer_lens.json").read_text())
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**arguments))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in bridge.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    torch.save(bridge.state_dict(), target / "model_step_7.pt")
    assert main(["import", str(target), "--run", "back", "--root", str(tmp_path / "runs")]) == 0
    back = Run.open("back", tmp_path / "runs")
    tokens = back.task().evaluation(4)[:, :-1]
    with torch.no_grad():
        logits = bridge(tokens)
        torch.testing.assert_close(
            back.model(7)(tokens), logits, rtol=0, atol=1e-5 * logits.abs().max()
        )
    assert logits.std() > 0.1


def test_a_bridge_of_another_shape_names_what_does_not_fit(tiny_runs, tmp_path, capsys):
    target = export(tiny_runs, "lookup", tmp_path / "out", "--form", "native-bridge")
    arguments = json.loads((target / "transformer_lens.json").read_text())
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**arguments | {"d_mlp": 20}))
    torch.save(bridge.state_dict(), target / "model_step_40.pt")
    argv = ["import", str(target), "--run", "back", "--root", str(tmp_path / "runs")]
    capsys.readouterr()
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "mlp.in.weight has (20, 16) for blocks.0.mlp.W_in, the model needs (16, 64)" in said
    other = TransformerBridge.boot_native(TransformerBridgeConfig(**arguments | {"n_layers": 3}))
    torch.save(other.state_dict(), target / "model_step_40.pt")
    assert main(argv) == 2
    assert "unexpected blocks.2.attn.k.bias" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "back").exists()


def test_transformer_lens_4_measures_what_was_measured_here(tiny_runs, tmp_path):
    """The exports, converted by version 4 itself: the same loss to 1e-6, and back again."""
    if not NATIVE_BRIDGE.ready:
        pytest.skip("NOT CHECKED: TransformerLens 4's bridge; `make peers` builds its environment")
    expected = {}
    for name in RUNS:
        target = export(tiny_runs, name, tmp_path / name, "--form", "native-bridge")
        run = Run.open(name, tiny_runs)
        task, tokens = run.task(), run.task().evaluation(16)
        torch.save(tokens, target / "tokens.pt")
        (target / "scored.json").write_text(json.dumps(task.scored))
        with torch.no_grad():
            log_probs = run.model(40)(tokens[:, :-1])[:, list(task.scored)].double().log_softmax(-1)
        targets = tokens[:, [p + 1 for p in task.scored]]
        expected[name] = -log_probs.gather(-1, targets[..., None]).mean().item()
    worker = ROOT / "tests" / "mechinterp" / "runs" / "native_bridge_export_worker.py"
    done = subprocess.run(
        [NATIVE_BRIDGE.python, worker, *(tmp_path / name for name in RUNS)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in RUNS:
        found = json.loads((tmp_path / name / "measured.json").read_text())
        assert found["transformer_lens"].startswith("4.")
        assert found["loss"] == pytest.approx(expected[name], abs=1e-6)
        back = tmp_path / f"{name}-back"
        back.mkdir()
        shutil.move(tmp_path / name / "bridge.pt", back / "model_step_40.pt")
        shutil.copy(tmp_path / name / "config.json", back)
        argv = ["import", str(back), "--run", name, "--root", str(tmp_path / "runs")]
        assert main(argv) == 0
        same(dict(Run.open(name, tmp_path / "runs").weights(40)), Run.open(name, tiny_runs), 40)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["export", "lookpu", "--to", "out"], "lookup"),
        (["export", "lookup", "--to", "out", "--ckpt", "39"], "step_40"),
        (["export", "lookup", "--to", "out", "--form", "gguf"], "native-bridge"),
        (["export", "lookup", "--to", "here"], "here exists already; choose another --to"),
        (["export", "lookup", "--to", "/proc/x/y"], "cannot create /proc/x/y"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    argv, said, tiny_runs, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert main([*argv, "--root", str(tiny_runs)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_what_the_bridge_does_not_build_is_refused(tmp_path, capsys):
    model = ModelConfig(1, 1, 8, positions="alibi", n_ctx=16)
    task = MarkovChainsConfig(n_states=3, k=2, length=16, held_out=2)
    training = TrainingConfig(steps=1, batch=4, eval_every=1, eval_examples=2)
    train(RunConfig(task, model, training), tmp_path / "runs" / "slopes")
    argv = ["export", "slopes", "--root", str(tmp_path / "runs"), "--to", str(tmp_path / "out")]
    assert main([*argv, "--form", "native-bridge"]) == 2
    assert "slopes has alibi positions, which TransformerLens's native bridge does not build" in (
        capsys.readouterr().err
    )
    assert main(argv) == 0
