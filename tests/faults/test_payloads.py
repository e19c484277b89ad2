"""Pickles that want to run something, and archives that want out: refused, and nothing is run."""

import builtins
import collections
import json
import os
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import to_json
from mechinterp.runs.__main__ import main
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.sweep.command import main as sweep
from mechinterp.train import main as train
from tests.faults.children import LOOKUP

EVENTS = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "webbrowser.")
HARMLESS = ("os.listdir", "os.scandir", "os.putenv")
_seen: list[str] | None = None


def _hook(event: str, _: object) -> None:
    if _seen is not None and event.startswith(EVENTS) and event not in HARMLESS:
        _seen.append(event)


# It cannot be removed again, so that it listens only while `watched` wants it to.
sys.addaudithook(_hook)


@pytest.fixture
def watched():
    """Gives what happened in this process that no reader of weights has any business with."""
    global _seen
    _seen = []
    yield _seen
    _seen = None


class Calls:
    """Unpickled, it calls a function."""

    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


class Rebuilt:
    """Unpickled, its state is set by a function that is in the pickle itself."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return (
            collections.OrderedDict,
            (),
            None,
            None,
            iter([("w", Calls(os.system, self.command))]),
        )


def payloads(marker: str) -> dict[str, object]:
    touch = f"touch {marker}"
    by_eval = Calls(builtins.eval, f"__import__('os').mkdir({marker!r})")
    return {
        "os.system": {"w": Calls(os.system, touch)},
        "eval": {"w": by_eval},
        "exec": {"w": Calls(builtins.exec, f"__import__('os').mkdir({marker!r})")},
        "open": {"w": Calls(builtins.open, marker, "w")},
        "subprocess": {"w": Calls(subprocess.call, ["touch", marker])},
        "getattr": {"w": Calls(builtins.getattr, Calls(__import__, "os"), "system")},
        "as a name": {by_eval: torch.ones(1)},
        "nested": {"w": torch.ones(2), "deep": [{"x": ({"y": [by_eval]},)}]},
        "in an ordered dictionary": Rebuilt(touch),
        "a pickle in a pickle": {"w": Calls(pickle.loads, pickle.dumps(by_eval))},
        "instead of the dictionary": by_eval,
        "beside good tensors": {"embed.W_E": torch.ones(2, 3), "b": torch.zeros(2), "w": by_eval},
        "a whole module": {"w": torch.nn.Linear(2, 2)},
        "torch's own loader": {"w": Calls(torch.load, "other.pt")},
        "a tensor of another class": {"w": Calls(torch.Tensor, 3)},
    }


KINDS = tuple(payloads("x"))
RUNS = ("os.system", "eval", "exec", "subprocess", "nested", "instead of the dictionary")


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_does_not_run(kind, tmp_path, watched, count):
    path, marker = tmp_path / "model.pt", tmp_path / "ran"
    body = payloads(str(marker))[kind]
    forms = {
        "zip": lambda: torch.save(body, path),
        "zip, protocol 4": lambda: torch.save(body, path, pickle_protocol=4),
        "legacy": lambda: torch.save(body, path, _use_new_zipfile_serialization=False),
        "bare pickle": lambda: path.write_bytes(pickle.dumps(body, 0)),
    }
    refused = 0
    for write in forms.values():
        write()
        watched.clear()
        with pytest.raises(InputError, match=r"model\.pt cannot be imported: ") as caught:
            read_state_dict(path)
        assert "\n" not in str(caught.value)
        assert watched == []
        refused += 1
    assert not marker.exists()
    count("payloads", tried=len(forms), refused=refused, run=int(marker.exists()))
    # The control: loaded carelessly, the very same does run, and the watch sees it.
    if kind in RUNS:
        torch.save(body, path)
        torch.load(path, weights_only=False)
        assert marker.exists()
        assert watched


def with_part(path, name, data: bytes) -> None:
    """Puts one more part into an archive of torch.save, or another one in the place of it."""
    with zipfile.ZipFile(path) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in {**parts, name: data}.items():
            archive.writestr(part, content)


OUTSIDE = ("../../evil.py", "/etc/cron.d/evil", "model/../../evil", "..\\evil", "\\evil")


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_archive_that_points_outside_is_refused(name, tmp_path, watched, count):
    path = tmp_path / "a" / "b" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save({"w": torch.ones(2)}, path)
    with_part(path, name, b"import os")
    watched.clear()
    with pytest.raises(InputError, match="points outside the archive"):
        read_state_dict(path)
    assert watched == []
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["model.pt"]
    count("paths", tried=1, refused=1)


@pytest.mark.parametrize("part", ["data.pkl", "constants.pkl", "code/evil.py", "extra/data.pkl"])
def test_a_payload_in_a_part_of_the_archive_does_not_run(part, tmp_path, watched, count):
    path, marker = tmp_path / "model.pt", tmp_path / "ran"
    torch.save({"w": torch.ones(2)}, path)
    evil = pickle.dumps(Calls(os.mkdir, str(marker)), 2)
    with_part(path, f"model/{part}", evil)
    watched.clear()
    if part == "code/evil.py":
        # A part that nobody asks for may lie there; what it says is never read.
        assert read_state_dict(path)["w"].tolist() == [1, 1]
    else:
        with pytest.raises(InputError, match="cannot be imported"):
            read_state_dict(path)
    assert watched == []
    assert not marker.exists()
    count("payloads", tried=1, refused=part != "code/evil.py", run=int(marker.exists()))


def test_two_descriptions_in_one_archive_are_refused(tmp_path, watched):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(2)}, path)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(Calls(os.mkdir, str(tmp_path / "ran")), 2))
    with pytest.raises(InputError, match="cannot be imported"):
        read_state_dict(path)
    assert not (tmp_path / "ran").exists()


CLIMBING = ("../evil", "a/../../evil", "..", "runs/.hidden", "-rf", ".tmp-1", "x\0y", "a b", "")


@pytest.mark.parametrize("name", CLIMBING)
def test_a_run_whose_name_climbs_is_refused(name, tmp_path, monkeypatch, capsys, count):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    (inside / "config.json").write_text(json.dumps(to_json(LOOKUP)))
    (inside / "sweep.toml").write_text(f"name = {json.dumps(name)}\n")
    (inside / "old").mkdir()
    before = sorted(tmp_path.rglob("*"))
    commands = [
        (train, ["marginals", f"--run={name}", "--steps", "1"]),
        (main, ["import", "old", "--config", "config.json", f"--run={name}"]),
        (main, ["show", "--", name]),
        (sweep, ["run", "sweep.toml"]),
    ]
    for command, argv in commands:
        assert command(argv) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert said.err.startswith("python -m ")
    assert sorted(tmp_path.rglob("*")) == before
    count("paths", tried=len(commands), refused=len(commands))
