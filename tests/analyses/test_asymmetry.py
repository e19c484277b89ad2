import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ttest_rel

from analyses import asymmetry
from analyses.catalogue import Asymmetry, Plateau
from analyses.directions.pairs import MAPPING, shared_settings
from analyses.directions.ratios import ratio_table
from analyses.directions.times import looks
from analyses.plateau import answer as ask_plateau
from circuits.errors import InputError
from mechinterp.config import (
    MarginalsConfig,
    MarkovChainsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.runs import Run
from mechinterp.tasks.marginals_table import marginals_table
from tests.analyses.planted_logs import falling, plant_log

K = 5
LN_36, LN_K = math.log(36), math.log(K)
STEPS = range(0, 2001, 10)
TASK = MarginalsConfig(k=K, n_b=20)


def plant(folder, name, variant, at, mapping=0, init=1, **changes):
    """A run whose losses all fall through half of ignorance at step `at`."""
    task = replace(TASK, variant=variant, mapping_seed=mapping)
    config = RunConfig(replace(task, **changes), ModelConfig(init_seed=init))
    n = 4 if variant == "bz_to_a" else 6
    levels = {"first_token_ce": LN_36, "target_ce": n / (n + 1) * LN_36}
    if variant == "bz_to_a":
        levels["candidate_loss"] = LN_K
    curves = {loss: falling(level, at, STEPS) for loss, level in levels.items()}
    rows = [
        {"step": step} | {loss: curve[i] for loss, curve in curves.items()}
        | {f"{loss}_se": 0.0 for loss in curves}
        for i, step in enumerate(STEPS)
    ]  # fmt: skip
    return plant_log(folder, name, config, rows)


def ask(folder, forward, reverse, **options):
    request = Asymmetry(root=folder, forward=tuple(forward), reverse=tuple(reverse), **options)
    return asymmetry.answer(request)


def ratios(answer):
    table = answer.tables["ratios"]
    return table.assign(share=table["share"].fillna(0.0)).set_index(["bar", "share"])


def test_equal_bars_give_the_planted_ratio_and_the_papers_give_another(tmp_path):
    forward = [
        plant(tmp_path, f"f{seed}", "az_to_b", at, seed) for seed, at in enumerate((900, 1100))
    ]
    reverse = [plant(tmp_path, f"r{seed}", "bz_to_a", 500, seed) for seed in range(2)]
    answer = ask(tmp_path, forward, reverse, shares=(0.5,))
    table = ratios(answer)
    for bar in ("first_token", "answer", "own"):
        row = table.loc[(bar, 0.5)]
        assert row["ratio"] == pytest.approx(math.sqrt(1.8 * 2.2), rel=1e-6)
        test = ttest_rel(np.log([900.0, 1100.0]), np.log([500.0, 500.0])).confidence_interval()
        assert (row["low"], row["high"]) == pytest.approx(np.exp([test.low, test.high]), rel=1e-6)
        assert (row["pairs"], row["by"], row["bound"]) == (2, "seeds", "exact")
    # By hand: 0.1 nat lies 80 (0.5 - 0.1 / ln 36) steps past the middle of the fall, and looks
    # come every 50 steps; the reverse task falls below half at once, seen at the next 200.
    late = 80 * (0.5 - 0.1 / LN_36)
    seen = [math.ceil((at + late) / 50) * 50 for at in (900, 1100)]
    assert table.at[("paper", 0.0), "ratio"] == pytest.approx(math.sqrt(seen[0] * seen[1]) / 600)
    assert table.at[("paper", 0.0), "ratio"] < 0.9 * table.at[("own", 0.5), "ratio"]


def test_one_crossing_at_all_bars_is_called_unanimous_and_opposite_ones_are_not(tmp_path):
    pairs = [(f"{v[0]}{s}", v, s) for s in range(3) for v in ("az_to_b", "bz_to_a")]
    for name, variant, seed in pairs:
        plant(tmp_path, name, variant, (1500 if variant == "az_to_b" else 300) + seed, seed)
    slower = ask(tmp_path, ("a0", "a1", "a2"), ("b0", "b1", "b2"))
    assert "all bars agree: forward is slower" in slower.summary[-1]
    for seed in range(3):  # the same moment: only the unequal bars see a difference
        plant(tmp_path, f"same{seed}", "az_to_b", 301 + seed, seed)
    same = ask(tmp_path, ("same0", "same1", "same2"), ("b0", "b1", "b2"))
    assert "it depends on the bar: forward is faster by the paper's" in same.summary[-1]
    assert set(ratios(same)["ratio"] > 1) == {True, False}


def test_runs_that_end_first_give_a_bound_and_never_an_interval(tmp_path):
    forward = [plant(tmp_path, f"f{s}", "az_to_b", at, s) for s, at in enumerate((900, 5000))]
    reverse = [plant(tmp_path, f"r{s}", "bz_to_a", 500, s) for s in range(2)]
    row = ratios(ask(tmp_path, forward, reverse, shares=(0.5,))).loc[("answer", 0.5)]
    assert row["bound"] == "at least"
    assert row["ratio"] == pytest.approx(math.sqrt(1.8 * 4.0), rel=1e-6)
    assert math.isnan(row["low"])
    late = plant(tmp_path, "late", "bz_to_a", 5000, 1)
    answer = ask(tmp_path, forward, (reverse[0], late), shares=(0.5,))
    assert ratios(answer).at[("answer", 0.5), "bound"] == "undefined"
    assert "undefined, runs of both tasks end" in "\n".join(answer.summary)
    swapped = ratios(ask(tmp_path, (forward[0],), (plant(tmp_path, "x", "bz_to_a", 5000, 0),)))
    assert swapped.at[("answer", 0.5), "bound"] == "at most"
    assert swapped.at[("answer", 0.5), "ratio"] == pytest.approx(900 / 2000)


def test_unmatched_seeds_are_averaged_within_a_mapping():
    rows = [("forward", (1, 0, 0), 100.0), ("forward", (1, 1, 0), 400.0)]
    rows += [("forward", (2, 0, 0), 300.0), ("reverse", (1, 5, 0), 100.0)]
    rows += [("reverse", (2, 5, 0), 100.0)]
    table = pd.DataFrame(rows, columns=["role", "seeds", "time"])
    table = table.assign(setting="s", bar="answer", share=0.5, last=1000)
    row = ratio_table(table).iloc[0]
    assert (row["pairs"], row["by"]) == (2, "mappings")
    assert row["ratio"] == pytest.approx(math.sqrt(2 * 3))  # mapping 1: sqrt(100 * 400) / 100


def test_intervals_cover_the_planted_ratio_over_seeds():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(300):
        noise = np.exp(0.2 * rng.standard_normal(4))
        rows = [("forward", (s, 0, 0), 300.0 * noise[s]) for s in range(4)]
        rows += [("reverse", (s, 0, 0), 100.0) for s in range(4)]
        table = pd.DataFrame(rows, columns=["role", "seeds", "time"])
        row = ratio_table(table.assign(setting="s", bar="b", share=0.5, last=9999)).iloc[0]
        inside += row["low"] < 3 < row["high"]
    assert 0.92 < inside / 300 < 0.98


def test_the_reference_run_as_the_reverse_task(reference, tmp_path):
    real = Run.open(reference / "marginals-k20")
    task = replace(real.config.task, variant="az_to_b")
    steps = range(0, 8001, 50)
    curves = {name: falling(LN_36, 2000, steps) for name in ("first_token_ce", "target_ce")}
    rows = [
        {"step": s} | {n: c[i] for n, c in curves.items()} | {f"{n}_se": 0.0 for n in curves}
        for i, s in enumerate(steps)
    ]  # fmt: skip
    plant_log(tmp_path, "planted", replace(real.config, task=task), rows)
    answer = ask(tmp_path, ("planted",), (str(real.path),), shares=(0.5,))
    taus = ask_plateau(Plateau(run=str(real.path))).tables["taus"].set_index("definition")
    own = ratios(answer).loc[("own", 0.5)]
    assert own["reverse"] == pytest.approx(taus.at["a", "sound"])
    assert own["ratio"] == pytest.approx(2000 / taus.at["a", "sound"])
    assert math.isnan(own["low"])
    assert "no interval from one pair" in "\n".join(answer.summary)
    # The log comes every 50 steps and the paper looks every 200, so never earlier than (a) says.
    late = ratios(answer).at[("paper", 0.0), "reverse"] - taus.at["a", "paper"]
    assert 0 <= late <= 150
    assert answer.figures["Asymmetry"].data


def test_looks_are_the_first_rows_at_or_after_each_multiple():
    steps = np.array([0.0, 30.0, 60.0, 90.0, 120.0, 150.0])
    assert steps[looks(steps, 50)].tolist() == [0, 60, 120, 150]
    assert steps[looks(steps, 10)].tolist() == steps.tolist()


def test_the_settings_of_the_mapping_decide_the_table():
    base = replace(TASK, n_b=6, variant="az_to_b")
    tables = [marginals_table(replace(base, variant=v)) for v in ("az_to_b", "bz_to_a")]
    other = marginals_table(replace(base, mapping_seed=1))
    for name in ("a", "b", "z"):
        assert torch.equal(getattr(tables[0], name), getattr(tables[1], name))
        assert not torch.equal(getattr(tables[0], name), getattr(other, name))
    run = Run(Path("made"), RunConfig(base), {})
    assert set(MAPPING) <= set(shared_settings(run))
    assert "variant" not in shared_settings(run)


def test_what_is_refused(tmp_path, reference):
    def refused(match, forward=("f",), reverse=("r",), **options):
        with pytest.raises(InputError, match=match):
            ask(tmp_path, forward, reverse, **options)

    plant(tmp_path, "f", "az_to_b", 900)
    plant(tmp_path, "r", "bz_to_a", 500)
    plant(tmp_path, "noz", "a_to_b", 900)
    plant(tmp_path, "other", "bz_to_a", 500, mapping=7)
    plant(tmp_path, "bigger", "bz_to_a", 500, n_b=30)
    refused(r"--forward names no run; give at least one of variant az_to_b or a_to_b", ())
    refused(r"--reverse names no run", reverse=())
    refused(r"--forward needs .*az_to_b or a_to_b, but r has variant=bz_to_a", ("r",))
    refused(r"--reverse needs .*bz_to_a and k >= 2, but f has variant=az_to_b", reverse=("f",))
    refused(r"--reverse needs .* has the task markov_chains",
            reverse=(str(reference / "markov-k4"),))  # fmt: skip
    refused(r"f is named twice", ("f", "f"))
    refused(r"mixes the variants a_to_b and az_to_b", ("f", "noz"))
    refused(r"f \(--forward\) has mapping_seed 0, .* other, has 7: .* share the mapping",
            reverse=("other",))  # fmt: skip
    refused(r"f \(--forward\) has n_b 20, .* bigger, has 30", reverse=("bigger",))
    refused(r"other \(--reverse\) has mapping_seed 7, .* f, has 0", reverse=("r", "other"))
    faster = RunConfig(replace(TASK, variant="bz_to_a", mapping_seed=0), ModelConfig(d_model=64))
    plant_log(tmp_path, "thin", faster, [])
    refused(r"has d_model 128, .* thin, has 64: .* share all but the variant", reverse=("thin",))
    falling_rates = [TrainingConfig(steps=steps, lr_schedule="cosine") for steps in (4000, 8000)]
    for name, variant, training in zip(
        ("shorter", "longer"), ("az_to_b", "bz_to_a"), falling_rates, strict=True
    ):
        task = replace(TASK, variant=variant, mapping_seed=0)
        plant_log(tmp_path, name, RunConfig(task, ModelConfig(), training), [])
    refused(r"shorter \(--forward\) has scheduled_steps 4000, .* longer, has 8000",
            ("shorter",), ("longer",))  # fmt: skip
    plant_log(tmp_path, "empty", replace(faster, model=ModelConfig()), [])
    refused(r"log of empty has 0 rows", reverse=("empty",))
    refused(r"shares is \(1.5,\); each is a share", shares=(1.5,))
    chains = RunConfig(MarkovChainsConfig())
    plant_log(tmp_path, "chains", chains, [])
    refused(r"--forward needs .* chains has the task markov_chains", ("chains",))
