import pytest

from analyses.ledger.claim import judge
from analyses.ledger.registry import CLAIMS
from analyses.ledger.store import EvidenceStore
from tests.analyses.ledger.planted import PlantedStore
from tests.analyses.ledger.refuting import REFUTING
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
