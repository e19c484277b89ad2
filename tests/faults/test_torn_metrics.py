"""metrics.jsonl after a kill or a power cut: a torn end is left out, a step counts once."""

import json
import shutil

import pytest

from mechinterp.runs import Run
from tests.faults.children import SMALL, finish, grow, kill_after
from tests.faults.state import content, why_unreadable


def test_metrics_torn_at_every_byte_of_the_last_line_load(grown, tmp_path, count):
    path = tmp_path / "lookup"
    shutil.copytree(grown / "lookup", path)
    whole = (path / "metrics.jsonl").read_bytes()
    rows = Run.open(path).metrics()
    start = whole[:-1].rindex(b"\n") + 1
    torn = 0
    for end in range(start, len(whole) - 1):
        (path / "metrics.jsonl").write_bytes(whole[:end])
        read = Run.open(path).metrics()
        assert read["step"].tolist() == rows["step"].tolist()[:-1]
        torn += 1
    count("metrics", torn_lines=torn, loaded=torn)
    assert torn > 100


@pytest.mark.parametrize("which", SMALL)
def test_torn_and_repeated_rows_of_a_killed_run_are_gone_when_it_is_resumed(
    which, grown, tmp_path, count
):
    path = tmp_path / which
    kill_after(0.3, grow, which, path)
    while not (path / "metrics.jsonl").exists():
        kill_after(0.4, grow, which, path)
    step = max(Run.open(path).steps, default=0)
    # What a killed trainer had written since its last checkpoint, twice over, and half a row.
    repeated = [{"step": s, "train_loss": 7.5} for s in (step + 1, step + 2, step + 1)]
    with (path / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in repeated) + '{"step": 99, "tr')
    table = Run.open(path).metrics()
    assert table["step"].is_unique
    assert table["step"].is_monotonic_increasing
    assert table["step"].iloc[-1] == step + 2
    assert why_unreadable(path) == []
    assert finish(grow, which, path) == 0
    assert content(path) == content(grown / which)
    count("metrics", torn_lines=1, loaded=1, repeated_steps_resolved=len(repeated))
