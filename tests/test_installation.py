"""A wheel in an empty environment says where it looked; a checkout is found from any folder."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


def _run(argv, cwd, **env):
    # PYTHONPATH would put the checkout in front of what is installed.
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MECHINTERP_RUNS")}
    return subprocess.run(argv, cwd=cwd, env=kept | env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel_python(tmp_path_factory):
    """An environment with the wheel in it, and the dependencies borrowed from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = _run(["git", "ls-files", "-z", "*.py", "pyproject.toml", "README.md"], CHECKOUT)
    for name in filter(None, tracked.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((CHECKOUT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "..", "."], source)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("mechinterp_toolkit-*.whl")
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    installed = _run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], folder)
    assert installed.returncode == 0, installed.stderr
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return str(python)


def test_a_wheel_holds_the_three_packages_and_no_others(wheel_python, tmp_path):
    check = (
        "import importlib.metadata as m, pathlib\n"
        "names = {pathlib.PurePosixPath(f).parts[0] for f in m.files('mechinterp-toolkit')}\n"
        "print(sorted(n for n in names if 'dist-info' not in n and '..' not in n))\n"
    )
    done = _run([wheel_python, "-c", check], tmp_path)
    assert done.stdout.strip() == "['analyses', 'circuits', 'mechinterp']", done.stderr


def test_a_wheel_says_where_it_looked_for_runs(wheel_python, tmp_path):
    done = _run([wheel_python, "-m", "mechinterp.trace", "--ckpt", "step_4000"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert str(tmp_path / "checkpoints") in done.stderr
    assert "--root" in done.stderr
    assert "MECHINTERP_RUNS" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_wheel_finds_runs_where_the_variable_says(wheel_python, tmp_path):
    reference = str(CHECKOUT / "checkpoints" / "reference")
    done = _run(
        [wheel_python, "-m", "mechinterp.runs", "list"], tmp_path, MECHINTERP_RUNS=reference
    )
    assert done.returncode == 0, done.stderr
    assert "marginals-k20" in done.stdout


def test_a_checkout_finds_its_reference_runs_from_any_folder(tmp_path):
    done = _run([sys.executable, "-m", "mechinterp.runs", "list"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "marginals-k20" in done.stdout
