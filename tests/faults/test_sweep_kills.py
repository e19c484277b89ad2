"""Sweeps killed at random moments, as a whole and run by run: every run ends once, and the same."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from mechinterp.runs.lock import is_locked
from tests.faults.children import finish, start, sweep
from tests.faults.state import Toll, content, repair, strays

KILLS = 32

SPEC = """
name = "study"
base.task = {name = "marginals", k = 3, n_b = 20}
base.model = {n_layers = 1, n_heads = 2, d_model = 16, n_ctx = 16}
base.training = {steps = 24, batch = 8, eval_every = 4, eval_examples = 8, gradient_noise = 0.1}
base.checkpoints = {save_every = 2, save_log = 0}
[grid]
"training.lr" = [1e-3, 2e-3]
[seeds]
values = [0, 1]
fields = ["model.init_seed", "training.data_seed"]
"""


def arguments(tmp_path: Path, root: str) -> tuple[list[str], Path]:
    spec = tmp_path / "study.toml"
    spec.write_text(SPEC)
    (tmp_path / root).mkdir(exist_ok=True)
    argv = [str(spec), "--root", str(tmp_path / root), "--jobs", "2"]
    return argv, tmp_path / root / "said"


def runs_of(folder: Path) -> list[Path]:
    return sorted(p.parent for p in folder.glob("study/[!.]*/run.json"))


def results(folder: Path) -> dict[str, dict[str, bytes]]:
    """Every run's files, without the one that says how long it took."""
    found = {}
    for run in runs_of(folder):
        found[run.name] = content(run)
        found[run.name].pop("outcome.json", None)
    return found


def writer_of(run: Path, sibling: int) -> int | None:
    """The process that is writing to a run, if it has the same parent as `sibling`."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((run / ".lock").read_text())
        if is_locked(run) and parent(pid) == parent(sibling):
            return pid
    return None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_a_run(folder: Path, process, chance: random.Random, killed: dict[str, int]) -> bool:
    """Kills the process of one run, of those that were killed less than twice so far."""
    at_work = [(run, writer_of(run, process.pid)) for run in runs_of(folder)]
    found = [(run, pid) for run, pid in at_work if pid and killed.get(run.name, 0) < 2]
    if not found:
        return False
    run, pid = chance.choice(found)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        killed[run.name] = killed.get(run.name, 0) + 1
        return True
    return False


def disturbed(process, folder: Path, chance: random.Random) -> int:
    """Kills some runs of a sweep and, one time in two, the sweep; gives how many it killed."""
    kills, killed = 0, {}
    for _ in range(chance.randrange(3, 12)):
        process.join(chance.uniform(0.05, 0.35))
        if process.is_alive():
            kills += kill_a_run(folder, process, chance, killed)
    if process.is_alive() and chance.random() < 0.5:
        process.kill()
        kills += 1
    process.join()
    return kills


def nobody_writes(folder: Path) -> bool:
    """Waits for the processes of a killed sweep, which end with it."""
    until = time.monotonic() + 20
    while any(is_locked(run) for run in runs_of(folder)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_a_sweep_killed_at_random_moments_ends_as_one_that_was_not(tmp_path, capsys, count):
    assert finish(sweep, *arguments(tmp_path, "whole")) == 0
    whole = results(tmp_path / "whole")
    assert len(whole) == 4
    chance, toll, trial, left = random.Random("sweeps"), Toll(), 0, 0
    while toll.kills < KILLS:
        trial += 1
        folder, code = tmp_path / str(trial), -9
        while code != 0:
            process = start(sweep, *arguments(tmp_path, str(trial)))
            toll.kills += disturbed(process, folder, chance)
            code = process.exitcode
            assert code in (0, -9), (folder / "said").read_text()
            assert nobody_writes(folder)
            for run in runs_of(folder):
                toll.look(run)
        ended = results(folder)
        toll.identical += sum(ended[name] == files for name, files in whole.items())
        assert ended.keys() == whole.keys()
        repair(folder / "study", capsys)
        left += len(strays(folder))
    count("kills", **toll.numbers(), stray_files_after_repair=left, in_sweeps=toll.kills)
    assert toll.identical == 4 * trial
    assert (toll.unreadable, toll.lost, left) == (0, 0, 0)
