"""What a trainer may do with a run, what it gets back, and what it is refused."""

import dataclasses
import errno
import importlib.metadata
import json
import os
import shutil
import stat

import pytest
import torch

from circuits.errors import InputError
from mechinterp.runs import Run, RunWriter
from mechinterp.runs.verifying import problems_of


def with_training(config, **changes):
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


def snapshot(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_resumed_run_gets_back_exactly_what_was_saved(growth, config, tmp_path):
    weights = {"w": torch.tensor([float("nan"), -0.0, 1e-45]), "b": torch.ones(2).bfloat16()}
    state = {"step/w": torch.tensor(3.0), "seen": torch.tensor(2**60 + 1)}
    with RunWriter.open(tmp_path / "run", config, 5, False, "train") as run:
        run.save(3, weights, state)
    with RunWriter.open(tmp_path / "run", config, 5, True, "train") as run:
        step, got, got_state = run.resume_point()
    assert step == 3
    for given, back in ((weights, got), (state, got_state)):
        assert set(given) == set(back)
        for name in given:
            assert given[name].dtype == back[name].dtype
            assert given[name].shape == back[name].shape
            a, b = (t.reshape(-1).view(torch.uint8) for t in (given[name], back[name]))
            assert torch.equal(a, b)


def test_a_checkpoint_holds_the_tensors_as_they_were_when_saved(config, tmp_path):
    moving = torch.zeros(200_000)
    with RunWriter.open(tmp_path / "run", config, 1, False, "train") as run:
        for step in range(5):
            run.save(step, {"w": moving}, {})
            moving += 1
    for step in range(5):
        assert Run.open(tmp_path / "run").weights(step)["w"].unique().tolist() == [step]


def test_only_the_newest_two_checkpoints_keep_what_resuming_needs(run_path):
    with_state = {p.parent.name for p in run_path.glob("step_*/resume.safetensors")}
    assert with_state == {"step_10", "step_12"}
    assert len(list(run_path.glob("step_*/model.safetensors"))) == 7


def test_an_uninterrupted_run_equals_one_that_was_trained_on(growth, run_path, tmp_path):
    growth.train(run_path, 20, resume=True)
    growth.train(tmp_path / "whole", 20)
    extended, whole = Run.open(run_path), Run.open(tmp_path / "whole")
    assert extended.config.training.steps == 20
    assert extended.steps == whole.steps
    assert extended.checkpoint_hash(20) == whole.checkpoint_hash(20)
    assert extended.metrics().equals(whole.metrics())
    assert problems_of(run_path) == []


@pytest.mark.parametrize("damage", ["model.safetensors", "resume.safetensors", "checkpoint.json"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(growth, run_path, flip, damage):
    good = {step: Run.open(run_path).checkpoint_hash(step) for step in (10, 12)}
    flip(run_path / "step_12" / damage, -9)
    with RunWriter.open(run_path, growth.config, growth.n_params, True, "train") as run:
        step, weights, _ = run.resume_point()
        assert step == 10
        assert torch.equal(weights["b"], Run.open(run_path).weights(10)["b"])
        assert "passed over step_12" in run.notes[0]
        assert damage in run.notes[0]
    growth.train(run_path, 12, resume=True)
    assert {step: Run.open(run_path).checkpoint_hash(step) for step in (10, 12)} == good
    assert problems_of(run_path) == []


def test_a_run_without_any_state_to_resume_from_is_refused_and_kept(growth, run_path):
    for path in run_path.glob("step_*/resume.safetensors"):
        path.unlink()
    before = snapshot(run_path)
    with pytest.raises(InputError, match=r"cannot be resumed .*step_12: it has no resume.saf"):
        growth.train(run_path, 12, resume=True)
    assert snapshot(run_path) == before


def test_a_run_that_exists_is_refused_unless_it_is_resumed(growth, run_path):
    before = snapshot(run_path)
    with pytest.raises(InputError, match=r"run small exists already in .*--resume.*another --run"):
        growth.train(run_path, 12)
    assert snapshot(run_path) == before


def test_a_directory_that_is_no_run_is_refused(growth, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    for path in (tmp_path / "thesis", tmp_path / "thesis" / "chapter.txt"):
        with pytest.raises(InputError, match="exists and is not a run"):
            growth.train(path, 2, resume=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lr": 0.5}, r"training.lr 0.001 -> 0.5"),
        ({"steps": 11}, r"training.steps 12 -> 11"),
        ({"steps": 20, "batch": 3}, r"\(training.batch 64 -> 3\)"),
        ({"lr_factor": ("W_Q=2",)}, r"training.lr_factor"),
    ],
)
def test_resuming_with_another_configuration_names_what_differs(growth, run_path, changes, said):
    before = snapshot(run_path)
    other = with_training(growth.config, **changes)
    with pytest.raises(InputError, match=r"another configuration .*" + said):
        RunWriter.open(run_path, other, growth.n_params, True, "train")
    assert snapshot(run_path) == before


def test_a_cosine_run_cannot_be_made_longer(growth, config, tmp_path):
    cosine = with_training(config, lr_schedule="cosine")
    RunWriter.open(tmp_path / "run", cosine, 1, False, "train").close()
    with pytest.raises(InputError, match=r"training.steps 12 -> 13"):
        RunWriter.open(tmp_path / "run", with_training(cosine, steps=13), 1, True, "train")


def test_another_number_of_parameters_or_threads_is_noticed(growth, run_path, monkeypatch):
    with pytest.raises(InputError, match="has 15 parameters, this model has 16"):
        RunWriter.open(run_path, growth.config, 16, True, "train")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with RunWriter.open(run_path, growth.config, 15, True, "train") as run:
        assert "goes on with 77" in run.notes[0]


REFUSALS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "quota",
    errno.EROFS: "read-only",
    errno.EACCES: "permission denied",
    errno.EIO: "Input/output error",
}


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("call", ["write", "fsync", "mkdir", "rename"])
def test_a_disk_that_refuses_gives_one_line_and_costs_one_checkpoint(
    growth, run_path, tmp_path, monkeypatch, number, call
):
    whole = tmp_path / "whole"
    growth.train(whole, 20)
    real = getattr(os, call)

    def refuse(target, *args, **kwargs):
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
        if "step_16" in path:
            raise OSError(number, os.strerror(number))
        return real(target, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(InputError, match=REFUSALS[number]) as caught:
            growth.train(run_path, 20, resume=True)
    assert "\n" not in str(caught.value)
    assert problems_of(run_path) == []
    assert Run.open(run_path).steps == [0, 2, 4, 6, 8, 10, 12, 14]
    assert not list(run_path.glob(".*"))
    growth.train(run_path, 20, resume=True)
    assert Run.open(run_path).checkpoint_hash(20) == Run.open(whole).checkpoint_hash(20)


def test_a_row_that_does_not_fit_on_the_disk_is_absent(config, tmp_path, monkeypatch):
    with RunWriter.open(tmp_path / "run", config, 1, False, "train") as run:
        run.log({"step": 0, "loss": 1.0})
        real, calls = os.write, []

        def half(descriptor, data):
            calls.append(data)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, "full")
            return real(descriptor, data[:7])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", half)
            with pytest.raises(InputError, match=r"cannot write .*metrics.jsonl: the disk is full"):
                run.log({"step": 1, "loss": 1.0})
        run.log({"step": 2, "loss": 1.0})
        run.save(2, {"w": torch.ones(1)}, {})
    assert list(Run.open(tmp_path / "run").metrics()["step"]) == [0, 2]
    assert problems_of(tmp_path / "run") == []


def test_a_run_deleted_underneath_its_trainer_is_reported(config, tmp_path):
    path = tmp_path / "run"
    with RunWriter.open(path, config, 1, False, "train") as run:
        run.save(0, {"w": torch.ones(1)}, {})
        run.settle()
        shutil.rmtree(path)
        with pytest.raises(InputError, match="was deleted or replaced"):
            run.save(1, {"w": torch.ones(1)}, {})
    assert not path.exists()


def test_a_file_where_the_folder_of_runs_should_be_is_reported(growth, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot create .*is a file, not a directory"):
        growth.train(tmp_path / "file" / "runs" / "new", 2)


def test_saving_the_same_step_again_replaces_it(config, tmp_path):
    with RunWriter.open(tmp_path / "run", config, 1, False, "train") as run:
        run.save(0, {"w": torch.zeros(1)}, {})
        run.save(0, {"w": torch.ones(1)}, {})
    assert Run.open(tmp_path / "run").weights(0)["w"].item() == 1


def test_everything_is_on_disk_before_it_gets_its_name(config, tmp_path, monkeypatch):
    """The control for every other test here, which runs without fsync."""
    events = []

    def note(descriptor):
        kind = os.fstat(descriptor).st_mode
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        events.append(("dir " if stat.S_ISDIR(kind) else "file ") + path.split("/")[-1])

    real = os.rename
    with RunWriter.open(tmp_path / "run", config, 1, False, "train") as run:
        run.log({"step": 0})
        monkeypatch.setattr(os, "fsync", note)
        monkeypatch.setattr(
            os, "rename", lambda a, b: (events.append(f"name {b.name}"), real(a, b))
        )
        run.save(0, {"w": torch.zeros(1)}, {})
    named = events.index("name step_0")
    assert set(events[: named - 1]) == {
        "file metrics.jsonl",
        "file model.safetensors",
        "file resume.safetensors",
        "file checkpoint.json",
    }
    assert events[named - 1].startswith("dir .tmp-")
    assert events[named + 1 :] == ["dir run"]


def test_run_json_says_what_made_the_run(run_path):
    record = json.loads((run_path / "run.json").read_text())
    assert record["task"] == "markov_chains"
    assert record["n_params"] == 15
    assert record["command"] == "train it"
    assert record["threads"] == torch.get_num_threads()
    assert record["versions"]["torch"] == importlib.metadata.version("torch")
    assert record["config"]["training"]["steps"] == 12
    assert set(record["versions"]) >= {"python", "transformer-lens", "safetensors"}
