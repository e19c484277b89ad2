"""Two trainers on one run: the second is refused, and a dead one blocks nobody."""

import functools
import os
import signal
import time

import pytest

from circuits.errors import InputError
from mechinterp.runs import RunWriter
from mechinterp.runs.lock import LOCK, RunLock, is_locked
from mechinterp.runs.verifying import leftovers, repair


def hold(growth, path, ready: int) -> None:
    with RunWriter.open(path, growth.config, growth.n_params, True, "train"):
        os.write(ready, b"x")
        time.sleep(60)


@pytest.fixture
def holder(growth, run_path, processes):
    reading, writing = os.pipe()
    child = processes.start(lambda: hold(growth, run_path, writing))
    assert os.read(reading, 1) == b"x"
    yield child
    os.close(reading)
    os.close(writing)


def test_the_second_trainer_is_refused_and_told_who_holds_the_run(growth, run_path, holder):
    with pytest.raises(InputError, match=rf"run small is in use by another process .*{holder}\)"):
        RunWriter.open(run_path, growth.config, growth.n_params, True, "train")
    assert is_locked(run_path)
    with pytest.raises(InputError, match="in use"):
        repair(run_path)
    assert leftovers(run_path) == []


def test_a_killed_trainer_leaves_no_lock_behind(growth, run_path, holder, processes):
    os.kill(holder, signal.SIGKILL)
    processes.wait(holder)
    assert not is_locked(run_path)
    growth.train(run_path, 14, resume=True)
    assert not (run_path / LOCK).exists()


def test_of_two_that_create_a_run_at_once_one_wins(growth, tmp_path, processes):
    for trial in range(4):
        create = functools.partial(growth.train, tmp_path / f"run-{trial}", 2)
        children = [processes.start(create) for _ in range(3)]
        codes = sorted(processes.wait(child) for child in children)
        assert codes == [0, 1, 1]
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".tmp-")]


def test_the_lock_file_removed_by_its_holder_is_not_mistaken_for_the_next_one(tmp_path):
    first = RunLock.acquire(tmp_path)
    stale = os.open(tmp_path / LOCK, os.O_RDWR)
    first.release(tmp_path)
    second = RunLock.acquire(tmp_path)
    assert os.fstat(stale).st_ino != os.stat(tmp_path / LOCK).st_ino
    second.check(tmp_path)
    os.close(stale)
    second.release(tmp_path)
    second.release(tmp_path)
    assert list(tmp_path.iterdir()) == []
