import json
import struct
import sys
import time

import pytest

from circuits.errors import InputError
from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.metric_sinks import make_sink
from mechinterp.runs import Run
from mechinterp.runs.verifying import problems_of
from mechinterp.training_progress import run_training

SMALL = RunConfig(
    MarginalsConfig(k=3, n_b=20),
    ModelConfig(n_layers=1, n_heads=2, d_model=16, n_ctx=16),
    TrainingConfig(steps=12, batch=16, eval_every=4, eval_examples=8),
    CheckpointConfig(save_every=6, save_log=0),
)


def _train(path, sink):
    run_training(SMALL, path, resume=False, threads=1, quiet=True, command="", log_to=(sink,))
    return Run.open(path).metrics()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_rows_of_the_log(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = _train(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    sent = {event.step: event.value for event in events.Scalars("candidate_loss")}
    assert sent == pytest.approx(dict(zip(rows["step"], rows["candidate_loss"], strict=True)))
    assert {event.step for event in events.Scalars("train_loss")} == {4, 8, 12}
    assert problems_of(tmp_path / "run") == []


def _records(data):
    """The records of a file in LevelDB's log format: blocks of 32 KiB, records in pieces."""
    at, piece = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        piece += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield piece
            piece = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_has_the_rows_of_the_log(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    rows = _train(tmp_path / "run", "wandb")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    sent, config, patience = {}, {}, time.monotonic() + 60
    # A process of wandb's own writes the file; on a busy machine it does so later.
    while len(sent) < len(rows) and time.monotonic() < patience:
        for data in _records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            items = {
                i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item
            }
            if items:
                sent[items["_step"]] = items["candidate_loss"]
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
        time.sleep(0.2)
    assert sent == pytest.approx(dict(zip(rows["step"], rows["candidate_loss"], strict=True)))
    assert config["task"]["n_b"] == 20


@pytest.mark.parametrize(
    ("sink", "module"), [("tensorboard", "torch.utils.tensorboard.writer"), ("wandb", "wandb")]
)
def test_a_missing_extra_is_named_before_anything_is_trained(tmp_path, monkeypatch, sink, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install -e '\.\[{sink}\]'"):
        make_sink(sink, SMALL, tmp_path / "run")
    with pytest.raises(InputError, match="--log-to"):
        _train(tmp_path / "run", sink)
    assert not (tmp_path / "run").exists()
