"""Do two runs of one thread each, at the same time, use two cores?

Prints the throughput of a sweep of four runs with two at once over that with one at a time, with
and without start-up, and over that of runs with two threads each. Wants two idle cores.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """
[base]
task = {name = "marginals", k = 5, n_b = 200}
model = {n_layers = 2, n_heads = 4, d_model = 64, n_ctx = 16}
training = {steps = 400, batch = 64, eval_every = 100, eval_examples = 32}
checkpoints = {save_every = 100, save_log = 0}
[seeds]
values = [0, 1, 2, 3]
fields = ["model.init_seed"]
"""

ROUNDS = 3


def seconds(*options: str) -> float:
    """Times a whole sweep of four runs."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "four.toml"
        spec.write_text(SPEC)
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "mechinterp.sweep", str(spec), "--root", folder, *options],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        return time.perf_counter() - started


def start_up() -> float:
    """Times what every sweep pays once: importing torch and TransformerLens."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import mechinterp.sweep.one_run"],
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    plain, without, wide = [], [], []
    for _ in range(ROUNDS):
        paid = start_up()
        two, one = seconds("--jobs", "2"), seconds("--jobs", "1")
        threaded = seconds("--jobs", "1", "--threads", "2")
        plain.append(one / two)
        without.append((one - paid) / (two - paid))
        wide.append((threaded - paid) / (two - paid))
    for name, found in (
        ("two at once over one at a time, start-up included", plain),
        ("two at once over one at a time, start-up taken off", without),
        ("two at once over one at a time with two threads", wide),
    ):
        print(f"{name}: {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
