"""Numbers of the ledger once more, straight from the logs of runs, by other means."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analyses.command import main
from analyses.ledger.claim import judge
from analyses.ledger.registry import CLAIMS
from analyses.ledger.store import EvidenceStore
from mechinterp.config import MarginalsConfig, ModelConfig, RunConfig, TrainingConfig
from tests.analyses.planted_logs import plant_log

BY_ID = {claim.id: claim for claim in CLAIMS}

STEPS = list(range(0, 1200, 20))
K = 5


def log_rows(at, mass):
    """A plateau at ln K and ignorance, then a straight fall over 200 steps about a step."""
    for step in STEPS:
        left = float(np.clip(0.5 - (step - at) / 200, 0.0, 1.0))
        row = {
            "candidate_loss": 1.02 * math.log(K) * left + 0.001,
            "first_token_ce": math.log(36) * left + 0.001,
            "target_ce": 2.867 * left + 0.001,
            "candidate_mass": mass + (1 - mass) * (1 - left),
            "z_gap": 5.0 * (1 - left),
        }
        yield {"step": step, **row, **{f"{name}_se": 0.001 for name in row}}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A study of four sizes and three seeds, one run of which diverges before it gets there."""
    folder = tmp_path_factory.mktemp("sweep")
    for n_b in (20, 40, 80, 160):
        for seed in range(3):
            task = MarginalsConfig(k=K, n_b=n_b, mapping_seed=seed)
            model = ModelConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=16, init_seed=seed)
            training = TrainingConfig(steps=1200, data_seed=seed, eval_examples=32)
            name = f"n_b{n_b}-s{seed}"
            at = 120 * (n_b / 20) ** 0.9 * (1 + 0.04 * seed) + 7 * (seed == 1)
            rows = list(log_rows(at, K / 36 + 0.01 * seed))
            late = n_b == 160 and seed == 2
            plant_log(folder, name, RunConfig(task, model, training), rows[:10] if late else rows)
            body = {"reason": "diverged" if late else "budget", "step": 1180, "seconds": 1.0}
            (folder / name / "outcome.json").write_text(json.dumps(body))
    return folder


@pytest.fixture(scope="module")
def evidence(logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    argv = ["evidence", "--sweep", str(logs), "--study", "marginals-size", "--quiet"]
    assert main([*argv, "--evidence", str(folder)]) == 0
    return EvidenceStore(folder)


def read_logs(folder):
    """Settings and log of every run, by nothing of ours."""
    for path in sorted(folder.iterdir()):
        config = json.loads((path / "run.json").read_text())["config"]
        yield config, pd.read_json(path / "metrics.jsonl", lines=True)


def crossing(log, bar):
    """Where a falling curve passes a bar, between two rows; NaN if it does not."""
    below = np.flatnonzero(log["candidate_loss"].to_numpy() < bar)
    if len(below) == 0:
        return math.nan
    pair = log.iloc[below[0] - 1 : below[0] + 1].sort_values("candidate_loss")
    return float(np.interp(bar, pair["candidate_loss"], pair["step"]))


def test_height_and_exponent_from_the_logs_alone(logs, evidence):
    rows = []
    for config, log in read_logs(logs):
        flat = log[(log["step"] > 0) & (log["z_gap"] < 0.1)]
        rows.append(
            {
                "d": K * config["task"]["n_b"],
                "seed": config["model"]["init_seed"],
                "tau": crossing(log, 0.5 * math.log(K)),
                "height": flat["candidate_loss"].mean() / math.log(K),
            }
        )
    table = pd.DataFrame(rows)
    whole = table[table["d"] < 160 * K]
    fit = stats.linregress(np.log(whole["d"]), np.log(whole["tau"]))
    one = judge(BY_ID["tau-exponent"], evidence)
    assert one.measured.estimate.value == pytest.approx(fit.slope, rel=1e-3)
    # A setting in which a run never got there would look quicker than it is.
    assert "left out, as 1 of their runs end first: D 800" in one.measured.note
    found = judge(BY_ID["plateau-height"], evidence).measured.estimate
    by_seed = table.groupby("seed")["height"].mean()
    low, high = stats.t.interval(0.95, 2, by_seed.mean(), stats.sem(by_seed))
    assert found.value == pytest.approx(by_seed.mean(), rel=2e-3)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-3)


def test_a_fit_to_the_quick_runs_alone_would_give_another_exponent(logs, evidence):
    rows = [
        (math.log(K * config["task"]["n_b"]), crossing(log, 0.5 * math.log(K)))
        for config, log in read_logs(logs)
    ]
    known = [(x, math.log(t)) for x, t in rows if math.isfinite(t)]
    biased = stats.linregress(*zip(*known, strict=True)).slope
    found = judge(BY_ID["tau-exponent"], evidence).measured.estimate
    assert abs(biased - found.value) > 1e-3
