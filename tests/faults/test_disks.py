"""A full, read-only or forbidden disk: one line, exit code 2, and what was safe stays safe."""

import json
import shutil

import pytest

from tests.faults import disks
from tests.faults.children import command, finish, grow, training
from tests.faults.state import content, strays, why_unreadable

NO_WRITING = {"read-only": "read-only", "denied": "permission denied"}


@pytest.fixture(scope="module", autouse=True)
def _needs_a_disk_of_its_own():
    if not disks.possible():
        pytest.skip("neither root nor user namespaces: no disk can be made small or read-only here")


@pytest.fixture
def refused(tmp_path, count):
    """Runs a command in trouble and gives the one line it says."""

    def run(trouble, module, argv, environment=None):
        said = tmp_path / "said"
        assert finish(disks.command, trouble, module, argv, said, environment or {}) == 2
        (line,) = said.read_text().splitlines()
        assert line.startswith(f"python -m {module.removesuffix('.command')}: ")
        count("disks and processes", refused_in_one_line=1)
        return line

    return run


def test_a_control_without_trouble(grown, tmp_path):
    """The command line that the others here use is the one of the undisturbed run."""
    assert finish(command, *training("lookup", tmp_path / "run"), tmp_path / "said", {}) == 0
    assert (tmp_path / "said").read_text() == ""
    assert content(tmp_path / "run") == content(grown / "lookup")


@pytest.mark.parametrize("kilobytes", [4, 40, 90, 110, 118, 126, 134, 142, 150, 158, 230])
def test_a_full_disk_costs_one_checkpoint(kilobytes, grown, tmp_path, refused):
    place, out = tmp_path / "disk", tmp_path / "out"
    line = refused(("full", place, kilobytes, out), *training("lookup", place / "run"))
    assert "the disk is full; free some space and ask again (training: with --resume)" in line
    assert strays(out / "after") == []
    run = out / "after" / "run"
    if kilobytes == 4:
        assert not run.exists()
        return
    assert why_unreadable(run) == []
    # With space again, it goes on as if nothing had happened.
    assert finish(grow, "lookup", run) == 0
    assert content(run) == content(grown / "lookup")


def test_a_full_disk_under_a_finished_run_keeps_it(grown, tmp_path, refused):
    place, out = tmp_path / "disk", tmp_path / "out"
    shutil.copytree(grown / "lookup", place / "run")
    size = disks.used_kilobytes(place)
    argv = training("lookup", place / "run", "--resume")
    argv[1][argv[1].index("--steps") + 1] = "80"
    line = refused(("full", place, size + 30, out), *argv)
    assert "the disk is full" in line
    left, whole = content(out / "after" / "run"), content(grown / "lookup")
    assert why_unreadable(out / "after" / "run") == []
    assert left.pop("metrics.jsonl").startswith(whole.pop("metrics.jsonl"))
    # Older checkpoints give up their resume state; everything else is there, byte for byte.
    safe = {name: data for name, data in whole.items() if "resume" not in name}
    assert {name: left.get(name) for name in safe} == safe


def test_a_full_disk_costs_a_measurement_its_cache_only(grown, tmp_path):
    asked = ["phases", "--run", str(grown / "chains"), "--examples", "64", "--quiet"]
    place = tmp_path / "disk"
    answers = []
    for name, kilobytes in (("small", 8), ("large", 8000)):
        file = tmp_path / f"{name}.json"
        trouble = ("full", place, kilobytes, tmp_path / name)
        argv = [*asked, "--json", str(file)]
        environment = {"MECHINTERP_CACHE": str(place / "cache")}
        said = tmp_path / "said"
        assert finish(disks.command, trouble, "analyses.command", argv, said, environment) == 0
        answers.append(json.loads(file.read_text()))
    assert answers[0] == answers[1]
    kept = [len(list((tmp_path / name / "after/cache").glob("*"))) for name in ("small", "large")]
    assert kept[0] < kept[1]


def test_an_answer_that_does_not_fit_leaves_the_old_one(grown, tmp_path, refused):
    place, out = tmp_path / "disk", tmp_path / "out"
    place.mkdir()
    (place / "answer.json").write_text("old")
    argv = ["phases", "--run", str(grown / "chains"), "--quiet", "--examples", "64"]
    argv += ["--json", str(place / "answer.json")]
    environment = {"MECHINTERP_CACHE": "off"}
    line = refused(("full", place, 8, out), "analyses.command", argv, environment)
    assert "answer.json: the disk is full" in line
    assert {p.name: p.read_text() for p in (out / "after").iterdir()} == {"answer.json": "old"}


@pytest.mark.parametrize("kind", NO_WRITING)
@pytest.mark.parametrize("exists", [False, True])
def test_nothing_is_written_where_nothing_may_be(kind, exists, grown, tmp_path, refused):
    place = tmp_path / "disk"
    shutil.copytree(grown / "lookup", place / "run" if exists else place / "other")
    before = content(place)
    line = refused((kind, place), *training("lookup", place / "run", "--resume"))
    assert NO_WRITING[kind] in line
    assert content(place) == before


@pytest.mark.parametrize("kind", NO_WRITING)
def test_a_run_that_cannot_be_written_to_can_be_read(kind, grown, tmp_path):
    place, said = tmp_path / "disk", tmp_path / "said"
    shutil.copytree(grown / "chains", place / "chains")
    for module, argv in (
        ("mechinterp.runs.__main__", ["verify", "chains", "--root", str(place)]),
        (
            "analyses.command",
            ["phases", "--run", str(place / "chains"), "--examples", "64", "--quiet"],
        ),
    ):
        environment = {"MECHINTERP_CACHE": str(place / "cache")}
        assert finish(disks.command, (kind, place), module, argv, said, environment) == 0, said
    assert not (place / "cache").exists()


def test_the_limits_of_a_quota_are_told_too(tmp_path, refused):
    # The system's own limit on the size of a file; it needs no disk of one's own.
    argv = training("lookup", tmp_path / "run")
    assert "File too large" in refused(("file-size", 4096), *argv)
