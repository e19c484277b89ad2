"""Every analysis by name: the question it answers, its options, and the module that answers it.

This file imports nothing heavy, so that the command's help is instant. An analysis is a module
`analyses/<name>.py` with a function `answer(request) -> Answer`, `request` being the dataclass of
that analysis below; the first line of the dataclass's docstring is the question.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mechinterp.runs import DEFAULT_RUN


@dataclass(frozen=True)
class Output:
    """Where runs are looked for and where the answer goes; every analysis has these."""

    root: Path | None = None
    """Folder to look for runs in; see `python -m mechinterp.runs --help`."""
    json: Path | None = None
    """File for the tables and the provenance."""
    html: Path | None = None
    """File for the figures, one page that opens offline."""
    quiet: bool = False
    """Print nothing; write the files only."""


@dataclass(frozen=True)
class Request(Output):
    """What every analysis of one run can be asked."""

    run: str = DEFAULT_RUN
    """Name of a run, or a path to its directory."""


@dataclass(frozen=True)
class Plateau(Request):
    """How long does the model wait on the plateau at ln K, and is it a marginal or ignorance?

    Height, candidate mass, the duration tau under all five definitions in use, each beside one that
    noise cannot trigger, and how early the model begins to use z.
    """

    source: Literal["log", "checkpoints"] = "log"
    """Read the run's own log of metrics, which is dense, or measure every checkpoint anew."""
    examples: int = 256
    """Evaluation sequences for each checkpoint, with --source checkpoints."""


@dataclass(frozen=True)
class Snap(Request):
    """Are the K answers of a group learned together, or like independent items?

    Whole groups (a B with all its selectors) at about 20 checkpoints from 0 to 1.5 tau, against
    independent items at the same mean accuracy.
    """

    groups: int = 200
    """Groups to score; the first ones of a fixed random order."""
    checkpoints: int = 20
    """Checkpoints to score, those nearest to evenly spaced steps."""
    permutations: int = 2000
    """Draws from the null of independent items, and resamples for the intervals."""


@dataclass(frozen=True)
class Phases(Request):
    """Which Bayes predictor does the model compute at each checkpoint, and when does it change?

    KL to every predictor on training and on new chains, the phase with its margin, transition
    times, and whether 2-Gen is transient.
    """

    run: str = "markov-k4"
    """Name of a run, or a path to its directory."""
    examples: int = 256
    """Evaluation sequences on training chains, and as many on new chains."""


@dataclass(frozen=True)
class Scaling(Output):
    """Which power of K, of the number of examples or of another setting does a time follow?

    Fits time = A x^b over several runs, and A (K* - K)^-gamma with --diverging. Intervals come from
    the seeds: give several runs, with different seeds, for each x.
    """

    runs: tuple[str, ...] = ()
    """Names or paths of the runs."""
    x: Literal["k", "d", "n_b", "n_states", "length", "n_over_log", "lr", "batch"] = "d"
    """What varies: K, D = K n_b, a setting of the run, or N / ln N."""
    time: Literal["a", "b", "c", "d", "e", "two_gen", "two_mem"] = "a"
    """A definition of tau (see plateau), or entering 2-Gen, or leaving it for 2-Mem."""
    exponent: float | None = None
    """Exponent that a theory fixes, to compare with."""
    diverging: bool = False
    """Also fit A (K* - x)^-gamma, scanning K*."""
    resamples: int = 2000
    """Bootstrap resamples."""


@dataclass(frozen=True)
class WeightUpdates(Request):
    """Do weight updates point the same way, beyond chance and the optimizer's momentum?

    Cosines between updates at any lag, of the whole model, its layers, components and heads;
    update and weight norms, and alignment with the final displacement.
    """

    span: int | None = None
    """Steps of an update; by default the gap between checkpoints that yields most updates."""
    lags: tuple[int, ...] = ()
    """Lags in updates; by default 1, 2, 4 and 8, as far as the run is long enough."""


@dataclass(frozen=True)
class Curvature(Request):
    """Is the loss at a checkpoint a saddle, how sharp is it, and does gradient noise escape it?

    Both ends of the Hessian's spectrum with residuals, trace and density, gradient and gradient
    noise along the sharp and the escape directions, and the paper's power iteration beside them.
    """

    steps: tuple[int, ...] = ()
    """Checkpoints to measure; by default some spread evenly over the run."""
    checkpoints: int = 5
    """How many, unless --steps names them."""
    examples: int = 128
    """Evaluation sequences in the fixed batch."""
    eigenvalues: int = 2
    """Eigenvalues of each end."""
    probes: int = 4
    """Random vectors for the traces and the density."""
    lanczos: int = 20
    """Lanczos steps for the density."""


def question(request: type) -> str:
    """Gives the question that an analysis answers."""
    return (request.__doc__ or "").strip().splitlines()[0]


REQUESTS: dict[str, type[Output]] = {
    "plateau": Plateau,
    "snap": Snap,
    "phases": Phases,
    "scaling": Scaling,
    "weight_updates": WeightUpdates,
    "curvature": Curvature,
}
"""Every analysis by the name of its module, in the order in which one would ask."""
