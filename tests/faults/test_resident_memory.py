"""Many checkpoints traced in one process: what it holds does not grow."""

import json

from tests.faults.children import finish, trace_all


def test_resident_memory_is_flat_over_24_checkpoints(grown, tmp_path, count):
    assert finish(trace_all, grown / "lookup", tmp_path / "resident.json") == 0
    resident = json.loads((tmp_path / "resident.json").read_text())
    assert len(resident) == 24
    first, rest = resident[2], resident[3:]
    # The control: the first checkpoint did need memory that was not there before.
    assert resident[0] > 50 * 2**20
    print([round(r / first, 4) for r in resident])
    growth = max(rest) / first - 1
    count("memory", checkpoints_traced=24, percent_of_growth_after_the_third=round(100 * growth))
    assert growth < 0.05
