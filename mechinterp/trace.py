"""`python -m mechinterp.trace`: what does this checkpoint compute, and through which edges?"""

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mechinterp.command import heavy_imports, run_command
from mechinterp.runs import DEFAULT_RUN

PROG = "python -m mechinterp.trace"

DESCRIPTION = f"""Trace the circuit of one checkpoint: diagnostics, heads, edges, and a picture.

The run is {DEFAULT_RUN} unless --run, or a path given as --ckpt, says otherwise.

Examples:
  python -m mechinterp.trace --ckpt step_4000
  python -m mechinterp.trace --run markov-k4 --ckpt last --ablation mean
  python -m mechinterp.trace --ckpt 4000 --json trace.json --html trace.html"""


@dataclass(frozen=True)
class Trace:
    """Options of the command."""

    ckpt: str
    """Which checkpoint: step_4000, 4000, first, last, or a path to a checkpoint directory."""
    run: str | None = None
    """Name of a run, or a path to its directory; see above for the one that is meant without."""
    root: Path | None = None
    """Folder to look for runs in; see `python -m mechinterp.runs --help`."""
    ablation: Literal["zero", "mean", "resample", "patch"] = "zero"
    """What a cut edge carries instead: nothing, the mean at that position, another example's
    output, or the output on the paired corrupt input."""
    granularity: Literal["head", "layer"] = "head"
    """Whether the heads of a layer are traced one by one or together."""
    examples: int = 256
    """Clean/corrupt pairs to measure on."""
    top: int = 12
    """Edges to print."""
    json: Path | None = None
    """File for every number of the trace."""
    html: Path | None = None
    """File for the interactive page; traces/RUN-step_N.html when not given."""
    mechanism: str | None = None
    """Run this mechanism test alone: lens or attention; selector, heads or patching (marginals);
    phase, induction or task-vector (Markov chains)."""
    gradients: bool = False
    """Also estimate every edge from gradients, and say how well that agrees with cutting it."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""
    quiet: bool = False
    """Print nothing; write the files only."""


def act(request: Trace) -> None:
    """Traces, prints and writes."""
    _refuse_bad_numbers(request)
    # Imported here so that --help and a mistyped option answer at once.
    with heavy_imports():
        from mechinterp.trace_report import trace_and_report

    if request.run is None and os.sep not in request.ckpt:
        request = dataclasses.replace(request, run=DEFAULT_RUN)
    trace_and_report(request)


def _refuse_bad_numbers(request: Trace) -> None:
    from circuits.errors import InputError

    if request.examples < 2:
        raise InputError(f"examples is {request.examples}; an interval needs at least 2")
    if request.top < 0:
        raise InputError(f"top is {request.top}; it has to be 0 or more")


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Trace, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
