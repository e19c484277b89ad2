import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from circuits.errors import InputError
from mechinterp.workers import in_processes, n_cores


@dataclass(frozen=True)
class Work:
    """Says which process did what, waits, fails or dies."""

    fails_at: int | None = None
    dies_at: int | None = None

    def __call__(self, item: int) -> tuple[int, int, str]:
        if item == self.fails_at:
            raise InputError(f"item {item} is bad")
        if item == self.dies_at:
            os._exit(9)
        return item * item, os.getpid(), os.environ["OMP_NUM_THREADS"]


def test_every_item_is_worked_on_in_few_processes_with_one_thread():
    found = dict(in_processes(Work(), range(6), 2))
    assert {item: square for item, (square, _, _) in found.items()} == {i: i * i for i in range(6)}
    pids = {pid for _, pid, _ in found.values()}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert {threads for *_, threads in found.values()} == {"1"}
    assert multiprocessing.active_children() == []
    assert n_cores() >= 1


@pytest.mark.parametrize(
    ("work", "words"), [(Work(fails_at=1), "item 1 is bad"), (Work(dies_at=1), "processes died")]
)
def test_an_error_is_handed_on_and_ends_all_processes(work, words):
    with pytest.raises(InputError, match=words):
        list(in_processes(work, range(4), 2))
    assert multiprocessing.active_children() == []


def test_a_consumer_that_stops_ends_all_processes():
    results = in_processes(Work(), range(50), 2)
    next(results)
    results.close()
    assert multiprocessing.active_children() == []


SCAN = """
import sys, time
from pathlib import Path
from mechinterp.workers import in_processes
from mechinterp.command import run_command
from dataclasses import dataclass

@dataclass(frozen=True)
class Nothing:
    "Nothing."

def slow(item):
    if item:
        time.sleep(60)
    return item

def act(_):
    for item, _ in in_processes(slow, range(4), 2):
        Path(sys.argv[1]).write_text("first")

if __name__ == "__main__":
    sys.exit(run_command(Nothing, act, prog="scan", description="", argv=[]))
"""


def _running(group):
    """Processes of a group that still run; one that ended may wait to be reaped by others."""
    running = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != "zombie":
                running.append(process.pid)
        except ProcessLookupError:
            continue
    return running


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_everything_at_once_without_a_traceback(whole_group, tmp_path):
    script, mark = tmp_path / "scan.py", tmp_path / "mark"
    script.write_text(SCAN)
    root = Path(__file__).parents[2]
    scan = subprocess.Popen(
        [sys.executable, str(script), str(mark)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started = time.monotonic()
    if whole_group:  # as a terminal does
        os.killpg(scan.pid, signal.SIGINT)
    else:
        os.kill(scan.pid, signal.SIGINT)
    _, err = scan.communicate(timeout=30)
    assert scan.returncode == 130
    assert err == "scan: interrupted; what was finished is kept\n"
    assert time.monotonic() - started < 20  # nobody waited for the work of a minute
    while (left := _running(scan.pid)) and time.monotonic() - started < 30:
        time.sleep(0.05)
    assert left == []
