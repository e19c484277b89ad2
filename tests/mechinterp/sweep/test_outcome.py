import dataclasses
import json

import pytest

from mechinterp.stopping import StopRule
from mechinterp.sweep.outcome import OUTCOME, Outcome, read_outcome, write_outcome

RULE = StopRule(converged=5)
ENDED = Outcome("converged", 40, "", RULE, 1.5, ("analyses plateau",))


def test_what_is_written_is_read(tmp_path):
    write_outcome(tmp_path, ENDED)
    assert read_outcome(tmp_path, RULE) == ENDED


def test_a_run_that_stopped_by_another_rule_goes_on(tmp_path):
    write_outcome(tmp_path, ENDED)
    assert read_outcome(tmp_path, StopRule(converged=6)) is None
    write_outcome(tmp_path, dataclasses.replace(ENDED, reason="budget"))
    assert read_outcome(tmp_path, StopRule(converged=6)) is not None


def test_no_outcome_is_no_complete_run(tmp_path):
    assert read_outcome(tmp_path / "nowhere", RULE) is None


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "tired"},
        {"step": "many"},
        {"stop": {"converged": 5, "late": 1}},
        {"stop": 3},
        {"after": 3},
        {"after": [3]},
        {"seconds": None},
        {"more": 1},
    ],
)
def test_a_damaged_outcome_counts_as_none(tmp_path, change):
    body = {**dataclasses.asdict(ENDED), **change}
    (tmp_path / OUTCOME).write_text(json.dumps(body))
    assert read_outcome(tmp_path, RULE) is None
    (tmp_path / OUTCOME).write_text(json.dumps(dataclasses.asdict(ENDED))[:-9])
    assert read_outcome(tmp_path, RULE) is None
