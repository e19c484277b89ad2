import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analyses import kinetics
from analyses.bypass.critical_k import Counts, arm_table, exact_interval, no_shift_p, threshold
from analyses.bypass.static_losses import crossing, gap_table, static_crossing
from analyses.catalogue import Kinetics
from circuits.errors import InputError
from mechinterp.config import (
    MARKOV_MODEL,
    MARKOV_TRAINING,
    MarginalsConfig,
    MarkovChainsConfig,
    RunConfig,
)
from mechinterp.runs import Run
from mechinterp.tasks import MarkovChains
from tests.analyses.planted_logs import plant_log

NAMES = ("one_gen", "two_gen", "one_mem_stationary", "one_mem_transition", "two_mem")
TASK = MarkovChainsConfig(n_states=3, length=16, held_out=4)
SLOW = "blocks.1.attn.W_[QK]=0.1"


def counts(ks, entered, runs):
    return Counts(np.array(ks, float), np.array(entered, float), np.array(runs, float))


def plant(folder, name, k, path, factors=(), seed=0, **changes):
    """A run that is nearest to these predictors in turn, one row each."""
    training = replace(MARKOV_TRAINING, lr_factor=factors, data_seed=seed)
    config = RunConfig(replace(TASK, k=k, **changes), MARKOV_MODEL, training)
    rows = []
    for at, nearest in enumerate(path):
        row = {"step": 100 * at, "kl_truth": 0.1, "kl_truth_new": 0.1}
        for one in NAMES:
            row[f"kl_{one}"] = row[f"kl_{one}_new"] = 0.01 if one == nearest else 0.1
        rows.append(row)
    return plant_log(folder, name, config, rows)


THROUGH = ("one_gen", "two_gen", "two_mem")
PAST = ("one_gen", "one_mem_transition", "two_mem")
STUCK = ("one_gen", "one_gen", "one_mem_transition")


def grid(folder, first, factors=(), seeds=3, ks=(4, 8, 16, 32)):
    """Runs that bypass 2-Gen below `first` and enter it from there on."""
    tag = "slow" if factors else "plain"
    return [
        plant(folder, f"{tag}-{k}-{seed}", k, THROUGH if k >= first else PAST, factors, seed)
        for k in ks
        for seed in range(seeds)
    ]


def ask(folder, runs, **options):
    return kinetics.answer(Kinetics(root=folder, runs=tuple(runs), draws=2, sequences=8, **options))


def test_a_planted_shift_is_found_and_none_is_not(tmp_path):
    plain, slow = grid(tmp_path, 8), grid(tmp_path, 32, (SLOW,))
    answer = ask(tmp_path, [*slow, *plain])
    arms = answer.tables["arms"].set_index("arm")
    assert list(arms.index) == ["unscaled", SLOW]
    assert arms.at["unscaled", "k1"] == pytest.approx(math.sqrt(4 * 8))
    assert arms.at[SLOW, "k1"] == pytest.approx(math.sqrt(16 * 32))
    assert arms.at[SLOW, "shift"] == pytest.approx(4)
    assert arms.at[SLOW, "shift_low"] <= 4 <= arms.at[SLOW, "shift_high"]
    # At K = 8 and 16 all of 3 against none of 3: 1 in 20 each, and as much on the other side.
    assert arms.at[SLOW, "p"] == pytest.approx(2 * (1 / 20) ** 2)
    assert f"learning rates move K1* ({SLOW}), which K_x cannot explain" in answer.summary[-1]
    still = ask(tmp_path, [*plain, *_same(tmp_path)])
    assert still.tables["arms"].set_index("arm").at["mlp=0.1", "p"] == pytest.approx(1)
    assert "no arm moves K1* beyond chance" in still.summary[-1]
    assert all(figure.data for figure in answer.figures.values())


def _same(folder):
    return [
        plant(folder, f"same-{k}-{s}", k, THROUGH if k >= 8 else PAST, ("mlp=0.1",), s)
        for k in (4, 8)
        for s in range(2)
    ]


def test_outcomes_are_told_apart_and_undecided_runs_do_not_count(tmp_path):
    names = [
        plant(tmp_path, "through", 8, THROUGH),
        plant(tmp_path, "past", 4, PAST),
        plant(tmp_path, "stuck", 4, STUCK, seed=1),
    ]
    answer = ask(tmp_path, names)
    outcomes = answer.tables["outcomes"].set_index("run")
    assert outcomes["outcome"].to_dict() == {
        "through": "entered",
        "past": "bypassed",
        "stuck": "undecided",
    }
    assert outcomes.at["through", "step"] == 100
    shares = answer.tables["shares"].set_index("k")
    assert shares.loc[4, ["entered", "decided", "undecided"]].tolist() == [0, 1, 1]
    assert "1 runs end undecided" in "\n".join(answer.summary)
    assert "no shift can be told" in answer.summary[-1]
    row = answer.tables["arms"].iloc[0]
    assert (row["low"], row["high"]) == (0, math.inf)  # one run at each K settles nothing


def test_a_far_run_is_nearest_to_2_gen_but_not_in_its_phase(tmp_path):
    config = RunConfig(replace(TASK, k=4), MARKOV_MODEL, MARKOV_TRAINING)
    rows = [
        {"step": s, "kl_truth": 1.0, "kl_truth_new": 1.0}
        | {f"kl_{n}{e}": 0.1 if n == "two_gen" else 0.5 for n in NAMES for e in ("", "_new")}
        for s in (0, 10, 20)
    ]  # fmt: skip
    names = [plant_log(tmp_path, "far", config, rows), plant(tmp_path, "through", 8, THROUGH)]
    found = {
        rule: ask(tmp_path, names, rule=rule).tables["outcomes"]["outcome"].iloc[0]
        for rule in ("phase", "nearest")
    }  # fmt: skip
    assert found == {"phase": "undecided", "nearest": "entered"}


@pytest.mark.parametrize(
    ("entered", "expected"),
    [
        ([0, 0, 4, 4], math.sqrt(4 * 8)),
        ([0, 1, 3, 4], math.sqrt(4 * 8)),
        ([0, 2, 4, 4], 4.0),
        ([0, 0, 1, 4], 8 * 2 ** (1 / 3)),
        ([0, 3, 1, 4], math.sqrt(4 * 8)),  # pooled: half at both
        ([4, 4, 4, 4], 0.0),
        ([0, 0, 0, 1], math.inf),
    ],
)
def test_thresholds_by_hand(entered, expected):
    assert threshold(counts([2, 4, 8, 16], entered, [4] * 4)) == pytest.approx(expected)


def test_exact_intervals_by_hand():
    ks, four = [2, 4, 8, 16, 32, 64], [4] * 6
    # None of 4, twice: 1 / 256 in a stretch of two; times 5 stretches that is 0.0195 < 0.025. One
    # K alone gives 1/16. So the first K not refused from below is the last one without entries.
    assert exact_interval(counts(ks, [0, 0, 0, 4, 4, 4], four)) == (4.0, 32.0)
    assert exact_interval(counts(ks[:2], [0, 1], [1, 1])) == (0.0, math.inf)
    assert exact_interval(counts(ks, [0] * 6, four)) == (32.0, math.inf)
    assert exact_interval(counts(ks, [4] * 6, four)) == (0.0, 4.0)


@pytest.mark.parametrize("sharpness", [0.5, 3.0, 30.0])
def test_exact_intervals_cover_whatever_the_shape(sharpness):
    rng, ks, k1 = np.random.default_rng(0), np.array([2.0, 4, 8, 16, 32, 64, 128]), 13.0
    p = 1 / (1 + np.exp(-sharpness * np.log(ks / k1)))
    inside = 0
    for _ in range(200):
        low, high = exact_interval(counts(ks, rng.binomial(5, p), [5] * 7))
        inside += low < k1 < high
    assert inside / 200 >= 0.95


def test_the_chance_of_no_shift_by_dealing_every_hand():
    one, other = counts([2, 4, 8], [0, 2, 3], [2, 3, 3]), counts([4, 8, 9], [0, 1, 1], [2, 3, 1])
    outcomes = {4: [1, 1, 0, 0, 0], 8: [1, 1, 1, 1, 0, 0]}
    sums = []
    for four in itertools.combinations(range(5), 3):
        for eight in itertools.combinations(range(6), 3):
            sums.append(sum(outcomes[4][i] for i in four) + sum(outcomes[8][i] for i in eight))
    chance = np.bincount(sums, minlength=6) / len(sums)
    assert no_shift_p(one, other) == pytest.approx(chance[chance <= chance[5] + 1e-12].sum())
    assert no_shift_p(counts([2], [1], [2]), counts([4], [1], [2])) == 1


def test_no_shift_is_rarely_taken_for_one_and_the_control_is_found():
    rng, ks = np.random.default_rng(1), np.array([4.0, 8, 16, 32])
    p, moved = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0.02, 0.05, 0.1, 0.4])

    def share(law):
        hits = 0
        for _ in range(200):
            one, other = (counts(ks, rng.binomial(5, q), [5] * 4) for q in (p, law))
            hits += no_shift_p(one, other) < 0.05
        return hits / 200

    assert share(p) <= 0.05
    assert share(moved) > 0.5


def test_no_run_in_common_and_no_decided_run():
    table = pd.DataFrame(
        [("unscaled", 2, "bypassed"), ("unscaled", 4, "entered"), ("x=1", 8, "undecided")],
        columns=["arm", "k", "outcome"],
    )
    arms = arm_table(table, "unscaled").set_index("arm")
    assert math.isnan(arms.at["x=1", "k1"])
    assert math.isnan(arms.at["x=1", "p"])


def test_the_static_crossing_is_that_of_the_notes_and_of_the_tasks_own_gaps():
    config = MarkovChainsConfig(n_states=5, length=64)
    gaps = gap_table(config, 8, 32)
    found, low, high = static_crossing(gaps)
    # The notes have 7 at C = 5, N = 64 and 22 at C = 8, from one draw of the chains.
    assert 7 / 1.8 < found < 7 * 1.8
    assert low < found < high
    wide, *_ = static_crossing(gap_table(replace(config, n_states=8), 2, 32))
    assert 22 / 1.6 < wide < 22 * 1.6
    mine = gaps[(gaps["k"] == 8) & (gaps["draw"] == 1)].iloc[0]
    theirs = MarkovChains(replace(config, k=8, chain_seed=1)).predictor_gaps(32)
    assert mine["one_mem"] == pytest.approx(theirs["one_mem_transition"], rel=1e-9)
    assert mine["two_gen"] == pytest.approx(theirs["two_gen"], rel=1e-9)


def test_a_planted_crossing():
    ks = np.array([2.0, 4.0, 8.0, 16.0])
    assert crossing(ks, np.array([-2.0, -1.0, 1.0, 2.0])) == pytest.approx(math.sqrt(32))
    assert crossing(ks, np.array([1.0, -1.0, 1.0, 2.0])) == 0
    assert math.isinf(crossing(ks, -ks))
    rng = np.random.default_rng(0)
    rows = [
        {"k": k, "draw": d, "one_mem": math.log(k / 6.0) + noise, "two_gen": 0.0}
        for d, noise in enumerate(0.2 * rng.standard_normal(8))
        for k in ks
    ]
    found, low, high = static_crossing(pd.DataFrame(rows))
    mean = np.mean([row["one_mem"] - math.log(row["k"] / 6.0) for row in rows])
    assert found == pytest.approx(6 * math.exp(-mean))
    assert low < 6 < high


def test_a_committed_run_bypasses_2_gen_as_its_phases_say(reference, tmp_path):
    real = Run.open(reference / "markov-k4")
    config = replace(real.config, task=replace(real.config.task, k=32))
    rows = [
        {"step": s, "kl_truth": 0.1, "kl_truth_new": 0.1}
        | {f"kl_{n}{e}": 0.01 if n == "two_gen" else 0.1 for n in NAMES for e in ("", "_new")}
        for s in (0, 100, 200)
    ]  # fmt: skip
    plant_log(tmp_path, "entered", config, rows)
    answer = ask(tmp_path, [str(real.path), "entered"])
    outcomes = answer.tables["outcomes"].set_index("run")
    assert outcomes["outcome"].to_dict() == {"markov-k4": "bypassed", "entered": "entered"}
    assert answer.tables["arms"].iloc[0]["k1"] == pytest.approx(math.sqrt(4 * 32))
    assert answer.provenance["runs"][0]["run"] == "markov-k4"


def test_what_is_refused(tmp_path, reference):
    def refused(match, *runs, **options):
        with pytest.raises(InputError, match=match):
            kinetics.answer(Kinetics(root=tmp_path, runs=runs, **options))

    plant(tmp_path, "a", 4, PAST)
    plant(tmp_path, "b", 8, THROUGH)
    plant(tmp_path, "again", 4, PAST, seed=1)
    plant(tmp_path, "slow", 4, PAST, (SLOW,))
    plant(tmp_path, "longer", 8, THROUGH, length=32)
    plant(tmp_path, "brief", 16, THROUGH[:2])
    plant(tmp_path, "fresh", "inf", THROUGH)
    plant_log(tmp_path, "lookup", RunConfig(MarginalsConfig()), [])
    for steps in (500, 900):
        training = replace(MARKOV_TRAINING, lr_schedule="cosine", steps=steps)
        config = RunConfig(replace(TASK, k=steps), MARKOV_MODEL, training)
        plant_log(tmp_path, f"falling-{steps}", config, [])
    refused(r"falling-900 has training.scheduled_steps 900, but falling-500 has 500",
            "falling-500", "falling-900")  # fmt: skip
    refused(r"--runs names 1 runs; kinetics needs at least 2, of different k", "a")
    refused(r"names a twice", "a", "a")
    refused(r"2 runs with lr_factor unscaled all have k=4; .* at least 2: .*--k", "a", "again")
    refused(r"1 runs with lr_factor blocks.* all have k=4", "a", "b", "slow")
    refused(r"longer has task.length 32, but a has 16; .* k, seeds and lr_factor alone",
            "a", "longer")  # fmt: skip
    refused(r"log of brief has 2 rows .* at least 3", "a", "brief")
    refused(r"fresh has k=inf, which is no point on an axis", "a", "fresh")
    refused(r"kinetics needs a run of the task markov_chains, but lookup", "a", "lookup")
    refused(r"draws is 1 and sequences 128; K_x needs at least 2", "a", "b", draws=1)
