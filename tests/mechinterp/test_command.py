import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from circuits.errors import InputError, near_matches
from mechinterp.command import run_command


@dataclass(frozen=True)
class Greeting:
    """A command for the test."""

    name: str
    """Who is greeted."""
    tone: Literal["warm", "cool"] = "warm"
    """How."""
    times: int = 1


def _run(argv, act=lambda _: None):
    return run_command(Greeting, act, prog="greet", description="Greets.", argv=argv)


def test_arguments_arrive_as_the_dataclass():
    seen = []
    assert _run(["--name", "Ada", "--tone", "cool"], seen.append) == 0
    assert seen == [Greeting("Ada", "cool")]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--name", "Ada", "--tone", "icy"], ["invalid choice 'icy'", "'warm', 'cool'"]),
        ([], ["--name"]),
        (["--name", "Ada", "--volume", "3"], ["Unrecognized options: --volume"]),
        (["--name", "Ada", "--times", "often"], ["--times", "'often'"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv, words, capsys):
    assert _run(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("greet: ")
    assert all(word in err for word in [*words, "--help"])


def test_an_input_error_is_one_line_and_exit_code_2(capsys):
    def act(_):
        raise InputError("the step\n is unknown")

    assert _run(["--name", "Ada"], act) == 2
    assert capsys.readouterr().err == "greet: the step is unknown\n"


def test_interrupting_is_one_line_and_exit_code_130(capsys):
    def act(_):
        raise KeyboardInterrupt

    assert _run(["--name", "Ada"], act) == 130
    assert capsys.readouterr().err.count("\n") == 1


def test_a_programming_error_keeps_its_traceback():
    def act(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _run(["--name", "Ada"], act)


def test_near_matches_prefers_close_names():
    assert near_matches("L0H9", ["L0H0", "embed", "M0"]) == "L0H0"
    assert near_matches("zzz", ["a", "b"]) == "a, b"


@pytest.mark.parametrize("module", ["train", "trace", "runs"])
def test_help_does_not_import_the_heavy_libraries(module):
    check = (
        "import sys, runpy\n"
        f"sys.argv = ['x', '--help']\n"
        "try:\n"
        f"    runpy.run_module('mechinterp.{module}', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as leave:\n"
        "    assert not leave.code, leave.code\n"
        "heavy = {'torch', 'transformer_lens', 'pandas', 'plotly', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"mechinterp.{module}" in done.stdout
