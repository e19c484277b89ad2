"""`python -m mechinterp.train`: train a task's model, with checkpoints that can be resumed."""

if __name__ == "__main__":
    # Ahead of the other imports, which take a moment.
    from mechinterp.early_interrupt import leave_quietly

    leave_quietly("python -m mechinterp.train")

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mechinterp.command import heavy_imports, run_command
from mechinterp.config import (
    MARKOV_MODEL,
    MARKOV_TRAINING,
    CheckpointConfig,
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
    validate,
)

PROG = "python -m mechinterp.train"

DESCRIPTION = """Train a HookedTransformer on one of the two tasks and keep its checkpoints.

Examples:
  python -m mechinterp.train marginals --k 20 --n-b 1000 --steps 8000 --run my-run
  python -m mechinterp.train markov-chains --k inf --n-states 8 --steps 3000 --run chains
  python -m mechinterp.train marginals --run my-run --resume ... (same options, continues)"""


@dataclass(frozen=True)
class _Options:
    run: str
    """Name of the run, made under --root, or a path to its directory."""
    root: Path | None = None
    """Folder for new runs: MECHINTERP_RUNS when not given, else ./checkpoints."""
    resume: bool = False
    """Continue an existing run from its newest intact checkpoint."""
    threads: int = 0
    """CPU threads; torch's own choice when 0. The result depends on it in the last bits."""
    device: str = "cpu"
    """Where to train: cpu, cuda, cuda:1, ..."""
    log_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where the metrics go besides metrics.jsonl; each needs the extra of its name."""
    quiet: bool = False
    """Print no progress, and nothing at the end but what --json asks for."""
    json: bool = False
    """At the end, print one JSON object: the run, its path, steps, seconds and last metrics."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)


@dataclass(frozen=True)
class TrainMarginals(_Options):
    """Paper 1: answer (B, z) from a table with K answers for each B."""

    task: MarginalsConfig = field(default_factory=MarginalsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass(frozen=True)
class TrainMarkovChains(_Options):
    """Paper 2: predict the next state of one of K random Markov chains."""

    training: TrainingConfig = field(default_factory=lambda: MARKOV_TRAINING)
    task: MarkovChainsConfig = field(default_factory=MarkovChainsConfig)
    model: ModelConfig = field(default_factory=lambda: MARKOV_MODEL)


Request = (
    Annotated[TrainMarginals, tyro.conf.subcommand("marginals")]
    | Annotated[TrainMarkovChains, tyro.conf.subcommand("markov-chains")]
)


def act(request: TrainMarginals | TrainMarkovChains) -> None:
    """Trains what was asked for and says where it is."""
    from mechinterp.runs import new_run_path

    config = RunConfig(request.task, request.model, request.training, request.checkpoints)
    validate(config)
    path = new_run_path(request.run, request.root)
    with heavy_imports():
        from mechinterp.training_progress import run_training

    run_training(
        config,
        path,
        resume=request.resume,
        threads=request.threads,
        device=request.device,
        log_to=request.log_to,
        quiet=request.quiet,
        as_json=request.json,
        command=f"{PROG} {shlex.join(sys.argv[1:])}",
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    return run_command(Request, act, prog=PROG, description=DESCRIPTION, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
