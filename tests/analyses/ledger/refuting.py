"""For every claim, a change to the planted evidence that refutes it and nothing less."""

import math

import numpy as np

from tests.analyses.ledger.planted import World


def scale(study, table, column, factor, **where):
    """Multiplies a column in the rows with these values."""

    def change(world: World) -> None:
        rows = world[study][table]
        kept = _where(rows, where)
        rows[column] = rows[column].astype(float)
        rows.loc[kept, column] *= factor if not callable(factor) else factor(rows[kept])

    return change


def put(study, table, column, value, **where):
    """Sets a column in the rows with these values."""

    def change(world: World) -> None:
        rows = world[study][table]
        if isinstance(value, float):
            rows[column] = rows[column].astype(float)
        rows.loc[_where(rows, where), column] = value

    return change


def both(*changes):
    """Makes several changes."""

    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


def _where(rows, where):
    kept = np.ones(len(rows), dtype=bool)
    for name, value in where.items():
        kept &= rows[name].isin(value) if isinstance(value, list) else rows[name] == value
    return kept


SIZE, HEADS, NOISE = "marginals-size", "marginals-heads", "marginals-noise"
CONTROLS, REVERSE = "marginals-controls", "marginals-reverse"
CHAINS, KINETICS, MINIMAL = "markov-phases", "markov-kinetics", "minimal-models"


def tau_by(study, time, column="sound"):
    """Sets both readings of tau of every run, from its settings."""

    def change(world: World) -> None:
        runs = world[study]["runs"].set_index("run")
        rows = world[study]["plateau-taus"]
        for name in ("paper", "sound"):
            rows[name] = [
                time(runs.loc[run].to_dict()) * (1 + 0.01 * int(runs.at[run, "init_seed"]))
                for run in rows["run"]
            ]

    return change


def _linear_k(run):
    return 100.0 * run["k"]


def _flat(run):
    return 500.0


def _same_edges(world: World) -> None:
    """Every run of a phase needs other edges: their effects go round by the run's number."""
    rows = world[CHAINS]["trace-edges"]
    for _, group in rows.groupby(["run", "step"]):
        turn = 7 * int(str(group["run"].iloc[0]).rpartition("s")[2])
        for column in ("effect", "low", "high"):
            rows.loc[group.index, column] = np.roll(group[column].to_numpy(), turn)


def _one_phase(world: World) -> None:
    rows = world[CHAINS]["phases-log"]
    for name in rows.columns:
        if name.endswith("_train") and name != "truth_train":
            rows[name] = 0.3


def _gradual(world: World) -> None:
    rows = world[CHAINS]["phases-log"]
    rows["two_gen_train"] = 0.3 - 0.29 * rows["step"] / 5000
    # There at last, after a straight way.
    rows["phase"] = np.where(rows["step"] < rows["step"].max(), "mixed", "2-Gen")


def _small_k_generalises(world: World) -> None:
    tables = world[CHAINS]
    few = tables["runs"][tables["runs"]["k"] <= 4]["run"].tolist()
    put(CHAINS, "phases-spells", "phase", "2-Gen", run=few)(world)
    put(CHAINS, "phases-log", "two_gen_train", 0.01, run=few)(world)
    put(CHAINS, "phases-log", "truth_new", 0.1, run=few)(world)


def _power_law(world: World) -> None:
    tables = world[CHAINS]
    ks = tables["runs"].set_index("run")["k"]
    rows = tables["phases-transience"]
    known = rows["left"].notna()
    rows.loc[known, "left"] = 50.0 * ks[rows.loc[known, "run"]].to_numpy() ** 0.5


def _all_leave(world: World) -> None:
    rows = world[CHAINS]["phases-transience"]
    ks = world[CHAINS]["runs"].set_index("run")["k"][rows["run"]].to_numpy()
    rows["left"] = np.where(np.isfinite(ks), 3000.0, math.nan)
    rows["entered"] = 850.0


def _no_shift(world: World) -> None:
    runs = world[KINETICS]["runs"]
    enters = set(runs[runs["k"] >= 16]["run"])
    slow_mlp = runs["lr_factor"] == "mlp=0.3"
    enters -= set(runs[slow_mlp]["run"])
    for name in ("phases-log", "phases-spells"):
        rows = world[KINETICS][name]
        column = "nearest_phase" if name == "phases-log" else "phase"
        rows[column] = ["2-Gen" if run in enters else "2-Mem" for run in rows["run"]]
    # The control, slowed, raises K1*, and nothing else does: the opposite of the claim.
    flip = runs["lr_factor"].str.startswith("mlp=0.3")
    assert flip.any()


def _shorter(arm):
    """An arm of the controls that takes a tenth of the time."""
    runs = [f"{arm}-s{seed}" for seed in range(3)]
    return scale(CONTROLS, "plateau-taus", "sound", 0.1, run=runs)


REFUTING = {
    "plateau-height": scale(SIZE, "plateau-level", "value", 0.8, quantity="height"),
    "plateau-marginal": both(
        put(SIZE, "plateau-level", "knowledge_share", 0.05, quantity="candidate_mass"),
        scale(SIZE, "plateau-level", "at_end", 0.7, quantity="candidate_mass"),
    ),
    "plateau-control": both(
        scale(CONTROLS, "log", "candidate_mass", 0.5),
        scale(CONTROLS, "log", "candidate_loss", 0.5),
    ),
    "tau-fixed-d": tau_by(SIZE, _linear_k),
    "tau-exponent": tau_by(SIZE, lambda run: 1e-4 * (run["k"] * run["n_b"]) ** 2.0),
    "selector-wait": scale(
        CONTROLS, "log", "target_ce", lambda rows: np.where(rows["step"] > 300, 0.01, 1.0)
    ),
    "collective-snap": both(
        put(SIZE, "snap-verdict", "paper", "coverage"),
        put(SIZE, "snap-verdict", "collective", False),
        put(SIZE, "snap-verdict", "icc", 0.01),
    ),
    "z-gap-lead": both(
        scale(SIZE, "plateau-onset", "onset", 3.0),
        put(SIZE, "plateau-onset", "lead_share", 0.02),
    ),
    "selector-routing": both(
        put(HEADS, "selector-signals", "value", 0.2, signal="ablation"),
        put(HEADS, "selector-signals", "value", 0.5, signal="ablation", head="L1H2"),
    ),
    "selector-identity": put(HEADS, "selector-signals", "value", 9.0, head="L0H1"),
    "selector-lead": both(
        put(HEADS, "selector-onsets", "onset", 280, signal="value_patch"),
        put(HEADS, "selector-onsets", "lead_low", 0.05),
        put(HEADS, "selector-onsets", "lead_high", 0.1),
    ),
    "cosine-plateau": put(SIZE, "weight-updates-phases", "cosine", 0.4),
    "cosine-transition": put(SIZE, "weight-updates-cosines", "cosine", 0.1),
    "cosine-optimiser": both(
        put(SIZE, "weight-updates-averages", "momentum", 0.05),
        put(SIZE, "weight-updates-averages", "cosine", 0.06, lag=8),
    ),
    "lr-slows": tau_by(NOISE, lambda run: 0.5 / run["lr"]),
    "batch-slows": tau_by(NOISE, lambda run: 200.0 * (run["batch"] / 64) ** 0.3),
    "noise-temperature": tau_by(NOISE, lambda run: 1e-4 * run["batch"] ** 1.5 / run["lr"] ** 2),
    "noise-added": both(tau_by(NOISE, _flat), tau_by(CONTROLS, _flat)),
    "noise-removed": tau_by(NOISE, lambda run: 100.0 * run["batch"] ** 0.5),
    "saddle": both(
        put(HEADS, "curvature-points", "lambda_min", 1e-5),
        put(HEADS, "curvature-points", "grad_norm", 0.4),
    ),
    "anisotropy": put(HEADS, "curvature-points", "lambda_min", -1.7),
    "anisotropy-solver": put(HEADS, "curvature-points", "lambda_min", -1.7),
    "asymmetry-unequal": scale(REVERSE, "asymmetry-times", "time", 0.2, role="forward"),
    "asymmetry-equal": scale(REVERSE, "asymmetry-times", "time", 0.2, role="forward"),
    "reversal-reading": both(
        put(REVERSE, "runs", "final_first_token_ce", 0.1, variant="b_to_a"),
        put(REVERSE, "runs", "final_first_token_ce", 3.0, variant="a_to_b"),
        lambda world: scale(
            REVERSE, "asymmetry-times", "time", 3.0,
            run=world[REVERSE]["runs"].query("variant == 'a_to_b'")["run"].tolist(),
        )(world),
    ),
    "not-cancellation": put(HEADS, "curvature-points", "grad_norm", 0.02),
    "not-noise-escape": tau_by(NOISE, lambda run: 100.0 * run["batch"] ** 0.5),
    "not-linear": put(MINIMAL, "linear-net-models", "candidate_loss", 0.3),
    "not-coverage": put(SIZE, "snap-snap", "groups_80", 0.44),
    "not-optimiser": _shorter(5),
    "not-norm-growth": both(
        _shorter(6),
        put(SIZE, "weight-updates-updates", "weight_norm", 70.0),
    ),
    "not-spinodal": put(HEADS, "curvature-points", "lambda_min", 1e-2),
    "four-phases": _one_phase,
    "small-k-memorises": _small_k_generalises,
    "abrupt-two-gen": _gradual,
    "transience": put(CHAINS, "phases-transience", "transient", False),
    "k1-star": put(CHAINS, "phases-spells", "phase", "2-Gen"),
    "k2-star": _all_leave,
    "k2-gamma": _power_law,
    "kinetic-shift": _no_shift,
    "circuit-one-gen": both(
        put(CHAINS, "trace-edges", "low", 0.0),
        put(CHAINS, "trace-edges", "low", 0.2, edge="A0->A1.k"),
    ),
    "circuit-one-mem": both(
        put(CHAINS, "trace-edges", "low", 0.0),
        put(CHAINS, "trace-edges", "low", 0.2, edge="A0->A1.k"),
    ),
    "circuit-two-gen": both(
        put(CHAINS, "trace-phase-expected_edges", "low", 0.0, edge="A0->A1.k"),
        put(CHAINS, "trace-phase-expected_edges", "low", 0.2, edge="M0->A1.v"),
    ),
    "circuit-two-mem": both(
        put(CHAINS, "trace-phase-expected_edges", "low", 0.0),
        put(CHAINS, "trace-phase-expected_edges", "low", 0.2, edge="A0->A1.k"),
    ),
    "circuit-consistency": _same_edges,
    "induction-head": both(
        put(CHAINS, "trace-induction-induction", "previous_token", 0.1),
        put(CHAINS, "trace-induction-induction", "match", 0.1),
        put(CHAINS, "trace-induction-induction", "matched_uniformity", 0.1),
        put(CHAINS, "trace-induction-k_composition", "low", 0.0),
    ),
    "task-recognition-head": both(
        put(CHAINS, "trace-induction-induction", "evenness", 0.3),
        lambda world: world[CHAINS]["trace-task-vector-variance_shares"].update(
            {"share": 0.9 - world[CHAINS]["trace-task-vector-variance_shares"]["share"]}
        ),
    ),
    "task-vector": both(
        put(CHAINS, "trace-task-vector-task_vector_patch", "fraction", 0.3),
    ),
    "cliff-law": both(
        put(MINIMAL, "symmetric-model-laws", "exponent", 2.0),
        put(MINIMAL, "symmetric-model-laws", "low", 1.9),
        put(MINIMAL, "symmetric-model-laws", "high", 2.1),
    ),
    "weak-biases": both(
        put(MINIMAL, "symmetric-model-biases", "c_beta_low", -0.001),
        put(MINIMAL, "symmetric-model-biases", "c_delta_low", -0.001),
        put(MINIMAL, "symmetric-model-taus", "c_beta", -0.001),
    ),
    "capacity-dimension": both(
        put(MINIMAL, "pool-model-capacity", "k_c", 8.0),
        put(MINIMAL, "pool-model-capacity", "low", 8.0),
        put(MINIMAL, "pool-model-capacity", "high", 16.0),
    ),
    "capacity-width": both(
        put(MINIMAL, "pool-model-capacity", "k_c", 8.0),
        put(MINIMAL, "pool-model-capacity", "low", 8.0),
        put(MINIMAL, "pool-model-capacity", "high", 16.0),
    ),
    "motif-generalises": put(MINIMAL, "pool-model-models", "ratio_new", 2.5),
}  # fmt: skip
"""Changes by claim."""
