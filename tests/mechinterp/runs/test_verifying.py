"""`verify` finds a single flipped bit in every file, and says which hash fails."""

import json
import os

import pytest

from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.runs.sealed_json import seal
from mechinterp.runs.verifying import problems_of

FILES = [
    "run.json",
    "metrics.jsonl",
    "step_0/model.safetensors",
    "step_0/checkpoint.json",
    "step_12/model.safetensors",
    "step_12/checkpoint.json",
    "step_12/resume.safetensors",
]


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_anywhere_is_found_and_named(run_path, flip, name):
    path = run_path / name
    size = path.stat().st_size
    for position in {0, 1, size // 3, size // 2, size - 2, size - 1}:
        flip(path, position)
        problems = problems_of(run_path)
        assert problems, f"byte {position} of {name} goes unnoticed"
        assert path.name in problems[0]
        assert "\n" not in problems[0]
        flip(path, position)
        assert problems_of(run_path) == []


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_emptied_file_is_found(run_path, name):
    path = run_path / name
    whole = path.read_bytes()
    for length in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert path.name in problems_of(run_path)[0]
    path.write_bytes(whole)
    path.unlink()
    removed = problems_of(run_path)
    # Resume state is given up on purpose; its absence is no damage.
    assert (removed == []) == (path.name == "resume.safetensors")


def test_the_problem_names_both_hashes_and_the_lost_bytes(run_path):
    path = run_path / "step_4" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    (problem,) = problems_of(run_path)
    recorded = json.loads((run_path / "step_4" / "checkpoint.json").read_text())
    entry = recorded["files"]["model.safetensors"]
    assert "small step_4: model.safetensors is damaged: its sha256 is" in problem
    assert f"recorded is {entry['sha256'][:12]}" in problem
    assert f"it has {entry['bytes'] - 5} bytes of {entry['bytes']}" in problem


def test_what_does_not_belong_in_a_checkpoint_is_reported(run_path):
    (run_path / "step_4" / "payload.pkl").write_bytes(b"")
    assert problems_of(run_path) == ["small step_4: 'payload.pkl' does not belong there"]


def test_a_renamed_checkpoint_is_reported(run_path):
    os.rename(run_path / "step_4", run_path / "step_5")
    assert "describes step 4; the directory was renamed" in problems_of(run_path)[0]


def test_a_description_with_a_right_seal_and_a_wrong_content_is_reported(run_path):
    path = run_path / "step_4" / "checkpoint.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    body["tensors"]["b"] = "F32[4]"
    path.write_bytes(seal(body))
    assert "model.safetensors and checkpoint.json disagree on 'b'" in problems_of(run_path)[0]
    with pytest.raises(InputError, match="disagree on 'b'"):
        Run.open(run_path).weights(4)
    body["files"]["../../secret"] = body["files"]["model.safetensors"]
    path.write_bytes(seal(body))
    assert "is not the description of a checkpoint" in problems_of(run_path)[0]
