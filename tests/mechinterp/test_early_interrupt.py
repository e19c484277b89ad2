"""Ctrl-C at any moment of a command's start is one line and code 130; the library is left alone."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from mechinterp.command import heavy_imports, run_command
from mechinterp.early_interrupt import interruptible, leave_quietly, leaving_quietly

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "mechinterp.train",
    "mechinterp.trace",
    "mechinterp.runs",
    "mechinterp.sweep",
    "analyses",
)

WORDS = (" before anything was begun", "; what was finished is kept")


def _interrupted(module, delay, tmp_path, *arguments):
    """Starts a command and interrupts it so long after its own first import; code and stderr."""
    # Each import is reported as it ends, so that the machine's load does not decide what is tried.
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", module, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines = iter(process.stderr.readline, "")
        assert any("mechinterp.early_interrupt" in line for line in lines)
        next(lines)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        said = [line for line in lines if not line.startswith("import time:")]
    return process.returncode, "".join(said)


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3])
def test_a_command_that_is_still_importing_leaves_with_one_line(delay, tmp_path):
    arguments = ["marginals", "--run", "x", "--steps", "100000"]
    code, said = _interrupted("mechinterp.train", delay, tmp_path, *arguments)
    assert code == 130
    # Between two stretches of importing, the command itself answers.
    assert said in [f"python -m mechinterp.train: interrupted{rest}\n" for rest in WORDS]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_is_covered(module, tmp_path):
    code, said = _interrupted(module, 0.0, tmp_path, "no-such-word")
    assert (code, said) == (130, f"python -m {module}: interrupted before anything was begun\n")


def test_importing_the_library_changes_no_handler():
    code = (
        "import signal, mechinterp.train, mechinterp.trace, mechinterp.runs.__main__\n"
        "import mechinterp.early_interrupt, analyses.command, mechinterp.sweep.command\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def handler():
    """Gives the handler of SIGINT, which is put back afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_the_command_itself_gets_keyboard_interrupts_again(handler, capsys):
    leave_quietly("greet")
    assert handler() is not signal.default_int_handler
    interruptible()
    with heavy_imports():
        assert handler() is not signal.default_int_handler
    assert handler() is signal.default_int_handler
    leave_quietly("greet")

    def act(_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    assert run_command(Nothing, act, prog="greet", description="", argv=[]) == 130
    assert capsys.readouterr().err == "greet: interrupted; what was finished is kept\n"


@dataclass(frozen=True)
class Nothing:
    """A command without options."""


def test_a_handler_of_somebody_else_stays(handler):
    for other in (signal.SIG_IGN, lambda number, frame: None):
        signal.signal(signal.SIGINT, other)
        with leaving_quietly("greet"):
            assert handler() is other
        assert handler() is other
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=leave_quietly, args=("greet",))  # Signals are the main one's.
    thread.start()
    thread.join()
    assert handler() is signal.default_int_handler
