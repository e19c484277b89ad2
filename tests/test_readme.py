"""The README shows what the command really prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- output: (.*?) -->\n```\n(.*?)\n```\n<!-- end of output -->", re.DOTALL)
NUMBER = re.compile(r"[+-]?\d+\.\d+")


def _blocks():
    return BLOCK.findall((CHECKOUT / "README.md").read_text())


def test_the_readme_has_its_output():
    assert [command for command, _ in _blocks()] == ["python -m mechinterp.trace --ckpt step_4000"]


@pytest.mark.parametrize(("command", "shown"), _blocks())
def test_the_command_prints_what_the_readme_shows(command, shown, tmp_path):
    argv = [sys.executable, *command.split()[1:]]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    expected = [line.rstrip() for line in shown.splitlines()]
    # Numbers may differ in the last digit between processors; the words and their order may not.
    for ours, theirs in zip(printed, expected, strict=True):
        assert _words(ours) == _words(theirs)
        found = [float(x) for x in NUMBER.findall(ours)]
        assert found == pytest.approx([float(x) for x in NUMBER.findall(theirs)], abs=2.1e-3)


def _words(line):
    return NUMBER.sub("*", line).replace("#", "").split()
