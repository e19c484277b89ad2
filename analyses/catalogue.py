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


@dataclass(frozen=True)
class Asymmetry(Output):
    """Is the forward task learned faster or slower than the reverse one on the same mapping?

    Times of the forward task (A to B) over those of the reverse one (B and z to A), at equal
    relative thresholds and under the paper's own unequal ones, with intervals over seeds.
    """

    forward: tuple[str, ...] = ()
    """Names or paths of the runs with variant az_to_b (or a_to_b)."""
    reverse: tuple[str, ...] = ()
    """Names or paths of the runs with variant bz_to_a, on the same mappings."""
    shares: tuple[float, ...] = (0.3, 0.5, 0.7)
    """Equal thresholds, as shares of the loss of one who knows nothing."""


@dataclass(frozen=True)
class CircuitFormation(Request):
    """When is each edge and head of the circuit born, and which of them before the loss moves?

    Exact edge effects, head effects, mechanism scores, diagnostics and gradient methods at every
    checkpoint; births and deaths against a noise band, changes of hands, overlap between
    checkpoints against chance, and when gradients can be trusted.
    """

    steps: tuple[int, ...] = ()
    """Checkpoints to trace; by default as many as --checkpoints says, spread evenly."""
    checkpoints: int = 40
    """How many, at most, unless --steps names them."""
    examples: int = 128
    """Clean/corrupt pairs to measure on."""
    ablation: Literal["zero", "mean", "resample", "patch"] = "zero"
    """What a cut edge carries instead; see `python -m mechinterp.trace --help`."""
    granularity: Literal["auto", "head", "layer", "layer-qkv"] = "auto"
    """Whether the heads of a layer are traced one by one or together (with q, k and v apart)."""
    methods: tuple[Literal["eap", "eap-ig-inputs", "eap-ig-activations", "curvature"], ...] = (
        "eap",
        "eap-ig-inputs",
    )
    """Gradient methods to compare with the exact effects."""
    early: int = 1
    """First checkpoints that make the noise band; there can be no birth at them."""
    margin: float = 0.01
    """By how much an effect (nats) or a score has to leave the band: a birth is no trifle."""
    jobs: int | None = None
    """Processes that trace at the same time, one thread each; the number of cores if not given."""


@dataclass(frozen=True)
class Explorer(Request):
    """What does a circuit look like while it forms, on one page that opens in any browser?

    Timeline, circuit graph, heat maps of heads and edges, mechanism scores, weight updates and a
    comparison of checkpoints, in one HTML file that needs no network.
    """

    out: Path | None = None
    """File of the page; traces/RUN-explorer.html when not given. --html means the same."""
    compare: str | None = None
    """Another run, to set beside this one."""
    steps: tuple[int, ...] = ()
    """Checkpoints to show; by default as many as --checkpoints says, spread evenly."""
    checkpoints: int = 40
    """How many, at most, unless --steps names them."""
    examples: int = 128
    """Clean/corrupt pairs to measure on."""
    ablations: tuple[Literal["zero", "mean", "resample", "patch"], ...] = ("zero",)
    """What a cut edge carries instead; the page lets you choose among several."""
    granularities: tuple[Literal["auto", "head", "layer", "layer-qkv"], ...] = ("auto",)
    """Whether the heads of a layer are traced one by one or together; several to choose among."""
    by_position: bool = False
    """Also cut edges at each named group of positions alone; costs as much again for each group."""
    prune: tuple[int, ...] = ()
    """Checkpoints whose circuit to prune, a few seconds each."""
    curvature: bool = False
    """Also measure the curvature of the loss at 5 checkpoints, which takes minutes."""
    jobs: int | None = None
    """Processes that trace at the same time; the number of cores if not given."""


@dataclass(frozen=True)
class Selector(Request):
    """When does the head that routes z leave its noise, and how long before the loss does?

    Seven signals of every head and the whole model's losses at each checkpoint; the step from which
    each stays outside its noise band, and its lead as a share of the waiting time tau.
    """

    head: str | None = None
    """Head to follow; the one that leads on the last checkpoint if not given."""
    examples: int = 128
    """Pairs of sequences with two selectors, and evaluation sequences for the losses."""
    early: int = 2
    """First checkpoints that make the noise band; there can be no onset at them."""


@dataclass(frozen=True)
class Kinetics(Output):
    """Does the learning rate of a subcircuit move K1*, the K below which 2-Gen is bypassed?

    K1* of the runs with each --lr-factor, its shift from the unscaled runs, and beside it
    the static crossing K_x, where the losses of 1-Mem and 2-Gen cross without any training. Arms of
    the notes: blocks.0.attn.W_[QK] (the previous-token head), blocks.1.attn.W_[QK] (matching
    alone), and mlp as the control.
    """

    runs: tuple[str, ...] = ()
    """Names or paths of the runs: several k, several seeds, and those with lr_factor."""
    rule: Literal["phase", "nearest"] = "phase"
    """Entering 2-Gen: being in that phase at some evaluation, or only nearest to it."""
    draws: int = 8
    """Draws of the training chains behind K_x."""
    sequences: int = 128
    """Sequences for each draw and K behind K_x."""


@dataclass(frozen=True)
class SymmetricModel(Output):
    """Why does 2-Gen come late and all at once, in a transformer of only two scalars?

    The symmetry-constrained attention-only transformer on fresh chains: its weak biases, simulated
    and in closed form, gradient descent with and without each of them, the loss landscape, and the
    time of the cliff against N / ln N. Takes minutes.
    """

    n_states: int = 5
    """States of a chain (C)."""
    lengths: tuple[int, ...] = (50, 100, 200, 400, 800)
    """Context lengths N of the biases and of the law."""
    length: int = 100
    """Context length of the descents and of the landscape."""
    chains: int = 1000
    """Fresh chains in a sample."""
    samples: int = 3
    """Independent samples of chains behind the law; the intervals come from them."""
    mu: float = 0.5
    """Share of the first layer's output in the values; with 0, c_delta vanishes."""
    dirichlet: float = 1.0
    """Concentration of the chains' rows."""
    steps: int = 600
    """Steps of a descent before it counts as one without a cliff."""
    states_per_rate: float = 20.0
    """The learning rate of a descent is N over this."""
    grid: tuple[int, int] = (15, 21)
    """Values of beta and of delta in the landscape."""
    seed: int = 0
    """Seed of the chains."""


@dataclass(frozen=True)
class PoolModel(Output):
    """How many chains can encode-pool-decode memorise, and does the same model generalise?

    Capacity K_c against task dimension and decoder width, and the distance to the truth on new
    chains over that of 2-Gen. Trains every model of a grid; takes minutes.
    """

    n_states: int = 5
    """States of a chain (C)."""
    length: int = 64
    """States in a sequence (N)."""
    ks: tuple[int | Literal["inf"], ...] = (4, 8, 16, 32, 64, "inf")
    """Numbers of training chains; inf for a fresh one for every sequence."""
    d_tasks: tuple[int, ...] = (1, 2, 4, 8)
    """Widths of the task vector."""
    d_hiddens: tuple[int, ...] = (32, 128)
    """Hidden widths of the decoder."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of weights and training sequences; the intervals come from them."""
    steps: int = 1500
    """Training steps of each model."""
    examples: int = 256
    """Evaluation sequences on training chains, and as many on new chains."""
    jobs: int = 2
    """Processes that train at the same time."""


@dataclass(frozen=True)
class LinearNet(Output):
    """Could a network without nonlinearities ever get below ln K on the marginals task?

    Such a network adds up what B and z say. The least loss of an additive model is a convex
    problem, solved here for each mapping.
    """

    k: int = 10
    """Selectors (and answers) for each B."""
    n_b: int = 1000
    """Number of distinct B strings."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the mapping."""
    steps: int = 300
    """Iterations of the solver."""


@dataclass(frozen=True)
class Claims(Output):
    """Which claims of both papers hold here, by which criterion, and on what evidence?

    Every claim beside the paper's value: what was measured, its interval over seeds, the scale, and
    a verdict that code computes from the committed tables. With --only, one claim in full.
    """

    only: tuple[str, ...] = ()
    """Names of claims to weigh; all if not given."""
    evidence: Path | None = None
    """Folder with one folder of tables for each study; the committed one if not given."""


@dataclass(frozen=True)
class Evidence(Output):
    """What do the runs of a sweep say, in tables small enough to commit?

    Gathers settings, seeds, outcomes and the answers of every run of a sweep, and how they were
    made, into the folder of one study, for `claims` to read.
    """

    study: str = ""
    """Name of the study, and of its folder."""
    sweep: Path | None = None
    """Folder of a sweep: a directory for each run."""
    answers: tuple[Path, ...] = ()
    """Instead of a sweep: files that analyses wrote with --json."""
    evidence: Path | None = None
    """Folder to write the study's folder into; the committed one if not given."""


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
    "selector": Selector,
    "circuit_formation": CircuitFormation,
    "asymmetry": Asymmetry,
    "kinetics": Kinetics,
    "symmetric_model": SymmetricModel,
    "pool_model": PoolModel,
    "linear_net": LinearNet,
    "explorer": Explorer,
    "claims": Claims,
    "evidence": Evidence,
}
"""Every analysis by the name of its module, in the order in which one would ask."""
