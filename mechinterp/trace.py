"""`python -m mechinterp.trace`: what does this checkpoint compute, and through which edges?"""

if __name__ == "__main__":
    # Ahead of the other imports, which take a moment.
    from mechinterp.early_interrupt import leave_quietly

    leave_quietly("python -m mechinterp.trace")

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from circuits.errors import InputError
from mechinterp.command import heavy_imports, run_command
from mechinterp.runs import DEFAULT_RUN

PROG = "python -m mechinterp.trace"

DESCRIPTION = f"""Trace the circuit of one checkpoint: diagnostics, heads, edges, and a picture.

The run is {DEFAULT_RUN} unless --run, or a path given as --ckpt, says otherwise. With --model the
model is somebody else's, traced on the pairs of --data.

Examples:
  python -m mechinterp.trace --ckpt step_4000
  python -m mechinterp.trace --run markov-k4 --ckpt last --ablation mean
  python -m mechinterp.trace --ckpt 4000 --json trace.json --html trace.html
  python -m mechinterp.trace --run markov-k4 --ckpt all --json traces.json
  python -m mechinterp.trace --model pythia-70m --revision 3000 --data pairs.jsonl"""


@dataclass(frozen=True)
class Trace:
    """Options of the command."""

    ckpt: str | None = None
    """Which checkpoint: step_4000, 4000, first, last, a path to a checkpoint directory, or all."""
    run: str | None = None
    """Name of a run, or a path to its directory; see above for the one that is meant without."""
    root: Path | None = None
    """Folder to look for runs in; see `python -m mechinterp.runs --help`."""
    model: str | None = None
    """In place of a run: a Hugging Face directory, or a name that TransformerLens knows."""
    revision: str | None = None
    """With a name: the step of the checkpoint, of models that have some (Pythia)."""
    data: Path | None = None
    """With --model: a file of pairs, one JSON object a line, {"clean": text or token ids,
    "corrupt": ..., "answer": ..., "wrong": ...}."""
    metric: Literal["loss", "logit-diff", "kl"] | None = None
    """With --model: loss of the answer (the default), its logit minus the wrong one's, or KL."""
    ablation: Literal["zero", "mean", "resample", "patch"] | None = None
    """What a cut edge carries instead: nothing (the default for a run), the mean at that position,
    another example's output, or that on the paired corrupt input (the default with --model)."""
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
    memory_budget: str | None = None
    """Most memory that the process may take, for instance 2GiB; what does not fit is refused."""
    engine: Literal["local", "ray"] = "local"
    """With --ckpt all: processes on this machine, or a Ray cluster (needs the extra [ray])."""
    jobs: int | None = None
    """With --ckpt all: checkpoints at the same time; the number of cores if not given."""
    address: str | None = None
    """With --engine ray: the cluster to join, such as auto."""
    quiet: bool = False
    """Print nothing; write the files only."""


def act(request: Trace) -> None:
    """Traces, prints and writes."""
    _refuse_bad_numbers(request)
    _refuse_mixtures(request)
    if request.ckpt == "all":
        from mechinterp.trace_all import trace_all

        trace_all(request)
        return
    if request.ckpt is not None and request.run is None and os.sep not in request.ckpt:
        request = dataclasses.replace(request, run=DEFAULT_RUN)
    # Imported here so that --help and a mistyped option answer at once, and a mistyped checkpoint
    # before TransformerLens is there.
    with heavy_imports():
        from mechinterp.runs import open_checkpoint
    if request.ckpt is not None:
        open_checkpoint(request.ckpt, request.run, request.root)
    with heavy_imports():
        from mechinterp.trace_report import trace_and_report

    trace_and_report(request)


def _refuse_bad_numbers(request: Trace) -> None:
    if request.examples < 2:
        raise InputError(f"examples is {request.examples}; an interval needs at least 2")
    if request.jobs is not None and request.jobs < 1:
        raise InputError(f"jobs is {request.jobs}; it has to be 1 or more")
    if request.top < 0:
        raise InputError(f"top is {request.top}; it has to be 0 or more")


def _refuse_mixtures(request: Trace) -> None:
    """Options of a run, of all its checkpoints and of another model are not for each other."""
    _refuse_one_or_all(request)
    if request.model is None:
        for name in ("revision", "data", "metric"):
            if getattr(request, name) is not None:
                raise InputError(f"--{name} goes with --model, which is not given")
        if request.ckpt is None:
            raise InputError(
                "--ckpt is missing: step_4000, first, last or a path; or give --model and --data"
            )
        return
    for name in ("ckpt", "run", "root", "mechanism"):
        if getattr(request, name) is not None:
            raise InputError(f"--{name} is of a run and --model is none: give one of the two")
    if request.data is None:
        raise InputError("--model needs --data FILE.jsonl, the pairs to trace it on")


def _refuse_one_or_all(request: Trace) -> None:
    """Options of one checkpoint and of all of them are not for each other."""
    if request.ckpt == "all":
        for name in ("html", "memory_budget"):
            if getattr(request, name) is not None:
                raise InputError(
                    f"--{name.replace('_', '-')} is for one checkpoint, not --ckpt all; "
                    "`python -m analyses explorer` makes a page of all"
                )
        return
    for name in ("jobs", "address"):
        if getattr(request, name) is not None:
            raise InputError(f"--{name} goes with --ckpt all")
    if request.engine != "local":
        raise InputError(f"--engine {request.engine} goes with --ckpt all")


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Trace, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
