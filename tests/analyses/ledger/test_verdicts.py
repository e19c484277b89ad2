import pytest

from analyses.ledger.claim import judge
from analyses.ledger.registry import CLAIMS
from analyses.ledger.store import EvidenceStore
from tests.analyses.ledger.planted import PlantedStore
from tests.analyses.ledger.refuting import CONTROLS, HEADS, REFUTING, SIZE, put
from tests.analyses.ledger.worlds import reproduced

BY_ID = {claim.id: claim for claim in CLAIMS}


def test_every_claim_has_a_refutation():
    assert set(REFUTING) == set(BY_ID)
    assert len(BY_ID) == len(CLAIMS)


@pytest.fixture(scope="module")
def store(planted):
    return EvidenceStore(planted)


@pytest.mark.parametrize("name", list(BY_ID))
def test_planted_evidence_reproduces_every_claim(name, store):
    one = judge(BY_ID[name], store)
    assert one.verdict == "reproduced", one.measured.parts
    assert one.measured.n_seeds >= BY_ID[name].min_seeds
    assert one.measured.scale
    assert one.measured.unit
    assert all(part.held and part.seen for part in one.measured.parts)
    assert len(one.measured.table)


@pytest.mark.parametrize("name", list(BY_ID))
def test_evidence_against_a_claim_refutes_it(name):
    claim = BY_ID[name]
    world = reproduced(claim.studies)
    REFUTING[name](world)
    one = judge(claim, PlantedStore(world))
    assert one.verdict == "not reproduced", [
        (part.statement, part.held, part.seen) for part in one.measured.parts
    ]


@pytest.mark.parametrize("name", list(BY_ID))
def test_without_evidence_a_claim_is_not_testable(name, tmp_path):
    one = judge(BY_ID[name], EvidenceStore(tmp_path))
    assert one.verdict == "not testable at this scale"
    lacking = [f"the study {study} has not been run" for study in BY_ID[name].studies]
    assert one.reason in lacking or one.reason.startswith("no run with gradient_noise")


@pytest.mark.parametrize("name", [c.id for c in CLAIMS if c.studies != ("minimal-models",)])
def test_two_seeds_give_no_verdict(name):
    claim = BY_ID[name]
    world = reproduced(claim.studies)
    for tables in world.values():
        if "runs" not in tables:
            continue
        kept = tables["runs"]["init_seed"] < 2
        names = {*tables["runs"][kept]["run"], "-"}
        for table in list(tables):
            tables[table] = tables[table][tables[table]["run"].isin(names)]
    one = judge(claim, PlantedStore(world))
    assert one.verdict == "not testable at this scale"
    assert one.reason == f"2 seeds; a verdict needs at least {claim.min_seeds}" or (
        "minimal-models" in one.reason
    )


def test_seeds_of_the_weights_alone_do_not_count():
    world = reproduced(["marginals-size"])
    world["marginals-size"]["runs"]["data_seed"] = 0
    one = judge(BY_ID["plateau-height"], PlantedStore(world))
    assert one.reason == "1 seed; a verdict needs at least 3"


def judged(name, *changes):
    world = reproduced(BY_ID[name].studies)
    for change in changes:
        change(world)
    return judge(BY_ID[name], PlantedStore(world))


@pytest.mark.parametrize(
    ("name", "steep", "verdict"),
    [
        ("saddle", 8, "not reproduced"),
        ("saddle", 1, "not testable at this scale"),
        ("not-spinodal", 8, "not testable at this scale"),  # Neither state is there to be told.
    ],
)
def test_negative_curvature_decides_nothing_away_from_critical_points(name, steep, verdict):
    runs = [f"0-s{seed}" for seed in range(steep)]
    one = judged(name, put(HEADS, "curvature-points", "grad_norm", 0.4, run=runs))
    assert one.verdict == verdict
    assert "8 of 8" in one.measured.parts[-1].seen


def test_a_k1_that_lies_beyond_what_was_run_cannot_be_seen_to_stay():
    """Where every run of every arm enters 2-Gen, no control has been passed."""
    everywhere = [put("markov-kinetics", "phases-spells", "phase", "2-Gen")]
    everywhere.append(put("markov-kinetics", "phases-log", "nearest_phase", "2-Gen"))
    one = judged("kinetic-shift", *everywhere)
    assert [part.held for part in one.measured.parts] == [None, None, None]
    assert one.verdict == "not testable at this scale"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (200, "step 150, 0.50 to 0.50 tau, on the plateau in every run"),
        (100, "step 150, 0.50 to 0.50 tau: after the plateau's end in 8 of 8 runs"),
        (99999, "step 150, 0.50 to 0.50 tau, on"),  # step 600 is past tau
    ],
)
def test_curvature_is_that_of_the_last_point_on_the_plateau(ends, said):
    ended = [put(HEADS, "plateau-onset", n, ends) for n in ("onset", "falls")]
    assert said in judged("saddle", *ended).measured.note


@pytest.mark.parametrize(("ends", "taken"), [(120, 110), (200, 150), (50, 110)])
def test_of_two_points_the_one_nearest_to_the_plateaus_end_is_taken(ends, taken):
    ended = [put(HEADS, "plateau-onset", n, ends) for n in ("onset", "falls")]
    early = put(HEADS, "curvature-points", "step", 110, step=0)
    assert f"step {taken}," in judged("anisotropy", *ended, early).measured.note


def test_weight_decay_too_weak_to_matter_tests_nothing():
    one = judged("not-norm-growth", put(CONTROLS, "runs", "lr", 1e-5))
    assert one.verdict == "in part"
    assert one.measured.parts[0].held is None
    assert "not tested: the greatest is weight decay 1" in one.measured.parts[0].seen


def test_cosines_of_opposite_sign_in_two_settings_are_not_averaged():
    def opposed(world):
        rows = world[SIZE]["weight-updates-phases"]
        runs = world[SIZE]["runs"].set_index("run")
        d = (runs["k"] * runs["n_b"])[rows["run"]].to_numpy()
        rows["cosine"] = [0.5 if one < 2000 else -0.5 for one in d]

    one = judged("cosine-plateau", opposed)
    assert one.verdict == "not reproduced"
    assert one.measured.parts[0].seen == "in 0 of 6 settings; -0.5 to 0.5 by setting"
    # Of the sizes with the paper's ratio of epoch to update, the one with the paper's K.
    assert "headline at K 20, n_b 100" in one.measured.note
    assert one.measured.estimate.value == pytest.approx(-0.5)


def test_settings_with_few_pairs_on_the_plateau_do_not_count():
    few = [f"0-s{seed}" for seed in range(3)]  # K 10, n_b 50
    changes = [
        put(SIZE, "weight-updates-phases", "cosine", 0.9, run=few),
        put(SIZE, "weight-updates-phases", "pairs", 2, run=few[:1]),
    ]
    assert judged("cosine-plateau", changes[0]).verdict == "not reproduced"
    assert judged("cosine-plateau", *changes).verdict == "reproduced"
    assert judged("cosine-transition", *changes).verdict == "reproduced"


@pytest.mark.parametrize(("momentum", "verdict"), [(0.35, "reproduced"), (0.0, "not reproduced")])
def test_plateau_cosines_are_held_against_momentum(momentum, verdict):
    one = judged(
        "cosine-plateau",
        put(SIZE, "weight-updates-phases", "cosine", 0.4),
        put(SIZE, "weight-updates-averages", "momentum", momentum, lag=1),
    )
    assert one.verdict == verdict


def test_a_head_that_comes_after_the_loss_falls_has_not_preceded_it():
    one = judged("selector-lead", put(HEADS, "plateau-onset", "falls", 140))
    assert [part.held for part in one.measured.parts] == [True, False]
    # The first descent of an untrained model's loss is another thing.
    early = put(HEADS, "selector-onsets", "onset", 9, signal="candidate_loss")
    one = judged("selector-lead", early)
    assert one.verdict == "reproduced"
    assert "the 8 seeds of weights and data share one mapping" in one.measured.note
    own = [put(HEADS, "runs", "mapping_seed", seed, init_seed=seed) for seed in range(8)]
    note = judged("selector-lead", *own).measured.note
    assert "8 seeds of weights and data over 8 mappings" in note
