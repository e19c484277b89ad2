import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from analyses import weight_updates
from analyses.catalogue import WeightUpdates
from analyses.updates.nulls import (
    equal_norm_band,
    momentum_cosine,
    momentum_table,
    scatter_band,
    sign_band,
    simulate_adamw,
    vanishing_lag,
)
from analyses.updates.spans import choose_grid, choose_lags
from analyses.updates.tables import agreement, phase_table
from analyses.updates.weight_groups import FlatLayout
from circuits.errors import InputError
from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.runs import Run
from mechinterp.runs.writer import RunWriter

SHAPES = {
    "embed.W_E": (40, 16),
    "blocks.0.attn.W_Q": (2, 16, 8),
    "blocks.0.attn.W_K": (2, 16, 8),
    "blocks.0.attn.W_V": (2, 16, 8),
    "blocks.0.attn.W_O": (2, 8, 16),
    "blocks.0.attn.b_Q": (2, 8),
    "blocks.0.ln1.w": (16,),
    "blocks.0.mlp.W_in": (16, 64),
    "unembed.W_U": (16, 40),
}


MLP = ("W_in", "W_out", "b_in", "b_out")


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def plant(folder, checkpoints):
    """A run with these weights by step."""
    model = ModelConfig(n_layers=1, n_heads=2, d_model=16, n_ctx=16)
    training = TrainingConfig(steps=max(checkpoints))
    config = RunConfig(MarginalsConfig(k=2, n_b=6), model, training, CheckpointConfig(1, 0))
    with RunWriter.open(folder / "planted", config, 1, False, "") as run:
        for step, weights in checkpoints.items():
            run.save(step, weights, {})
    return folder


def ask(folder, **options):
    return weight_updates.answer(WeightUpdates(run="planted", root=folder, **options))


def added(one, other, factor=1.0):
    return {name: tensor + factor * other[name] for name, tensor in one.items()}


def means(answer, lag):
    table = answer.tables["averages"]
    return table[table["lag"] == lag].set_index("group")


def test_a_straight_path_agrees_with_itself_at_every_lag(tmp_path):
    start, way = draw(0), draw(1)
    answer = ask(plant(tmp_path, {10 * n: added(start, way, n) for n in range(11)}))
    for lag in (1, 2, 4, 8):
        assert means(answer, lag)["cosine"].to_numpy() == pytest.approx(1.0, abs=1e-5)
        assert means(answer, lag)["pairs"].unique() == [10 - lag]
        assert means(answer, lag)["lag_steps"].unique() == [10 * lag]
    updates = answer.tables["updates"]
    assert updates["alignment"].to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert updates["alignment_rest"].to_numpy() == pytest.approx(1.0, abs=1e-5)
    norm = math.sqrt(sum(float((t.double() ** 2).sum()) for t in way.values()))
    whole = updates[updates["group"] == "model"]
    assert whole["update_norm"].to_numpy() == pytest.approx(norm, rel=1e-5)
    assert "agree beyond both" in "\n".join(answer.summary)


def test_going_to_and_fro_opposes_at_lag_1_and_agrees_at_lag_2(tmp_path):
    start, way = draw(0), draw(1)
    answer = ask(plant(tmp_path, {n: added(start, way, n % 2) for n in range(8)}), lags=(1, 2))
    assert means(answer, 1)["cosine"].to_numpy() == pytest.approx(-1.0, abs=1e-5)
    assert means(answer, 2)["cosine"].to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert means(answer, 1).at["model", "verdict"] == "they oppose each other"


def test_one_head_that_moves_straight_is_found_among_random_ones_and_a_frozen_part(tmp_path):
    checkpoints, weights, way = {0: draw(0)}, draw(0), draw(1)
    for step in range(1, 25):
        weights = added(weights, draw(100 + step))
        weights["embed.W_E"] = checkpoints[0]["embed.W_E"]
        for matrix in "QKVO":
            name = f"blocks.0.attn.W_{matrix}"
            weights[name][1] = checkpoints[0][name][1] + step * way[name][1]
        checkpoints[step] = weights
    answer = ask(plant(tmp_path, checkpoints))
    table = means(answer, 1)
    for group in ("L0H1", "L0H1.W_Q", "L0H1.W_K", "L0H1.W_V", "L0H1.W_O"):
        assert table.at[group, "cosine"] == pytest.approx(1.0, abs=1e-5)
    for group in ("L0H0", "L0H0.W_O", "M0", "unembed"):
        assert abs(table.at[group, "cosine"]) < 2 * table.at[group, "mean_band"]
    assert 0.05 < table.at["model", "cosine"] < 0.95
    assert math.isnan(table.at["embed", "cosine"])
    assert table.at["embed", "verdict"] == "undefined, nothing moved"
    assert "to L0H1 +1.000" in answer.summary[-1]


def test_independent_updates_stay_inside_the_bands_and_the_control_does_not(tmp_path):
    checkpoints, weights = {0: draw(0)}, draw(0)
    for step in range(1, 61):
        weights = checkpoints[step] = added(weights, draw(100 + step))
    answer = ask(plant(tmp_path, checkpoints), lags=(1, 3))
    for lag in (1, 3):
        one = answer.tables["cosines"]
        one = one[(one["lag"] == lag) & one["group"].isin(["L0H0", "M0", "embed", "model"])]
        inside = (one["cosine"].abs() < one["sign_band"]).mean()
        assert 0.9 < inside < 0.99
        # Entries of equal spread: the band that keeps their sizes is that of equal norm.
        band = one[one["group"] == "model"]["sign_band"].mean()
        sizes = answer.tables["groups"].set_index("group")
        assert band == pytest.approx(sizes.at["model", "equal_norm_band"], rel=0.05)
        row = means(answer, lag).loc["model"]
        assert abs(row["cosine"]) < 1.6 * row["mean_band"]


def test_bands_by_drawing_signs_and_directions():
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 50)) ** 3
    signs = rng.choice([-1.0, 1.0], (20000, 50))
    cosines = (signs * one) @ other / np.linalg.norm(one) / np.linalg.norm(other)
    sums = (((one * other) ** 2).sum(), (one**2).sum(), (other**2).sum())
    band = sign_band(*(np.array([value]) for value in sums))[0]
    assert band == pytest.approx(1.96 * cosines.std(), rel=0.03)
    drawn = rng.standard_normal((2, 20000, 50))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    assert equal_norm_band(50.0) == pytest.approx(
        1.96 * (drawn[0] * drawn[1]).sum(1).std(), rel=0.03
    )
    assert band > 1.2 * equal_norm_band(50.0)


@pytest.mark.parametrize(("span", "lag"), [(1, 1), (1, 7), (6, 1), (6, 2), (25, 1)])
def test_momentum_by_the_double_sum_over_steps(span, lag):
    def shared(shift):
        return sum(0.9 ** abs(shift + j - i) for i in range(span) for j in range(span))

    assert momentum_cosine(0.9, span, lag) == pytest.approx(shared(lag * span) / shared(0))
    if span == 1:
        assert momentum_cosine(0.9, span, lag) == pytest.approx(0.9**lag)


def test_no_momentum_no_cosine():
    assert momentum_cosine(0.0, 5, 1) == 0.0
    assert vanishing_lag(0.0, 5, 0.01) == 1
    # Single steps: 0.9^l falls below 0.01 at l = 44; two updates of 200 steps share 0.0249.
    assert vanishing_lag(0.9, 1, 0.01) == 44
    assert momentum_cosine(0.9, 200, 1) == pytest.approx(90 / 3620)
    assert vanishing_lag(0.9, 200, 0.01) == 2


def test_adamw_on_noise_gives_the_cosine_of_its_momentum():
    table = momentum_table(TrainingConfig(), 200, (1, 2)).set_index(["span", "lag"])
    assert math.isnan(table.at[(200, 1), "simulated"])
    for span in (1, 5, 20):
        for lag in (1, 2):
            row = table.loc[(span, lag)]
            assert row["simulated"] == pytest.approx(row["analytic"], abs=0.01)
    still = simulate_adamw(TrainingConfig(beta1=0.0), 400)
    moves = np.diff(still, axis=0)
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.pairwise(moves)]
    assert abs(np.mean(cosines)) < 0.01


def test_the_simulated_path_is_that_of_torchs_own_optimizer():
    training = TrainingConfig(weight_decay=0.3, beta1=0.8)
    weight = torch.zeros(7, requires_grad=True)
    betas = (training.beta1, training.beta2)
    optimizer = torch.optim.AdamW([weight], lr=training.lr, betas=betas, weight_decay=0.3)
    generator, path = torch.Generator().manual_seed(5), []
    for _ in range(45):
        path.append(weight.detach().clone().numpy())
        weight.grad = torch.randn(7, generator=generator)
        optimizer.step()
    np.testing.assert_allclose(simulate_adamw(training, 40, 7, 5), path[4:], rtol=1e-5)


def test_a_trained_run_by_a_plain_loop_in_double_precision(tiny_runs):
    answer = weight_updates.answer(WeightUpdates(run="lookup-12", root=tiny_runs, lags=(1, 3)))
    run = Run.open("lookup-12", tiny_runs)
    weights = [dict(run.weights(step)) for step in run.steps]
    table = answer.tables["cosines"].set_index(["lag", "group", "step"])
    parts = {
        "model": lambda w: torch.cat([t.flatten() for t in w.values()]),
        "M0": lambda w: torch.cat([w[f"blocks.0.mlp.{n}"].flatten() for n in MLP]),
        "L0H1": lambda w: torch.cat([w[f"blocks.0.attn.W_{m}"][1].flatten() for m in "QKVO"]),
        "L0H0.W_V": lambda w: w["blocks.0.attn.W_V"][0].flatten(),
    }  # fmt: skip
    for group, part in parts.items():
        vectors = torch.stack([part(w).double() for w in weights])
        moves = vectors.diff(dim=0)
        for lag, at in ((1, 0), (1, 7), (3, 5)):
            cosine = torch.cosine_similarity(moves[at], moves[at + lag], dim=0).item()
            assert table.at[(lag, group, at * 8), "cosine"] == pytest.approx(cosine, abs=1e-5)
        updates = answer.tables["updates"]
        row = updates[updates["group"] == group].iloc[4]
        far = vectors[-1] - vectors[0]
        rest = torch.cosine_similarity(moves[4], far - moves[4], dim=0).item()
        assert row["alignment_rest"] == pytest.approx(rest, abs=1e-4)
        aligned = torch.cosine_similarity(moves[4], far, dim=0).item()
        assert row["alignment"] == pytest.approx(aligned, abs=1e-4)
        assert row["update_norm"] == pytest.approx(moves[4].norm().item(), rel=1e-5)
        assert row["weight_norm"] == pytest.approx(vectors[4].norm().item(), rel=1e-5)
    phases = answer.tables["phases"]
    assert set(phases["reading"]) <= {"paper", "sound"}
    assert phases.groupby("reading")["pairs"].sum().eq(14).all()


def test_every_weight_counts_once_in_the_model_and_once_in_the_components(tiny_runs):
    layout = FlatLayout.of(Run.open("lookup-12", tiny_runs).weights(0))
    kinds = np.array(layout.kinds)
    assert layout.size == layout.sizes[0]
    assert layout.sizes[kinds == "component"].sum() == layout.size
    heads, slices = (layout.sizes[kinds == kind].sum() for kind in ("head", "slice"))
    assert heads == slices == 4 * 32 * 32
    assert (kinds == "slice").sum() == 2 * 4


def test_only_updates_of_equal_span_are_compared():
    steps = [0, 1, 3, 10, 100, 200, 300, 500, 600]
    grid = choose_grid(steps, None, "run")
    assert (grid.span, grid.starts) == (100, (0, 100, 200, 500))
    assert grid.left_out == (1, 3, 10)
    assert [grid.pairs(lag) for lag in (1, 2, 3, 4, 5)] == [2, 1, 1, 1, 1]
    assert choose_lags(grid, (), "run") == (1, 2, 4)
    # Counted from 50, not from 0, where more of the checkpoints lie.
    assert choose_grid([0, 50, 150, 250, 350], 100, "run").starts == (50, 150, 250)


def test_the_reference_run(reference):
    answer = weight_updates.answer(WeightUpdates(run=str(reference / "marginals-k20")))
    assert answer.provenance["options"]["span"] == 2000
    assert answer.provenance["options"]["left_out"] == [1000, 3000, 3400, 3800, 4600]
    assert answer.tables["groups"].set_index("group").at["model", "n_parameters"] == 807720
    one = means(answer, 1)
    assert one.at["model", "pairs"] == 3
    assert -1 < one.at["model", "cosine"] < 1
    assert "5 of 10 checkpoints are left out" in answer.summary[0]
    finer = weight_updates.answer(WeightUpdates(run=str(reference / "marginals-k20"), span=1000))
    assert sorted(set(finer.tables["updates"]["step"])) == [0, 1000, 2000, 3000]
    assert len(answer.figures) == 6
    assert all(figure.data for figure in answer.figures.values())


def test_a_second_question_reads_no_weights(tmp_path, monkeypatch):
    folder = plant(tmp_path, {n: draw(n) for n in range(6)})
    first = ask(folder)
    asked = []
    monkeypatch.setattr(FlatLayout, "flatten", lambda *rest: asked.append(rest))
    second = ask(folder)
    assert not asked
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, second.tables[name])


def test_what_is_refused(tiny_runs, tmp_path):
    def refused(match, folder=tiny_runs, **options):
        with pytest.raises(InputError, match=match):
            weight_updates.answer(WeightUpdates(root=folder, **options))

    refused(r"short has 2 checkpoints; at least 3 updates .*--save-every", run="short")
    refused(r"span is 0; .*at least 1", run="lookup-6", span=0)
    refused(r"lookup-6 has 16 checkpoints; .*most of 7 steps, 0.*--span", run="lookup-6", span=7)
    refused(r"lag is 15; lookup-6 has 15 updates .* 1 to 14", run="lookup-6", lags=(15,))
    broken = {n: draw(n) for n in range(5)}
    broken[3]["unembed.W_U"][0, 0] = math.nan
    refused(r"step_3 of planted holds NaN", plant(tmp_path / "nan", broken), run="planted")
    other = {n: draw(n) for n in range(5)}
    del other[2]["blocks.0.ln1.w"]
    refused(r"step_2 of planted holds other", plant(tmp_path / "other", other), run="planted")


@pytest.mark.parametrize(
    ("cosine", "scatter", "words"),
    [
        (0.5, 0.01, "beyond both"),
        (0.11, 0.01, "no more than"),
        (0.5, 0.45, "no more than"),
        (-0.05, 0.01, "oppose"),
        (-0.05, 0.3, "no more than"),
        (0.5, math.nan, "cannot be told from one pair"),
        (math.nan, math.nan, "undefined"),
    ],
)
def test_agreement_in_words(cosine, scatter, words):
    assert words in agreement(cosine, 0.02, scatter, 0.1)


def low_rank(rng, n, drift=0.0, size=400, rank=4):
    """Independent updates that keep to a few directions, but for a constant drift."""
    basis = np.linalg.qr(rng.standard_normal((size, rank + 1)))[0]
    return rng.standard_normal((n, rank)) @ basis[:, :rank].T + drift * basis[:, rank]


def cosines_at(updates, lag):
    one, other = updates[:-lag], updates[lag:]
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    by_sign = sign_band(((one * other) ** 2).sum(1), (one**2).sum(1), (other**2).sum(1))
    return (one * other).sum(1) / norms, by_sign


@pytest.mark.parametrize(("n", "lag"), [(4, 1), (12, 1), (40, 1), (40, 3)])
def test_few_directions_fool_the_bands_by_weight_and_not_the_one_by_scatter(n, lag):
    rng, covered = np.random.default_rng(0), {"scatter": [], "sign": [], "equal_norm": []}
    for _ in range(500):
        cosines, by_sign = cosines_at(low_rank(rng, n), lag)
        mean, pairs = abs(cosines.mean()), len(cosines)
        covered["scatter"].append(mean < scatter_band(cosines).mean)
        covered["sign"].append(mean < np.sqrt((by_sign**2).sum()) / pairs)
        covered["equal_norm"].append(mean < equal_norm_band(400.0) / math.sqrt(pairs))
    # A little below 95 %: with so few directions cosines are far from normal.
    assert np.mean(covered["scatter"]) > 0.91
    assert np.mean(covered["sign"]) < 0.6
    assert np.mean(covered["equal_norm"]) < 0.4


def test_the_scatter_counts_the_planted_directions_and_finds_a_planted_drift():
    rng = np.random.default_rng(1)
    for rank in (2, 4, 16):
        found = scatter_band(cosines_at(low_rank(rng, 3000, rank=rank), 2)[0])
        # Unit vectors uniform in r dimensions have cosines of variance exactly 1 / r.
        assert found.dimension == pytest.approx(rank, rel=0.1)
        one = np.abs(cosines_at(low_rank(rng, 3000, rank=rank), 2)[0])
        assert (one < found.single).mean() == pytest.approx(0.95, abs=0.06)
    cosines, _ = cosines_at(low_rank(rng, 40, drift=2.0), 1)
    assert cosines.mean() > scatter_band(cosines).mean
    assert math.isnan(scatter_band(np.array([0.3, np.nan])).mean)
    assert scatter_band(np.array([1.0, 1.0, 1.0])) == (0.0, 0.0, math.inf)


def test_a_run_of_low_rank_updates_is_not_said_to_agree(tmp_path):
    """Rank one in every matrix, as the gradient of one position is, with directions of its own."""
    generator = torch.Generator().manual_seed(3)
    few = [draw(seed) for seed in (50, 51)]
    checkpoints, weights = {0: draw(0)}, draw(0)
    for step in range(1, 41):
        for one, size in zip(few, torch.randn(2, generator=generator), strict=True):
            weights = added(weights, one, float(size))
        checkpoints[step] = weights
    answer = ask(plant(tmp_path, checkpoints), lags=(1, 2, 3, 4, 5))
    table = answer.tables["averages"]
    model = table[table["group"] == "model"]
    # As many times as there are lags: chance by weight would cry out at most of them.
    assert (model["cosine"].abs() > model["mean_band"]).mean() >= 0.4
    assert (model["cosine"].abs() < 2 * model["scatter_band"]).all()
    assert model["directions"].between(1, 3).all()
    assert "directions" in "\n".join(answer.summary)


def test_phases_put_each_pair_where_its_middle_lies(reference):
    run = Run.open(reference / "marginals-k20")
    pairs = pd.DataFrame({"step": [0, 2000, 4000], "lag": 1, "group": "model"})
    pairs["cosine"] = [0.1, 0.2, 0.4]
    table = phase_table(run, pairs, 2000).set_index(["reading", "phase"])
    tau = table.at[("sound", "post"), "tau"]
    middles = np.array([2000, 4000, 6000])
    after = pairs["cosine"].to_numpy()[middles >= tau]
    assert table.at[("sound", "post"), "pairs"] == len(after) >= 1
    assert table.at[("sound", "post"), "cosine"] == pytest.approx(after.mean())
    assert table.groupby("reading")["pairs"].sum().eq(3).all()
    chains = Run.open(reference / "markov-k4")
    assert phase_table(chains, pairs, 2000) is None
