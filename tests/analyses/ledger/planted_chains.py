"""Evidence on the Markov-chain task, written by hand, in which every claim is reproduced."""

import math

import numpy as np
import pandas as pd

from analyses.ledger.answer_tables import Tables
from tests.analyses.ledger.planted import jitter, rows_for, runs_of

KS = (2, 4, 8, 16, 24, 32, 48, 64, 128, math.inf)

PREDICTORS = {"one_gen": "1-Gen", "one_mem_stationary": "1-Mem", "one_mem_transition": "1-Mem",
              "two_gen": "2-Gen", "two_mem": "2-Mem"}  # fmt: skip

LAST = 5000


def course(run: dict) -> list[tuple[str, int]]:
    """The phases of a run with the step that each ends at."""
    k = run["k"]
    if k <= 8:
        return [("1-Gen", 500), ("1-Mem", 1500), ("2-Mem", LAST)]
    if k < 64:
        return [("1-Gen", 800), ("2-Gen", int(left(run))), ("2-Mem", LAST)]
    return [("1-Gen", 800), ("2-Gen", LAST)]


def left(run: dict) -> float:
    """t_M2, diverging at K2* = 56 with gamma 2."""
    return 1000 + 1500 * jitter(run["init_seed"]) if math.isinf(run["k"]) else (
        2.0e5 * (56.0 - run["k"]) ** -2.0 * jitter(run["init_seed"]) + 0.0
    )  # fmt: skip


def phase_at(run: dict, step: float) -> str:
    return next(name for name, end in course(run) if step <= end)


def chains() -> Tables:
    runs = runs_of([{"k": k} for k in KS], last=LAST, n_states=5, length=32, d_model=32)
    runs = runs.rename(columns={"mapping_seed": "chain_seed"})

    def log(run):
        for step in range(0, LAST + 1, 100):
            phase = phase_at(run, step)
            row = {"step": step, "phase": phase, "nearest_phase": phase}
            for name, of in PREDICTORS.items():
                if math.isinf(run["k"]) and name in ("one_mem_transition", "two_mem"):
                    continue
                row |= {f"{name}_train": 0.02 if of == phase else 0.2, f"{name}_new": 0.1}
            row |= {"truth_train": 0.1, "truth_new": 0.4 if phase == "2-Mem" else 0.1}
            yield row

    def spells(run):
        return [{"phase": phase, "first": end - 100, "last": end, "rows": 2}
                for phase, end in course(run)]  # fmt: skip

    def lost(run):
        entered = 850.0 if run["k"] > 8 else math.nan
        gone = 8 < run["k"] < 64
        return {"entered": entered, "left": left(run) if gone else math.nan, "transient": gone,
                "rise": 3.0 if gone else 1.0, "source": "log"}  # fmt: skip

    crossing = {"run": "-", "k_x": 1.5, "low": 1.2, "high": 1.8}
    return {
        "runs": runs,
        "phases-log": rows_for(runs, log),
        "phases-spells": rows_for(runs, spells),
        "phases-transience": rows_for(runs, lost),
        "phases-phases": rows_for(
            runs, lambda run: [{"step": end, "phase": phase} for phase, end in course(run)]
        ),
        "static-crossing": pd.DataFrame([crossing]),
        "static-gaps": pd.DataFrame([{"run": "-", "one_gen_new": 0.3, "two_gen_new": 0.15}]),
        **traces(runs),
    }


EDGES = {
    "1-Gen": {"embed->A1.v": 0.3, "A1->logits": 0.3, "embed->A0.v": 0.2, "A0->A1.v": 0.1,
              "M1->logits": 0.1},
    "1-Mem": {"embed->A0.v": 0.3, "A0->M0": 0.2, "embed->M1": 0.2, "M0->M1": 0.2,
              "M1->logits": 0.3},
    "2-Gen": {"A0->A1.k": 0.3, "embed->A0.v": 0.2, "embed->A1.q": 0.1, "embed->A1.v": 0.2,
              "A1->logits": 0.3},
    "2-Mem": {"M0->A1.v": 0.3, "A1->M1": 0.3, "embed->M1": 0.2, "A0->M0": 0.2,
              "M1->logits": 0.3},
}  # fmt: skip
"""Effects (nats) of the edges that each phase needs."""

ALL_EDGES = [
    *(
        f"embed->{r}"
        for r in ("A0.q", "A0.k", "A0.v", "M0", "A1.q", "A1.k", "A1.v", "M1", "logits")
    ),
    *(f"A0->{r}" for r in ("M0", "A1.q", "A1.k", "A1.v", "M1", "logits")),
    *(f"M0->{r}" for r in ("A1.q", "A1.k", "A1.v", "M1", "logits")),
    *("A1->M1", "A1->logits", "M1->logits"),
]


def traces(runs: pd.DataFrame) -> Tables:
    """A trace in every phase of every run."""

    def edges(run):
        for phase, step in course(run):
            for number, edge in enumerate(ALL_EDGES):
                rest = 0.001 * ((7 * number + 3 * run["init_seed"]) % 5)
                effect = EDGES[phase].get(edge, rest)
                yield {"step": step, "edge": edge, "effect": effect, "low": effect - 0.01,
                       "high": effect + 0.01}  # fmt: skip

    def expected(run):
        for phase, step in course(run):
            for edge in ("A0->A1.k", "M0->A1.v", "A1->M1"):
                effect = EDGES[phase].get(edge, 0.0)
                yield {"step": step, "edge": edge, "effect": effect, "low": effect - 0.01,
                       "high": effect + 0.01}  # fmt: skip

    def scores(run):
        f = jitter(run["init_seed"])
        for phase, step in course(run):
            yield {"step": step, "head": "L0H0", "layer": 0, "previous_token": 0.93 * f,
                   "match": 0.0, "matched_uniformity": 0.5, "evenness": 0.3}  # fmt: skip
            yield {"step": step, "head": "L1H0", "layer": 1, "previous_token": 0.02,
                   "match": 0.9 * f, "matched_uniformity": 0.95 * f,
                   "evenness": 0.96 * f if phase == "2-Mem" else 0.4}  # fmt: skip

    def patch(run):
        f = jitter(run["init_seed"])
        for phase, step in course(run):
            for insert, reader, fraction in (("target", "M1", 0.9), ("target", "all", 0.95),
                                             ("random", "all", 0.05)):  # fmt: skip
                moved = fraction * f if phase == "2-Mem" else 0.1
                yield {"step": step, "insert": insert, "reader": reader, "fraction": moved}

    def shares(run):
        for phase, step in course(run):
            share = 0.8 if phase == "2-Mem" else 0.1
            yield {"step": step, "component": "recognition",
                   "share": share * jitter(run["init_seed"])}  # fmt: skip

    def composition(run):
        return [{"step": step, "source": "L0H0", "reader": "L1H0.k", "effect": 0.2, "low": 0.15,
                 "high": 0.25} for _, step in course(run)]  # fmt: skip

    return {
        "trace-edges": rows_for(runs, edges),
        "trace-phase-expected_edges": rows_for(runs, expected),
        "trace-induction-induction": rows_for(runs, scores),
        "trace-induction-k_composition": rows_for(runs, composition),
        "trace-task-vector-task_vector_patch": rows_for(runs, patch),
        "trace-task-vector-variance_shares": rows_for(runs, shares),
    }


ARMS = {"": 16, "blocks.1.attn.W_[QK]=0.3": 1000, "blocks.1.attn.W_[QK]=3": 1, "mlp=0.3": 16,
        "mlp=3": 16}  # fmt: skip
"""K from which runs of an arm enter 2-Gen."""


def kinetics() -> Tables:
    runs = runs_of(
        [{"lr_factor": arm, "k": k} for arm in ARMS for k in (4, 8, 16, 32)], last=LAST, length=32
    )

    def entered(run):
        return run["k"] >= ARMS[run["lr_factor"]]

    return {
        "runs": runs,
        "phases-log": rows_for(
            runs,
            lambda run: {"step": LAST, "nearest_phase": "2-Gen" if entered(run) else "2-Mem",
                         "two_gen_new": 0.02 if entered(run) else 0.08},
        ),
        "phases-spells": rows_for(
            runs,
            lambda run: {"phase": "2-Gen" if entered(run) else "2-Mem", "first": 1000,
                         "last": LAST, "rows": 5},
        ),
    }  # fmt: skip


def minimal() -> Tables:
    lengths = np.array([50, 100, 200, 400, 800])
    taus = [
        {"run": "symmetric-model", "sample": sample, "n_states": 5, "length": n,
         "n_over_log": n / np.log(n), "tau": 30 * n / np.log(n) * jitter(sample), "c_beta": 0.003}
        for sample in range(3) for n in lengths
    ]  # fmt: skip
    biases = [
        {"run": "symmetric-model", "length": n, "mu": mu, "c_beta": 0.003, "c_beta_low": 0.002,
         "c_beta_high": 0.004, "c_delta": 0.001 * mu, "c_delta_low": 0.0005 * mu,
         "c_delta_high": 0.002 * mu}
        for n in lengths for mu in (0.5,)
    ]  # fmt: skip
    laws = [
        {"run": "symmetric-model", "x": x, "exponent": e, "low": e - 0.03, "high": e + 0.03,
         "samples": 3}
        for x, e in (("n_over_log", 1.0), ("length", 0.8))
    ]  # fmt: skip
    capacity = [
        {"run": "pool-model", "d_task": d, "d_hidden": h, "k_c": d * h / 8, "next_k": d * h / 4,
         "low": d * h / 8, "high": d * h / 4, "seeds": 3}
        for d in (1, 2, 4, 8) for h in (32, 128)
    ]  # fmt: skip
    models = [
        {"run": "pool-model", "d_task": d, "d_hidden": 128, "k": k, "seed": seed,
         "ratio_new": (1.05 if k >= 64 else 3.0) * jitter(seed)}
        for d in (1, 8) for k in (4, 64, math.inf) for seed in range(3)
    ]  # fmt: skip
    linear = [
        {"run": "linear-net", "k": 10, "n_b": 100, "seed": seed,
         "candidate_loss": 0.97 * math.log(10) * jitter(seed)}
        for seed in range(3)
    ]  # fmt: skip
    return {
        "symmetric-model-taus": pd.DataFrame(taus),
        "symmetric-model-biases": pd.DataFrame(biases),
        "symmetric-model-laws": pd.DataFrame(laws),
        "pool-model-capacity": pd.DataFrame(capacity),
        "pool-model-models": pd.DataFrame(models),
        "linear-net-models": pd.DataFrame(linear),
    }
