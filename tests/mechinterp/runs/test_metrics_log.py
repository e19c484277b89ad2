"""metrics.jsonl: torn ends, repeated steps, and values JSON does not know."""

import numpy as np
import pytest
import torch

from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.runs.metrics_log import MetricsLog, read_rows


def test_a_torn_last_line_is_left_out_when_reading_and_dropped_when_resuming(growth, run_path):
    path = run_path / "metrics.jsonl"
    whole = path.read_bytes()
    for torn in (b'{"step": 13, "lo', b"\x00\x00\x00", b'{"step": 13}garbage\n\x00\xff'):
        path.write_bytes(whole + torn)
        assert list(Run.open(run_path).metrics()["step"]) == list(range(13))
        growth.train(run_path, 12, resume=True)
        assert path.read_bytes() == whole


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n{"step": 1}')
    assert [row["step"] for row in read_rows(path)] == [0, 1]
    log = MetricsLog(path)
    log.append({"step": 2})
    log.close()
    assert path.read_bytes() == b'{"step": 0}\n{"step": 1}\n{"step": 2}\n'


def test_damage_in_the_middle_is_named(run_path):
    path = run_path / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[4] = lines[4][:-3]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"metrics.jsonl is damaged: line 5 is not a JSON object"):
        Run.open(run_path).metrics()


def test_of_several_rows_for_a_step_the_last_one_counts(run_path):
    with (run_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 7.5, "extra": 1}\n')
    table = Run.open(run_path).metrics().set_index("step")
    assert list(table.index) == list(range(13))
    assert table.loc[3, "loss"] == 7.5
    assert table["extra"].notna().sum() == 1


def test_values_are_plain_json_whatever_they_were(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(
        {"step": 1, "a": torch.tensor(0.5), "b": np.float32(0.25), "c": float("nan"), "d": -np.inf}
    )
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"step": 1, "a": 0.5, "b": 0.25, "c": null, "d": null}\n'


def test_a_row_without_a_step_is_refused(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for row in ({"loss": 1.0}, {"step": 1.5}, {"step": -1}, {"step": True}):
        with pytest.raises(InputError, match="needs an integer step"):
            log.append(row)
    log.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_run_without_metrics_gives_an_empty_table(run_path):
    (run_path / "metrics.jsonl").unlink()
    table = Run.open(run_path).metrics()
    assert list(table.columns) == ["step"]
    assert table.empty


def test_the_seal_follows_every_append_and_rewrite(tmp_path):
    import hashlib

    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(5):
        log.append({"step": step})
    log.drop_after(2)
    log.append({"step": 3})
    data = path.read_bytes()
    assert data == b"".join(b'{"step": %d}\n' % step for step in range(4))
    assert (log.seal().size, log.seal().sha256) == (len(data), hashlib.sha256(data).hexdigest())
    log.close()
