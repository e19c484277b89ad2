"""What does a scan of many checkpoints cost, next to one warm trace of each?

A trace is everything that circuit formation measures on a checkpoint, the same on both sides. The
scan runs in two processes with one thread each and pays for their start once; the warm traces run
one after the other in this process, with two threads, after a first one that does not count.
Scans and warm traces take turns, so that a change in the machine's speed falls on both.

The checkpoints are those of the reference run of the marginals task with some noise on their
weights. `bench_formation.py 40` is the full size. With fewer the start weighs more, so the ratio at
the full size is estimated from the time of the start, measured apart.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from analyses.checkpoints import measure_checkpoints
from analyses.formation.measuring import FormationMeasure
from mechinterp.config import CheckpointConfig
from mechinterp.runs import Run
from mechinterp.runs.writer import RunWriter
from mechinterp.workers import in_processes

SMALL, FULL, ROUNDS, JOBS = 6, 40, 2, 2
EXAMPLES = 128
TARGET = 0.85
NOISE = 1e-3


def seconds(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def write_run(path: Path, n_checkpoints: int) -> Run:
    """Checkpoints of the reference run in turn, no two with the same weights."""
    reference = Run.open("marginals-k20")
    training = replace(reference.config.training, steps=n_checkpoints)
    config = replace(reference.config, training=training, checkpoints=CheckpointConfig(1))
    generator = torch.Generator().manual_seed(0)
    steps = reference.steps
    with RunWriter.open(path, config, reference.meta["n_params"], False, "") as run:
        for number in range(n_checkpoints):
            weights = {
                name: tensor + NOISE * torch.randn(tensor.shape, generator=generator)
                for name, tensor in reference.weights(steps[number % len(steps)]).items()
            }
            run.save(number, weights, {})
    return Run.open(path)


class Starting:
    """Imports what a trace needs, and does nothing."""

    def __call__(self, number: int) -> str:
        from analyses.formation import measuring

        return f"{measuring.__name__} {number}"


def report(run: Run) -> None:
    measure = FormationMeasure(run.config.task, EXAMPLES, "zero", "head", ("eap", "eap-ig-inputs"))
    steps = run.steps

    def scan() -> None:
        measure_checkpoints(run, steps, "bench", {}, measure, quiet=True, jobs=JOBS)

    def warm(step: int) -> None:
        measure(run.model(step).eval())

    torch.set_num_threads(JOBS)
    warm(steps[0])
    ratios, traces = [], []
    for number in range(ROUNDS if len(steps) < FULL else 1):
        half = len(steps) // 2
        before = [seconds(lambda step=step: warm(step)) for step in steps[:half]]
        scanned = seconds(scan)
        after = [seconds(lambda step=step: warm(step)) for step in steps[half:]]
        traces += before + after
        ratios.append(scanned / sum(before + after))
        print(
            f"round {number + 1}: {len(steps)} checkpoints scanned by {JOBS} processes in "
            f"{scanned:.1f} s, start included; as many warm traces with {JOBS} threads "
            f"{sum(before + after):.1f} s; ratio {ratios[-1]:.2f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    if len(steps) < FULL:
        start = seconds(lambda: list(in_processes(Starting(), range(JOBS), JOBS)))
        trace = statistics.mean(traces)
        ratio += start / trace * (1 / FULL - 1 / len(steps))
        print(f"the start of the processes takes {start:.1f} s, {start / trace:.2f} traces")
    estimated = " (estimated)" if len(steps) < FULL else ""
    verdict = "met" if ratio <= TARGET else "MISSED"
    print(f"ratio at {FULL} checkpoints{estimated}: {ratio:.2f}; target {TARGET}: {verdict}")


def main() -> None:
    """Prints the ratio."""
    n_checkpoints = int(sys.argv[1]) if len(sys.argv) > 1 else SMALL
    os.environ["MECHINTERP_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        report(write_run(Path(folder) / "copies", n_checkpoints))


if __name__ == "__main__":
    main()
