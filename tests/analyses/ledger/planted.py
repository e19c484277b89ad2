"""Evidence written by hand, in which every claim is reproduced."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from analyses.ledger.answer_tables import Tables
from analyses.ledger.store import EvidenceStore, NoEvidence

World = dict[str, Tables]
"""Tables by study and name."""

HEADS = [f"L{layer}H{index}" for layer in range(2) for index in range(4)]

SEEDS = {"init_seed", "data_seed", "mapping_seed", "chain_seed"}


def jitter(seed: int) -> float:
    """Seeds differ by a per cent."""
    return 1 + 0.01 * ((seed % 3) - 1)


def runs_of(settings: list[dict], seeds: int = 3, last: int = 6000, **constant) -> pd.DataFrame:
    """One row a setting and seed."""
    rows = []
    for number, setting in enumerate(settings):
        for seed in range(seeds):
            own = {"init_seed": seed, "data_seed": seed, "mapping_seed": seed}
            row = {"run": f"{number}-s{seed}", **constant, **setting, **own, "steps_trained": last}
            rows.append(row)
    return pd.DataFrame(rows)


def rows_for(runs: pd.DataFrame, make) -> pd.DataFrame:
    """Rows that `make` gives for each run (a dictionary, or several), with its name first."""
    rows = []
    for run in runs.to_dict("records"):
        found = make(run)
        for row in [found] if isinstance(found, dict) else found:
            rows.append({"run": run["run"], **row})
    return pd.DataFrame(rows)


def taus(runs: pd.DataFrame, time, width=None) -> pd.DataFrame:
    """plateau-taus with the same time under all definitions but the width."""

    def make(run):
        for name in "abcde":
            value = (width or time)(run) if name == "d" else time(run)
            yield {"definition": name, "paper": value, "sound": value}

    return rows_for(runs, make)


def size() -> Tables:
    pairs = ((10, 50), (10, 100), (10, 200), (10, 400), (5, 400), (20, 100))
    runs = runs_of([{"k": k, "n_b": n} for k, n in pairs], n_layers=2, d_model=64, batch=64)

    def tau(run):
        return 0.2 * (run["k"] * run["n_b"]) ** 1.194 * jitter(run["init_seed"])

    def cosines(run):
        for step in np.arange(0, 2 * tau(run), tau(run) / 20):
            near = abs(step / tau(run) - 1) < 0.3
            yield {
                "step": step,
                "lag": 1,
                "cosine": (0.8 if near else 0.04) * jitter(run["init_seed"]),
            }

    def norms(run):
        for step in range(0, 6001, 500):
            yield {"step": step, "update_norm": 1.0, "weight_norm": 70 * (1 + step / 5000)}

    return {
        "runs": runs,
        "plateau-taus": taus(runs, tau),
        "plateau-level": rows_for(runs, level),
        "plateau-onset": rows_for(
            runs,
            lambda run: [
                {"reading": reading, "onset": 0.5 * tau(run), "falls": tau(run),
                 "lead_share": share * jitter(run["init_seed"])}
                for reading, share in (("paper", 0.52), ("sound", 0.4))
            ],
        ),
        "snap-verdict": rows_for(
            runs,
            lambda run: {"tau": tau(run), "paper": "snap", "paper_of_null": "snap",
                         "collective": True, "icc": 0.3 * jitter(run["init_seed"])},
        ),
        "snap-snap": rows_for(
            runs,
            lambda run: [
                {"step": 100 * at, "mean_accuracy": m, "groups_80": s * jitter(run["init_seed"])}
                for at, (m, s) in enumerate(((0.15, 0.0), (0.5, 0.1), (0.9, 0.8)))
            ],
        ),
        "weight-updates-phases": rows_for(
            runs,
            lambda run: [
                {"reading": reading, "tau": tau(run), "phase": "plateau", "pairs": 5,
                 "cosine": 0.04 * jitter(run["init_seed"])}
                for reading in ("paper", "sound")
            ],
        ),
        "weight-updates-averages": rows_for(
            runs,
            lambda run: [
                {"lag": lag, "lag_steps": 40 * lag, "group": "model", "pairs": 20,
                 "cosine": cosine, "mean_band": 0.01, "scatter_band": 0.02, "momentum": momentum}
                for lag, cosine, momentum in ((1, 0.5, 0.15), (8, 0.2, 0.01))
            ],
        ),
        "weight-updates-cosines": rows_for(runs, cosines),
        "weight-updates-updates": rows_for(runs, norms),
    }  # fmt: skip


def level(run: dict) -> list[dict]:
    """plateau-level of a run that waits on the marginal."""
    f, ignorant = jitter(run["init_seed"]), run["k"] / 36
    return [
        {"quantity": "height", "value": 1.01 * f, "at_end": 1.0 * f, "ignorant": 1.0,
         "marginal": 1.0, "knowledge_share": math.nan},
        {"quantity": "candidate_mass", "value": 0.98, "at_end": 0.99, "ignorant": ignorant,
         "marginal": 1.0, "knowledge_share": 0.95 + 0.003 * f},
    ]  # fmt: skip


def heads() -> Tables:
    runs = runs_of([{}], 8, 1500, k=5, n_b=200, n_layers=2, d_model=64)
    runs["mapping_seed"] = 42

    def signals(run):
        f = jitter(run["init_seed"])
        for step, effect in ((0, 0.0), (75, 0.02), (150, 0.3), (300, 1.7), (600, 2.5)):
            for head in HEADS:
                own = effect * f if head == "L0H3" else 0.3 * effect
                for signal in ("ablation", "value_patch"):
                    yield {"step": step, "head": head, "signal": signal, "value": own}

    def onsets(run):
        f = jitter(run["init_seed"])
        for signal, head, step in (("value_patch", "L0H3", 150), ("candidate_loss", "model", 250)):
            yield {"head": head, "signal": signal, "onset": step, "tau": 300,
                   "lead_low": 0.45 * f, "lead_high": 0.55 * f}  # fmt: skip

    def points(run):
        f = jitter(run["init_seed"])
        for step in (0, 150, 600):
            yield {
                "step": step, "grad_norm": 0.05 * f, "grad_norm_of_noise": 0.02,
                "examples": 100, "noise_trace": 0.04,
                "lambda_max": 3.5 * f, "lambda_max_residual": 1e-3, "lambda_min": -0.005,
                "lambda_min_residual": 1e-4, "converged": True, "paper_max": 3.5,
                "paper_max_residual": 1e-2, "paper_min": -0.005 * f, "paper_min_residual": 1e-3,
                "paper_min_iterations": 30,
            }  # fmt: skip

    return {
        "runs": runs,
        "plateau-taus": taus(runs, lambda run: 300.0),
        "selector-signals": rows_for(runs, signals),
        "selector-onsets": rows_for(runs, onsets),
        "plateau-onset": rows_for(
            runs,
            lambda run: [
                {
                    "reading": reading,
                    "onset": 200 * jitter(run["init_seed"]),
                    "falls": 250.0,
                    "falls_low": 220.0,
                }
                for reading in ("paper", "sound")
            ],
        ),
        "curvature-points": rows_for(runs, points),
    }


def noise() -> Tables:
    kinds = [(1e-3, 64, 0), (3e-4, 64, 0), (2e-3, 64, 0), (1e-3, 32, 0), (1e-3, 128, 0)]
    kinds += [(1e-3, 256, 0), (1e-3, 1000, 0), (1e-3, 64, 1), (1e-3, 64, 3)]
    names = ("lr", "batch", "gradient_noise")
    runs = runs_of([dict(zip(names, kind, strict=True)) for kind in kinds], k=10, n_b=100)

    def tau(run):
        heat = (run["lr"] / run["batch"]) / (1e-3 / 64)
        product = heat**1.283 * (1 + 0.3 * run["gradient_noise"])
        return 500 * product * (1e-3 / run["lr"]) * jitter(run["init_seed"])

    def width(run):
        return 800 * (run["lr"] / 3e-4) ** 0.675 * jitter(run["init_seed"])

    return {"runs": runs, "plateau-taus": taus(runs, tau, width)}


def controls() -> Tables:
    arms = ({}, {"k": 1, "n_b": 1000}, {"random_z_until": 800}, {"label_noise": 0.1},
            {"weight_decay": 0.0}, {"beta2": 0.95}, {"weight_decay": 1.0})  # fmt: skip
    base = {"k": 10, "n_b": 100, "random_z_until": 0, "label_noise": 0.0, "weight_decay": 0.01,
            "beta2": 0.999, "lr": 1e-3}  # fmt: skip
    runs = runs_of([base | arm for arm in arms], last=2500)
    longer = {"label_noise": 1.3, "weight_decay": 1.05, "beta2": 1.1}

    def tau(run):
        factor = math.prod(f for n, f in longer.items() if run[n] != base[n])
        return 700 * factor * jitter(run["init_seed"])

    def log(run):
        half = (350 if run["k"] == 1 else 700) * jitter(run["init_seed"])
        for step in range(0, 2501, 50):
            left = min(1.0, max(0.0, 1.5 - step / half))
            waits = step <= run["random_z_until"]  # on the marginal, at ln K
            yield {
                "step": step,
                "target_ce": 2.867 * left,
                "candidate_mass": 0.98 + 0.02 * (1 - left),
                "candidate_loss": math.log(run["k"]) * (1.0 if waits else left),
            }

    with_z = pd.DataFrame(runs[runs["k"] > 1])
    return {
        "runs": runs,
        "plateau-taus": taus(with_z, tau),
        "plateau-level": rows_for(with_z, level),
        "log": rows_for(runs, log),
    }


def reverse() -> Tables:
    variants = ("bz_to_a", "az_to_b", "b_to_a", "a_to_b")
    runs = runs_of([{"k": k, "variant": v} for k in (5, 10) for v in variants], n_b=100)
    stuck = runs["variant"] == "b_to_a"
    runs["final_first_token_ce"] = np.where(stuck, np.log(runs["k"]), 0.05)

    def bars(run):
        if run["variant"] == "b_to_a":
            return []
        role = "reverse" if run["variant"] == "bz_to_a" else "forward"
        time = (500 if role == "reverse" else 1250) * jitter(run["init_seed"])
        named = [("paper", math.nan)]
        named += [(bar, s) for bar in ("first_token", "answer", "own") for s in (0.3, 0.5, 0.7)]
        return [{"role": role, "bar": b, "share": s, "time": time, "last": 2500} for b, s in named]

    return {"runs": runs, "asymmetry-times": rows_for(runs, bars)}


def write_world(world: World, folder) -> None:
    """Writes the tables as CSV, and what varies between the runs."""
    for study, tables in world.items():
        (folder / study).mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / study / f"{name}.csv", index=False)
        (folder / study / "made.json").write_text(json.dumps(made_of(study, tables)))


def made_of(study: str, tables: Tables) -> dict:
    """What a study's made.json says."""
    runs = tables.get("runs", pd.DataFrame())
    free = {"run", "steps_trained", *SEEDS}
    varies = [n for n in runs if n not in free and not n.startswith("final_")]
    varies = [n for n in varies if runs[n].nunique(dropna=False) > 1]
    return {"study": study, "varies": varies, "settings": {}}


class PlantedStore(EvidenceStore):
    """Evidence that is never written, which is many times quicker; keeps note of what was read."""

    def __init__(self, world: World) -> None:
        super().__init__(Path(__file__).parent)
        self.world, self.was_read = world, set()

    def made(self, study: str) -> dict:
        return made_of(study, self.world.get(study, {}))

    def _read(self, study: str, name: str) -> pd.DataFrame:
        table = self.world.get(study, {}).get(name)
        if table is None or table.empty:
            raise NoEvidence(f"the study {study} has no table {name}")
        self.was_read.add((study, name))
        return table
