"""Runs deleted, moved or doubly written, and clocks that go backwards."""

import datetime
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from mechinterp.runs.__main__ import main
from mechinterp.runs.record import read_record
from tests.faults import children
from tests.faults.children import command, finish, grow, start, training
from tests.faults.state import content, repair, strays, why_unreadable

WHICH = "chains"


def reaches(process, path: Path) -> None:
    """Waits until a growing run has a checkpoint, or its process has ended."""
    while process.is_alive() and not path.exists():
        time.sleep(0.002)


@pytest.fixture
def begun(tmp_path):
    """A run that a process is writing to, with some checkpoints already."""
    path = tmp_path / "runs" / WHICH
    process = start(command, *training(WHICH, path), tmp_path / "said", {})
    reaches(process, path / "step_6")
    assert process.is_alive()
    return process, path, tmp_path / "said"


def one_line(said: Path) -> str:
    (line,) = said.read_text().splitlines()
    return line


def test_a_run_deleted_underneath_is_told_in_one_line(begun, count):
    process, path, said = begun
    gone = path.with_name("gone")
    os.rename(path, gone)
    shutil.rmtree(gone)
    process.join(60)
    assert process.exitcode == 2
    assert "was deleted or replaced while it was written to; start the run again" in one_line(said)
    assert list(path.parent.iterdir()) == []
    count("disks and processes", refused_in_one_line=1)


def test_a_run_emptied_underneath_is_told_in_one_line(begun, count):
    process, path, said = begun
    shutil.rmtree(path, ignore_errors=True)
    process.join(60)
    assert process.exitcode == 2
    line = one_line(said)
    assert "deleted or replaced" in line or "does not exist (any more)" in line
    count("disks and processes", refused_in_one_line=1)


def test_a_run_moved_underneath_is_whole_where_it_is_now(begun, grown, count):
    process, path, said = begun
    moved = path.with_name("moved")
    os.rename(path, moved)
    process.join(60)
    assert process.exitcode == 2
    assert "deleted or replaced" in one_line(said)
    assert why_unreadable(moved) == []
    assert not path.exists()
    assert finish(grow, WHICH, moved) == 0
    assert content(moved) == content(grown / WHICH)
    count("disks and processes", refused_in_one_line=1)


@pytest.mark.parametrize("more", [["--resume"], []])
def test_the_second_process_on_a_run_is_refused_and_harms_nothing(
    begun, more, grown, tmp_path, count
):
    process, path, said = begun
    second = tmp_path / "second"
    os.kill(process.pid, signal.SIGSTOP)  # It shall still be there when the second one comes.
    assert finish(command, *training(WHICH, path, *more), second, {}) == 2
    os.kill(process.pid, signal.SIGCONT)
    expected = "is in use by another process" if more else "exists already"
    assert expected in one_line(second)
    process.join(60)
    assert process.exitcode == 0
    assert said.read_text() == ""
    assert content(path) == content(grown / WHICH)
    count("disks and processes", refused_in_one_line=1)


def test_repair_leaves_a_run_alone_that_is_being_written(begun, grown, capsys):
    process, path, said = begun
    looks = 0
    while process.is_alive():
        assert main(["verify", "--root", str(path.parent), "--repair"]) == 0
        looks += "a process is writing to it; nothing is removed" in capsys.readouterr().out
    assert process.exitcode == 0, said.read_text()
    assert content(path) == content(grown / WHICH)
    assert looks > 2


def test_of_two_that_begin_a_run_at_once_one_wins_and_the_other_says_so(grown, tmp_path, count):
    path = tmp_path / WHICH
    files = [tmp_path / f"said-{i}" for i in range(2)]
    both = [start(command, *training(WHICH, path), said, {}) for said in files]
    for process in both:
        process.join(60)
    assert sorted(process.exitcode for process in both) == [0, 2]
    (line,) = [said for file in files for said in file.read_text().splitlines()]
    assert "choose another --run" in line
    assert content(path) == content(grown / WHICH)
    assert strays(path) == []
    count("disks and processes", refused_in_one_line=1)


class _BackwardClock(datetime.datetime):
    """Every look at this clock shows an hour less than the one before."""

    hours = 0

    @classmethod
    def now(cls, tz=None):
        cls.hours += 1
        return super().now(tz) - datetime.timedelta(hours=cls.hours)


def grow_backwards(path: Path) -> None:
    """Trains while the system's clock runs backwards."""
    datetime.datetime = _BackwardClock
    began = time.time()
    looks = iter(range(10**9))
    time.time = lambda: began - 3600 * next(looks)
    time.time_ns = lambda: int(time.time() * 1e9)
    grow(WHICH, path)


def test_a_clock_that_goes_backwards_changes_nothing(grown, tmp_path, capsys, count):
    path = tmp_path / WHICH
    for _ in range(2):
        children.kill_after(0.3, grow_backwards, path)
        assert not path.exists() or why_unreadable(path) == []
        # Whatever is there was written tomorrow.
        for file in tmp_path.rglob("*"):
            os.utime(file, (time.time() + 86400,) * 2)
    assert finish(grow_backwards, path) == 0
    assert content(path) == content(grown / WHICH)
    created = datetime.datetime.fromisoformat(read_record(path)[1]["created"])
    assert created < datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=59)
    assert main(["list", "--root", str(tmp_path)]) == 0
    assert WHICH in capsys.readouterr().out
    repair(tmp_path, capsys)
    assert strays(tmp_path) == []
    count("disks and processes", backward_clocks_survived=1)
