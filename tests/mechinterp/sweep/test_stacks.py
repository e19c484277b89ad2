import dataclasses
import math

import pytest
import torch

from mechinterp.runs import Run
from mechinterp.stack_kind import can_stack
from mechinterp.stacking_gain import stacking_gain
from mechinterp.sweep import one_stack
from mechinterp.sweep.command import main
from mechinterp.sweep.jobs import jobs_of, left_to_do
from mechinterp.sweep.planning import directories_of, planned
from mechinterp.sweep.spec import read_spec
from mechinterp.sweep.stacks import Stack, one_line, run_by_run, stacked, watched
from mechinterp.training_loop import train


@pytest.fixture
def jobs(description, tmp_path):
    """Four jobs: two rates with two seeds each."""
    spec = read_spec(description())
    runs = planned(spec)
    return jobs_of(spec, runs, directories_of(tmp_path / "runs", runs), 1, "the command")


def _with(job, **training):
    changed = dataclasses.replace(job.config.training, **training)
    return dataclasses.replace(job, config=dataclasses.replace(job.config, training=changed))


def test_runs_of_one_rate_are_put_together(jobs):
    first, second = stacked(jobs, 4)
    assert isinstance(first, Stack)
    assert isinstance(second, Stack)
    assert [*first.jobs, *second.jobs] == jobs
    assert {job.config.training.lr for job in first.jobs} == {1e-3}
    assert stacked(jobs, 1) == jobs


def test_a_stack_has_no_more_runs_than_asked_for(jobs):
    many = [
        dataclasses.replace(_with(jobs[0], data_seed=seed), path=jobs[0].path.with_name(str(seed)))
        for seed in range(5)
    ]
    two, also_two, alone = stacked(many, 2)
    assert isinstance(two, Stack)
    assert isinstance(also_two, Stack)
    assert [*two.jobs, *also_two.jobs, alone] == many


def test_what_has_begun_or_goes_run_by_run_stays_alone(jobs):
    jobs[0].path.mkdir(parents=True)
    clipped = [_with(job, clip=1.0) for job in jobs[2:]]
    assert not can_stack(clipped[0].config)
    assert stacked([*jobs[:2], *clipped], 4) == [*jobs[:2], *clipped]


def test_other_lengths_of_a_sequence_are_another_kind(jobs):
    other = dataclasses.replace(
        jobs[1],
        config=dataclasses.replace(
            jobs[1].config, task=dataclasses.replace(jobs[1].config.task, z_length=3)
        ),
    )
    assert stacked([jobs[0], other], 4) == [jobs[0], other]


def test_a_stack_ends_every_run_near_where_it_ends_alone(jobs, monkeypatch, tmp_path):
    monkeypatch.setattr(one_stack, "LEAST_GAIN", 0.0)
    work = stacked(jobs, 4)
    ended = {piece.path.name: one_line(piece) for piece in work}
    assert run_by_run(work, ended) == {job.path.name: "budget" for job in jobs}
    assert left_to_do(jobs) == []
    for job in jobs:
        train(job.config, tmp_path / "alone" / job.path.name)
        alone = Run.open(tmp_path / "alone" / job.path.name)
        together = Run.open(job.path)
        assert together.steps == alone.steps
        assert together.config == alone.config
        for name, tensor in alone.weights(24).items():
            if not name.endswith("attn.b_K"):  # It has no gradient but rounding.
                torch.testing.assert_close(together.weights(24)[name], tensor, rtol=0, atol=1e-4)


def test_where_stacking_wins_nothing_runs_have_the_bits_they_have_alone(
    jobs, monkeypatch, tmp_path
):
    monkeypatch.setattr(one_stack, "LEAST_GAIN", math.inf)
    (piece, _) = stacked(jobs, 4)
    assert run_by_run([piece], {piece.path.name: one_line(piece)}) == {
        job.path.name: "budget" for job in jobs[:2]
    }
    train(jobs[1].config, tmp_path / "alone")
    assert Run.open(jobs[1].path).checkpoint_hash(24) == Run.open(
        tmp_path / "alone"
    ).checkpoint_hash(24)


def test_a_stack_that_was_lost_goes_on_run_by_run(jobs, monkeypatch):
    (piece, _) = stacked(jobs, 4)
    train(_with(jobs[0], steps=8).config, jobs[0].path)
    monkeypatch.setattr(one_stack, "train_stacked", lambda *_, **__: pytest.fail("one has begun"))
    monkeypatch.setattr(one_stack, "LEAST_GAIN", 0.0)
    said = run_by_run([piece], {piece.path.name: one_line(piece)})
    assert said[jobs[1].path.name] == "budget"


def test_one_run_of_a_stack_that_fails_is_named_alone(jobs, monkeypatch):
    monkeypatch.setattr(one_stack, "LEAST_GAIN", 0.0)
    (piece, _) = stacked(jobs, 4)
    broken = dataclasses.replace(jobs[0], after=("no_such_module --run {run}",))
    piece = Stack((broken, jobs[1]))
    said = run_by_run([piece], {piece.path.name: one_line(piece)})
    assert said[jobs[0].path.name].startswith("failed: ")
    assert "no_such_module" in said[jobs[0].path.name]
    assert said[jobs[1].path.name] == "budget"


def test_a_watch_is_told_of_runs_and_not_of_stacks(jobs):
    work = stacked(jobs, 4)
    told = []
    report = watched(work, lambda at_work, ended: told.append((list(at_work), ended)))
    report(work[1:], {work[0].path.name: "failed: its process died 3 times"})
    at_work, ended = told[0]
    assert at_work == jobs[2:]
    assert ended == {job.path.name: "failed: its process died 3 times" for job in jobs[:2]}


def test_the_gain_is_the_time_apart_over_the_time_together(jobs, monkeypatch):
    def seconds(work, tokens):
        work()
        return {"separate": 3.0, "together": 2.0}[work.__name__]

    monkeypatch.setattr("mechinterp.stacking_gain._seconds", seconds)
    assert stacking_gain([job.config for job in jobs[:2]]) == 1.5


def test_the_command_stacks_and_says_how_every_run_ended(description, tmp_path, capsys):
    path = description()
    assert main([str(path), "--stack", "2", "--jobs", "1", "--root", str(tmp_path / "runs")]) == 0
    assert "4 of 4 runs complete, 0 of them before" in capsys.readouterr().out
    assert main([str(path), "--stack", "0", "--root", str(tmp_path / "runs")]) == 2
    assert "stack is 0; it has to be 1 or more" in capsys.readouterr().err
