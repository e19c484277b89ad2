import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyses import scaling
from analyses.catalogue import Plateau, Scaling
from analyses.laws.points import other_differences, points_of, seed_of, x_of
from analyses.plateau import answer as ask_plateau
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, MarkovChainsConfig, RunConfig, TrainingConfig
from mechinterp.runs import Run
from tests.analyses.planted_logs import falling, plant_log

NAMES = ("lookup-6", "lookup-12", "lookup-24")


def _run(**changes):
    task = changes.pop("task", MarginalsConfig())
    return Run(Path("made"), RunConfig(task, training=TrainingConfig(**changes)), {})


def test_times_are_those_of_plateau_and_the_exponent_that_of_polyfit(tiny_runs):
    request = Scaling(runs=NAMES, root=tiny_runs, x="d", time="a", exponent=1.0)
    answer = scaling.answer(request)
    points, fits = answer.tables["points"], answer.tables["fits"].set_index("reading")
    assert points["x"].tolist() == [12, 24, 48]
    for row in points.itertuples():
        taus = ask_plateau(Plateau(run=row.run, root=tiny_runs)).tables["taus"]
        assert [row.paper, row.sound] == taus.loc[0, ["paper", "sound"]].tolist()
    expected = np.polyfit(np.log(points["x"]), np.log(points["sound"]), 1)[0]
    assert fits.at["sound", "exponent"] == pytest.approx(expected)
    assert fits.at["sound", "exponent"] > 0  # more to learn takes longer
    assert "no interval over seeds" in "\n".join(answer.summary)
    assert len(answer.figures) == 1
    assert [read["run"] for read in answer.provenance["runs"]] == list(NAMES)


def test_what_else_differs_is_said():
    base = MarginalsConfig(k=5, n_b=100)
    same_d = [_run(task=base), _run(task=replace(base, k=10, n_b=50))]
    assert other_differences(same_d, "k") == ["task.n_b (100, 50)"]
    assert other_differences(same_d, "d") == ["task.k (5, 10)", "task.n_b (100, 50)"]
    larger = [_run(task=base), _run(task=replace(base, n_b=200, mapping_seed=1))]
    assert other_differences(larger, "d") == []
    assert other_differences([_run(lr=1e-3), _run(lr=2e-3)], "d") == ["training.lr (0.001, 0.002)"]
    assert other_differences([_run(lr=1e-3, steps=10), _run(lr=2e-3)], "lr") == []


def test_x_and_seed_of_a_run():
    run = _run(task=MarkovChainsConfig(k=16, length=64, chain_seed=3), data_seed=5)
    assert x_of(run, "n_over_log") == pytest.approx(64 / math.log(64))
    assert x_of(run, "k") == 16
    assert seed_of(run) == "chain_seed 3, init_seed 42, data_seed 5"
    assert x_of(_run(), "d") == 20_000
    with pytest.raises(InputError, match=r"made has no n_b: its task has lr, batch, k, n_states"):
        x_of(run, "n_b")
    with pytest.raises(InputError, match=r"k=inf, which is no point on an axis"):
        x_of(_run(task=MarkovChainsConfig(k="inf")), "k")


def test_markov_times_come_from_the_log(reference):
    runs = [Run.open(reference / name) for name in ("markov-inf", "markov-k4")]
    points = points_of(runs, "n_states", "two_gen").set_index("run")
    assert 500 < points.at["markov-inf", "sound"] < 1000
    assert math.isinf(points.at["markov-k4", "sound"])
    assert points["last"].tolist() == [3000, 3000]


def test_what_is_refused(tiny_runs, reference):
    def refused(match, runs=NAMES, **options):
        with pytest.raises(InputError, match=match):
            scaling.answer(Scaling(runs=runs, root=tiny_runs, **options))

    refused(r"--runs names 0 runs; a fit needs at least 3", runs=())
    refused(r"--runs names 3 runs; a fit needs at least 4", diverging=True)
    refused(r"names lookup-6 twice", runs=("lookup-6", "lookup-12", "lookup-6"))
    refused(r"reached at 1 different k; the fit needs at least 3.* other k", x="k")
    refused(r"--time two_gen needs a run of the task markov_chains", time="two_gen")
    refused(r"--time a needs a run of the task marginals", runs=(*NAMES, "chains"), x="k")
    refused(r"log of short has 3 rows", runs=(*NAMES, "short"))
    chains = (*(str(reference / name) for name in ("markov-inf", "markov-k4")), "chains")
    missed = r"reached at [01] different length; .*not reached in markov-k4 \(by step 3000\)"
    refused(missed, runs=chains, x="length", time="two_gen")
    refused(r"resamples is 3", resamples=3)
    refused(r"exponent is nan; it has to be a finite number", exponent=math.nan)


STEPS = range(0, 20001, 100)


def _planted(folder, name, base, at, **changes):
    """A run whose candidate loss falls through 0.5 ln K at a step, alike in all else."""
    task = replace(base.task, **changes)
    curve = falling(math.log(task.k), at, STEPS, width=400.0)
    others = ("candidate_mass", "first_token_ce", "target_ce", "z_gap")
    rows = [
        {"step": step, "candidate_loss": loss, "candidate_loss_se": 0.0}
        | {f"{other}{end}": 0.0 for other in others for end in ("", "_se")}
        for step, loss in zip(STEPS, curve, strict=True)
    ]
    return plant_log(folder, name, replace(base, task=task), rows)


def test_the_reference_run_as_one_point_of_a_planted_law(reference, tmp_path):
    real = Run.open(reference / "marginals-k20")
    tau = ask_plateau(Plateau(run=str(real.path))).tables["taus"].loc[0, "sound"]
    runs = [str(real.path)] + [
        _planted(tmp_path, f"d{n_b}", real.config, tau * (n_b / 1000) ** 1.2, n_b=n_b)
        for n_b in (250, 500, 2000)
    ]
    answer = scaling.answer(Scaling(runs=tuple(runs), root=tmp_path, x="d", exponent=1.2))
    fit = answer.tables["fits"].set_index("reading").loc["sound"]
    assert fit["exponent"] == pytest.approx(1.2, abs=1e-3)
    assert fit["amplitude"] * 20000 ** fit["exponent"] == pytest.approx(tau, rel=1e-3)


def test_a_planted_divergence_is_found_from_the_logs(tmp_path):
    base = RunConfig(MarginalsConfig(n_b=20))
    runs = [
        _planted(
            tmp_path,
            f"k{k}-{seed}",
            replace(base, training=TrainingConfig(data_seed=seed)),
            (1 + 0.01 * seed) * 8e5 * (30 - k) ** -2.0,
            k=k,
        )
        for k in (4, 8, 12, 16, 20)
        for seed in (0, 1)
    ]
    answer = scaling.answer(Scaling(runs=tuple(runs), root=tmp_path, x="k", diverging=True))
    found = answer.tables["diverging"].set_index("reading").loc["sound"]
    assert found["critical_low"] < 30 < found["critical_high"]
    assert found["gamma"] == pytest.approx(2, rel=0.1)
    assert found["delta_aic"] > 2
    assert "preferred over a power law: the divergence" in "\n".join(answer.summary)
