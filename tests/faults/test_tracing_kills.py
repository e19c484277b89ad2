"""Traces and measurements killed at random moments: tables whole or absent, the same answer."""

import json
import random
import time

import pandas as pd
import pytest

from tests.faults.children import command, finish, kill_after
from tests.faults.state import Toll, content, repair, strays

KILLS = {"phases": 35, "trace": 15}


@pytest.fixture
def ask(grown, tmp_path):
    """Arguments of a process that asks something of a run, with a cache and a place of its own."""

    def arguments(what: str, folder):
        (folder / "traces").mkdir(parents=True, exist_ok=True)
        environment = {"MECHINTERP_CACHE": str(folder / "cache")}
        out = ["--json", str(folder / "traces/out.json"), "--html", str(folder / "traces/out.html")]
        if what == "phases":
            argv = ["phases", "--run", str(grown / "chains"), "--examples", "16", *out]
            return command, "analyses.command", argv, folder / "said", environment
        argv = ["--run", str(grown / "lookup"), "--ckpt", "last", "--examples", "4", *out]
        return command, "mechinterp.trace", argv, folder / "said", environment

    return arguments


def answer(folder):
    return json.loads((folder / "traces/out.json").read_text())


def tables(folder):
    return {path.name: pd.read_parquet(path) for path in folder.glob("cache/[!.]*.parquet")}


@pytest.mark.parametrize("what", KILLS)
def test_what_is_asked_again_after_kills_has_the_same_answer(
    what, ask, grown, tmp_path, monkeypatch, capsys, count
):
    before = {name: content(grown / name) for name in ("lookup", "chains")}
    began = time.monotonic()
    assert finish(*ask(what, tmp_path / "whole")) == 0
    duration = time.monotonic() - began  # A busy machine takes longer.
    whole = tables(tmp_path / "whole")
    chance = random.Random(f"tracing {what}")
    toll, trial, left, partial = Toll(), 0, 0, 0
    while toll.kills < KILLS[what]:
        trial += 1
        folder, killed = tmp_path / str(trial), True
        monkeypatch.setenv("MECHINTERP_CACHE", str(folder / "cache"))
        while killed and toll.kills < KILLS[what]:
            killed = kill_after(duration * chance.uniform(0.05, 0.8), *ask(what, folder))
            toll.kills += killed
            partial += 0 < len(tables(folder)) < len(whole)
            # Every table that is there is whole, and the one of an undisturbed measurement.
            for name, table in tables(folder).items():
                pd.testing.assert_frame_equal(table, whole[name], check_exact=True)
        assert not killed or finish(*ask(what, folder)) == 0
        toll.identical += answer(folder) == answer(tmp_path / "whole")
        assert tables(folder).keys() == whole.keys()
        monkeypatch.chdir(folder)
        repair(folder / "runs", capsys)
        left += len(strays(folder))
    for name, was in before.items():
        toll.unreadable += content(grown / name) != was
    count("kills", **toll.numbers(), stray_files_after_repair=left, in_tracing=toll.kills)
    assert toll.identical == trial
    assert partial > 0 or what == "trace"  # Kills did fall between two tables.
    assert (toll.unreadable, left) == (0, 0)
