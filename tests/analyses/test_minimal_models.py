import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ttest_1samp

from analyses import pool_model, symmetric_model
from analyses.catalogue import PoolModel, SymmetricModel
from analyses.command import main
from analyses.minimal_models.symmetric_report import mean_taus
from analyses.pool_model import capacity_table, generalisation_table, with_ratio_interval
from analyses.symmetric_model import with_intervals
from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.chain_sample import draw_sample
from mechinterp.minimal_models.encode_pool_decode import EncodePoolDecode
from mechinterp.minimal_models.pool_capacity import pool_row
from mechinterp.minimal_models.pool_training import PoolTraining
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention, losses
from mechinterp.minimal_models.symmetric_biases import finite_differences
from mechinterp.tasks.base import fork

SMALL = SymmetricModel(n_states=4, lengths=(20, 40, 80), length=40, chains=120, samples=2,
                       steps=80, states_per_rate=5.0, grid=(4, 5))  # fmt: skip
POOL = PoolModel(n_states=3, length=16, ks=(2, 16), d_tasks=(1, 6), d_hiddens=(16,), steps=60,
                 examples=32, seeds=(0,), jobs=1)  # fmt: skip


@pytest.fixture(scope="module")
def symmetric():
    return symmetric_model.answer(SMALL)


def test_biases_by_finite_differences_of_the_same_chains(symmetric):
    table = symmetric.tables["biases"].set_index(["mu", "length"])
    long = draw_sample(120, 4, 80, fork(torch.Generator().manual_seed(0), 0))
    for mu in (0.0, 0.5):
        for length in (20, 80):
            other = finite_differences(long.last(length), mu)
            row = table.loc[(mu, length)]
            assert row["c_beta"] == pytest.approx(other.c_beta.value, rel=1e-4)
            assert row["c_delta"] == pytest.approx(other.c_delta.value, rel=1e-4, abs=1e-9)
            half = 1.96 * other.c_beta.se
            assert row["c_beta_high"] - row["c_beta"] == pytest.approx(half, rel=1e-3)
    assert (table.loc[0.0, "c_delta"].abs() < 1e-12).all()  # token values alone: exactly none


def test_the_landscape_and_the_descents_are_of_the_length_asked_for(symmetric):
    sample = draw_sample(120, 4, 80, fork(torch.Generator().manual_seed(0), 0)).last(40)
    grid = symmetric.tables["landscape"]
    row = grid.iloc[13]
    model = SymmetricAttention(row["beta"], row["delta"], 0.0, 0.5)
    assert row["loss"] == pytest.approx(losses(model, sample).mean().item())
    start = symmetric.tables["paths"].iloc[0]
    assert start["loss"] == pytest.approx(
        losses(SymmetricAttention(mu=0.5), sample).mean().item(), rel=1e-9
    )
    taus = symmetric.tables["removals"].set_index("removed")["tau"]
    delayed = [tau for name, tau in taus.items() if name != "none"]
    assert all(math.isnan(tau) or tau > taus["none"] for tau in delayed)


def test_every_part_is_printed_and_drawn(symmetric):
    text = "\n".join(symmetric.summary)
    for words in ("closed form", "c_beta removed", "time of the cliff", "tau against N / ln N",
                  "landscape: least KL", "the limit in closed form"):  # fmt: skip
        assert words in text
    assert list(symmetric.figures) == ["Landscape", "Descent", "Biases", "Time of the cliff"]
    assert symmetric.figures["Landscape"].data[0].type == "surface"
    assert len(symmetric.tables["taus"]) == 2 * 3


def test_mean_taus_are_students_over_samples():
    rng = np.random.default_rng(0)
    drawn = 100 + rng.standard_normal(4)
    rows = [{"length": 50, "tau": tau} for tau in drawn]
    rows += [{"length": 100, "tau": math.nan}, {"length": 100, "tau": 7.0}]
    table = mean_taus(pd.DataFrame(rows)).set_index("length")
    interval = ttest_1samp(drawn, 0).confidence_interval()
    assert table.loc[50, ["low", "high"]].tolist() == pytest.approx([interval.low, interval.high])
    assert table.loc[100, ["tau", "reached", "samples"]].tolist() == [7.0, 1, 2]
    assert math.isnan(table.at[100, "low"])


def test_intervals_cover_a_planted_bias_and_a_wrong_one_falls_outside():
    rng = np.random.default_rng(1)
    rows = [{f"{n}": 0.3 + 0.1 * z, f"{n}_se": 0.1} for n in ("c_beta",)
            for z in rng.standard_normal(400)]  # fmt: skip
    table = pd.DataFrame(rows).assign(c_delta=0.0, c_delta_se=1.0, cross=0.0, cross_se=1.0)
    found = with_intervals(table)
    inside = ((found["c_beta_low"] < 0.3) & (found["c_beta_high"] > 0.3)).mean()
    assert 0.92 < inside < 0.98
    assert ((found["c_beta_low"] < 0.8) & (found["c_beta_high"] > 0.8)).mean() < 0.01


def test_the_grid_holds_what_each_model_gives_alone():
    answer = pool_model.answer(POOL)
    models = answer.tables["models"]
    assert models[["d_task", "k"]].to_numpy().tolist() == [[1, 2], [1, 16], [6, 2], [6, 16]]
    alone = pool_row(EncodePoolDecode(3, 6, 16), MarkovChainsConfig(3, 16, 16),
                     PoolTraining(steps=60), 0, 32)  # fmt: skip
    row = models.iloc[3]
    for name in ("kl_two_mem", "kl_truth_new", "ratio_new", "late_gain"):
        assert row[name] == pytest.approx(alone[name], rel=1e-6)
    assert row["ratio_new"] == pytest.approx(row["kl_truth_new"] / row["gap_two_gen_new"])
    assert row["ratio_low"] < row["ratio_new"] < row["ratio_high"]
    assert "rises in" in "\n".join(answer.summary)
    assert answer.figures["New chains"].data
    assert pool_model.answer(POOL).tables["models"]["seconds"].tolist() == (
        models["seconds"].tolist()  # from the cache: not trained again
    )


def test_processes_give_the_same_numbers_in_the_same_order(monkeypatch):
    monkeypatch.setenv("MECHINTERP_CACHE", "off")
    small = {"ks": (2, 4), "d_tasks": (2,), "steps": 20}
    one, two = (
        pool_model.answer(PoolModel(**{**vars(POOL), **small, "jobs": jobs})) for jobs in (1, 2)
    )
    shown = [a.tables["models"].drop(columns="seconds") for a in (one, two)]
    pd.testing.assert_frame_equal(*shown, rtol=1e-5)


def planted(capacities):
    """Models that memorise up to a planted K_c, by (d_task, seed)."""
    rows = [
        {"d_task": d, "d_hidden": 32, "k": float(k), "seed": seed, "memorised": k <= k_c,
         "ratio_new": 2.0 / d, "kl_truth_new_se": 0.05, "gap_two_gen_new": 0.5,
         "generalises": 2.0 / d <= 1.2}
        for (d, seed), k_c in capacities.items()
        for k in (4, 8, 16, 32)
    ]  # fmt: skip
    return with_ratio_interval(pd.DataFrame(rows))


def test_planted_capacities_with_their_spread_over_seeds():
    models = planted({(1, 0): 4, (1, 1): 8, (2, 0): 32, (2, 1): 16, (4, 0): 32, (4, 1): 32})
    table = capacity_table(models).set_index("d_task")
    assert table["low"].to_dict() == {1: 4, 2: 16, 4: 32}
    assert table["high"].to_dict() == {1: 16, 2: math.inf, 4: math.inf}
    assert table.at[1, "k_c"] == 8  # half of the seeds are enough
    new = generalisation_table(models).set_index(["d_task", "k"])
    assert new.at[(1, 4.0), "generalises"] == 0
    assert new.at[(2, 4.0), "generalises"] == 1
    assert new.at[(2, 4.0), "ratio_high"] == pytest.approx(1.0 + 1.96 * 0.1, rel=1e-4)


def test_the_commands_write_both_files(tmp_path, capsys):
    argv = ["pool-model", "--ks", "2", "inf", "--d-tasks", "2", "--d-hiddens", "8", "--seeds", "0",
            "--n-states", "3", "--length", "12", "--steps", "30", "--examples", "16", "--jobs", "1",
            "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]  # fmt: skip
    assert main(argv) == 0
    body = json.loads((tmp_path / "a.json").read_text())
    assert capsys.readouterr().out.splitlines() == body["summary"]
    assert set(body["tables"]) == {"capacity", "generalisation", "models"}
    assert "fresh chains: best" in "\n".join(body["summary"])
    argv = ["symmetric-model", "--lengths", "8", "12", "16", "--length", "12", "--chains", "20",
            "--samples", "1", "--n-states", "3", "--steps", "2", "--grid", "2", "2",
            "--html", str(tmp_path / "s.html")]  # fmt: skip
    assert main(argv) == 0
    assert "fewer than 3 lengths have a cliff" in capsys.readouterr().out
    assert (tmp_path / "s.html").stat().st_size > 1_000_000


def test_what_is_refused():
    def symmetric(match, **options):
        with pytest.raises(InputError, match=match):
            symmetric_model.answer(SymmetricModel(**options))

    def pool(match, **options):
        with pytest.raises(InputError, match=match):
            pool_model.answer(PoolModel(**options))

    symmetric(r"lengths is \(50, 100\); a law needs at least 3", lengths=(50, 100))
    symmetric(r"length is 900; it has to be in 4..800, the largest of --lengths", length=900)
    symmetric(r"samples is 0 and chains 1000; at least 1 sample", samples=0)
    symmetric(r"steps is 1, states_per_rate 20 and grid \(15, 21\)", steps=1)
    pool(r"ks is empty; give at least one value: --ks", ks=())
    pool(r"ks is inf alone; capacity needs finite K", ks=("inf",))
    for rate in (float("nan"), float("inf")):
        symmetric(rf"states_per_rate {rate} .* above 0", states_per_rate=rate)
        symmetric(rf"dirichlet is {rate}; it has to be a number above 0", dirichlet=rate)
    symmetric(r"dirichlet is 0; it has to be a number above 0", dirichlet=0.0)
    pool(r"\bk\b.* 0", ks=(0, 4))
    pool(r"length.* 1", length=1)
    pool(r"seeds names a value twice; a model counts once", seeds=(0, 0))
    pool(r"jobs is 0", jobs=0)
    pool(r"d_task is 0; .*at least 1", d_tasks=(0,))
    pool(r"examples is 1", examples=1)
