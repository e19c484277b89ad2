"""No argument of a public function ends in anything but an answer or one clear line."""

import os
import subprocess
import sys


def test_every_argument_of_every_public_function_takes_odd_values_in_one_line():
    # A process of its own: here the axis checks of the tests would answer first.
    said = subprocess.run(
        [sys.executable, "-m", "tests.circuits.odd_arguments"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert said.returncode == 0, said.stderr
    first, *mishaps = said.stdout.splitlines()
    assert int(first.removesuffix(" tried")) > 2000
    assert mishaps == []
