import dataclasses
import json
import os
import signal
import time

import psutil
import pytest

from circuits.errors import InputError
from mechinterp.engines.local import run_local
from mechinterp.runs import Run
from mechinterp.sweep.jobs import IMPORTED, jobs_of, left_to_do
from mechinterp.sweep.outcome import read_outcome
from mechinterp.sweep.planning import directories_of, planned
from mechinterp.sweep.spec import read_spec
from mechinterp.sweep.stacks import one_line
from mechinterp.training_loop import train


def _jobs(path, folder):
    spec = read_spec(path)
    runs = planned(spec)
    return jobs_of(spec, runs, directories_of(folder, runs), 1, "the command")


def _silent(at_work, ended):
    pass


def _alone(job, path):
    """The weights of a run that was trained by itself, in this process."""
    train(job.config, path)
    return Run.open(str(path)).checkpoint_hash(job.config.training.steps)


def test_every_run_is_trained_once_with_the_weights_it_has_alone(description, tmp_path):
    jobs = _jobs(description(), tmp_path / "runs")
    assert left_to_do(jobs) == jobs
    ended = run_local(jobs, one_line, 2, _silent, IMPORTED)
    assert ended == {job.path.name: "budget" for job in jobs}
    assert left_to_do(jobs) == []
    hashes = {Run.open(str(job.path)).checkpoint_hash(24) for job in jobs}
    assert len(hashes) == 4
    assert _alone(jobs[1], tmp_path / "alone") == Run.open(str(jobs[1].path)).checkpoint_hash(24)


def test_a_killed_process_is_started_again_and_changes_nothing(description, tmp_path):
    jobs = _jobs(description(), tmp_path / "runs")[:2]
    killed = []

    def kill_once(at_work, ended):
        """Kills the first process that has logged a row, as a machine out of memory does."""
        for job in at_work:
            locked = job.path / ".lock"
            log = job.path / "metrics.jsonl"
            if not killed and locked.exists() and log.exists() and log.stat().st_size:
                os.kill(int(locked.read_text()), signal.SIGKILL)
                killed.append(job.path.name)

    slow = [_slower(job) for job in jobs]
    ended = run_local(slow, one_line, 1, kill_once, IMPORTED)
    assert len(killed) == 1
    assert set(ended.values()) == {"budget"}
    hashes = [Run.open(str(job.path)).checkpoint_hash(job.config.training.steps) for job in slow]
    assert hashes[0] == _alone(slow[0], tmp_path / "alone")


def _slower(job):
    """The same run with more steps, long enough to be killed in the middle."""
    training = dataclasses.replace(job.config.training, steps=150)
    return dataclasses.replace(job, config=dataclasses.replace(job.config, training=training))


def _die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def _refuse(job):
    raise InputError("the disk is full")


def _slip(job):
    return 1 / 0


@pytest.mark.parametrize(
    ("work", "words"),
    [(_die, "died 3 times"), (_refuse, "the disk is full"), (_slip, "ZeroDivisionError")],
)
def test_a_run_that_cannot_go_on_is_named_and_stops_no_other(description, tmp_path, work, words):
    jobs = _jobs(description(), tmp_path / "runs")[:2]
    ended = run_local(jobs, work, 2, _silent)
    assert set(ended) == {job.path.name for job in jobs}
    assert all(said.startswith("failed: ") and words in said for said in ended.values())


def test_an_interrupt_leaves_no_process_behind(description, tmp_path):
    jobs = [_slower(job) for job in _jobs(description(), tmp_path / "runs")]
    pids = []

    def interrupt(at_work, ended):
        locks = [job.path / ".lock" for job in at_work]
        if at_work and all(lock.exists() for lock in locks):
            pids.extend(int(lock.read_text()) for lock in locks)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(jobs, one_line, 2, interrupt)
    time.sleep(0.1)
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


DIVERGING = """
[base]
task = {name = "marginals", k = 3, n_b = 20}
model = {n_layers = 1, n_heads = 2, d_model = 16, n_ctx = 16}
training = {steps = 60, batch = 16, eval_every = 2, eval_examples = 8}
[stop]
exploded = 0.5
"""


def test_a_diverged_run_is_recorded_and_never_tried_again(description, tmp_path):
    (job,) = _jobs(description(text=DIVERGING), tmp_path / "runs")
    assert run_local([job], one_line, 1, _silent) == {job.path.name: "diverged"}
    outcome = read_outcome(job.path, job.stop)
    assert outcome is not None
    assert outcome.reason == "diverged"
    assert "times the first one" in outcome.detail
    assert 0 < outcome.step < 60
    assert left_to_do([job]) == []


AFTER = """
after = ["json.tool {run}/run.json {run}/answers/copy.json"]
"""


def test_a_following_command_is_run_once_for_each_run(description, tmp_path):
    jobs = _jobs(description(AFTER), tmp_path / "runs")[:1]
    run_local(jobs, one_line, 1, _silent)
    copy = jobs[0].path / "answers" / "copy.json"
    assert json.loads(copy.read_text()) == json.loads((jobs[0].path / "run.json").read_text())
    copy.unlink()
    assert left_to_do(jobs) == []
    # Another one is run for the runs that are complete already, and no training with it.
    more = _jobs(description(AFTER.replace("copy.json", "more.json")), tmp_path / "runs")[:1]
    assert left_to_do(more) == more
    before = (more[0].path / "metrics.jsonl").stat().st_mtime_ns
    run_local(more, one_line, 1, _silent)
    assert (more[0].path / "answers" / "more.json").exists()
    assert not copy.exists()
    assert (more[0].path / "metrics.jsonl").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mechinterp.runs show {run}/nowhere", "no run at"),
        ("no_such_module --x", "No module named no_such_module"),
    ],
)
def test_a_following_command_that_fails_says_which_and_keeps_the_run(
    description, tmp_path, line, words
):
    jobs = _jobs(description(f'after = ["{line}"]'), tmp_path / "runs")[:1]
    (said,) = run_local(jobs, one_line, 1, _silent).values()
    assert said.startswith("failed: ")
    assert words in said
    assert Run.open(str(jobs[0].path)).steps[-1] == 24
    assert left_to_do(jobs) == jobs
