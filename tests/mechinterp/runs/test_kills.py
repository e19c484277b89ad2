"""A run killed at any instant is readable, can be resumed, and ends with the same bits.

Here the instants are all of them, one by one; tests/faults has real training at random ones.
"""

import os
import signal
from pathlib import Path

import pytest

from mechinterp.runs import Run
from mechinterp.runs.verifying import leftovers, problems_of, repair, unborn

FATAL = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir", "ftruncate")


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run, except for run.json, whose time of creation is its own."""
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in sorted(run.rglob("*"))
        if file.is_file() and file.name != "run.json"
    }


def die_at(call: int) -> None:
    """Kills this process at its n-th call that can change the disk; a write gets half way."""
    left = call

    def fatal(name, real):
        def wrapper(*args, **kwargs):
            nonlocal left
            left -= 1
            if left == 0:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return wrapper

    for name in FATAL:
        setattr(os, name, fatal(name, getattr(os, name)))


def is_consistent(run: Path) -> bool:
    if run.exists():
        assert problems_of(run) == []
        opened = Run.open(run)
        steps = opened.steps
        rows = opened.metrics()
        assert rows.empty or list(rows["step"]) == list(range(len(rows)))
        for step in steps:
            assert set(opened.weights(step)) == {"embed.W_E", "b"}
        # What a checkpoint's metrics hash covers is there: a row is written before its checkpoint.
        assert not steps or len(rows) > steps[-1]
    return True


@pytest.mark.parametrize("resuming", [False, True])
def test_killed_at_every_single_call_that_changes_the_disk(growth, tmp_path, processes, resuming):
    reference = tmp_path / "reference-run"
    growth.train(reference, 2, every=1)
    for call in range(1, 500):
        run = tmp_path / f"run-{call}"
        if resuming:
            growth.train(run, 1, every=1)

        def train_and_die(run: Path = run, call: int = call) -> None:
            die_at(call)  # the patch stays in the child
            growth.train(run, 2, resume=True, every=1)

        code = processes.wait(processes.start(train_and_die))
        assert code in (0, -signal.SIGKILL)
        assert is_consistent(run)
        growth.train(run, 2, resume=True, every=1)
        assert content(run) == content(reference)
        if code == 0:
            break
    assert 25 < call < 499


def test_repair_removes_what_a_kill_left_and_nothing_else(growth, tmp_path, processes):
    run = tmp_path / "run"
    found = []
    for call in range(20, 60):

        def train_and_die(call: int = call) -> None:
            die_at(call)
            growth.train(run, 12, resume=True)

        assert processes.wait(processes.start(train_and_die)) == -signal.SIGKILL
        found = [path for path in leftovers(run) if path.name.startswith(".tmp-")]
        if found:
            break
    assert found
    before = {k: v for k, v in content(run).items() if ".tmp-" not in k and k != ".lock"}
    assert set(found) <= set(repair(run))
    assert content(run) == before
    assert leftovers(run) == []


def test_a_run_killed_while_it_was_created_is_absent_and_its_remains_are_found(
    growth, tmp_path, processes
):
    folder = tmp_path / "runs"
    code = processes.wait(processes.start(lambda: (die_at(6), growth.train(folder / "new", 4))))
    assert code == -signal.SIGKILL
    assert not (folder / "new").exists()
    assert [path.name.split("-", 2)[2] for path in unborn(folder)] == ["new"]
