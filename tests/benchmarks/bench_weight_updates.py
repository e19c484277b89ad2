"""How long do the updates of a long run take to compare, and how much memory?

Makes a run of 0.8 M-parameter checkpoints on disk (3.2 MB each), and asks the analysis of it in a
process of its own. By default 40 checkpoints; `bench_weight_updates.py 1000` is the full size
(3.2 GB of disk while it runs), for which the target is 60 s and 500 MB.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from mechinterp.config import CheckpointConfig, MarginalsConfig, RunConfig, TrainingConfig
from mechinterp.runs import Run
from mechinterp.runs.writer import RunWriter

SMALL = 40
EVERY = 200
SECONDS, MEGABYTES, FULL = 60, 500, 1000

ASK = """
import sys, time
start = time.perf_counter()
from analyses.command import main
code = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.perf_counter() - start, int(peak.split()[1]) / 1024)
sys.exit(code)
"""


def write_run(path: Path, n_checkpoints: int) -> None:
    """A random walk from the reference run's first checkpoint."""
    reference = Run.open(Path(__file__).parents[2] / "checkpoints" / "reference" / "marginals-k20")
    weights = {name: tensor.clone() for name, tensor in reference.weights(0).items()}
    training = TrainingConfig(steps=EVERY * (n_checkpoints - 1))
    config = RunConfig(MarginalsConfig(), reference.config.model, training, CheckpointConfig(EVERY))
    n_params = sum(tensor.numel() for tensor in weights.values())
    generator = torch.Generator().manual_seed(0)
    with RunWriter.open(path, config, n_params, False, "") as run:
        for number in range(n_checkpoints):
            run.save(number * EVERY, weights, {})
            for tensor in weights.values():
                tensor += 0.01 * torch.randn(tensor.shape, generator=generator)


def main() -> None:
    """Prints seconds and peak memory, without and with the cache."""
    n_checkpoints = int(sys.argv[1]) if len(sys.argv) > 1 else SMALL
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "walk", n_checkpoints)
        argv = ["weight-updates", "--run", "walk", "--root", folder, "--quiet"]
        env = {**os.environ, "MECHINTERP_CACHE": f"{folder}/cache"}
        for what in ("computed", "from the cache"):
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", ASK, *argv], env=env, capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(done.stderr)
            inside, peak = map(float, done.stdout.split())
            print(
                f"{n_checkpoints} checkpoints, {what}: {time.perf_counter() - start:.1f} s in all, "
                f"{inside:.1f} s after the interpreter started, peak {peak:.0f} MB"
                + (f" (target {SECONDS} s, {MEGABYTES} MB)" if n_checkpoints == FULL else "")
            )


if __name__ == "__main__":
    main()
