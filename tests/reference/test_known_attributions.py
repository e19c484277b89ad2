"""Regression: the head attributions of the reference runs, recomputed from their weights."""

import json

import pytest

from tests.reference.attributions import ABLATIONS, KNOWN, STEPS, attributions

RTOL, ATOL = 1e-3, 2e-4
CASES = [(name, ckpt) for name, ckpts in STEPS.items() for ckpt in ckpts]


@pytest.fixture(scope="module")
def known():
    return json.loads(KNOWN.read_text())


@pytest.mark.parametrize(("name", "ckpt"), CASES)
def test_attributions_are_what_they_were(known, name, ckpt):
    expected, found = known[name][ckpt], attributions(name, ckpt)
    assert found["step"] == expected["step"]
    assert found["diagnostics"] == pytest.approx(expected["diagnostics"], rel=RTOL, abs=ATOL)
    for ablation in ABLATIONS:
        assert found[ablation] == pytest.approx(expected[ablation], rel=RTOL, abs=ATOL), ablation
        # Ranks are held to where the known effects differ by more than the tolerance.
        top, second = list(expected[ablation].items())[:2]
        if top[1] - second[1] > 2 * (RTOL * abs(top[1]) + ATOL):
            assert max(found[ablation], key=found[ablation].__getitem__) == top[0]


def test_the_selector_head_of_the_reference_run_is_l0h3(known):
    halfway, early = known["marginals-k20"]["step_4000"], known["marginals-k20"]["step_2000"]
    heads = list(halfway["zero"])
    assert heads[0] == "L0H3"
    assert halfway["zero"]["L0H3"] > 1.3 * halfway["zero"][heads[1]]
    assert next(iter(early["zero"])) == "L0H3"


def test_another_checkpoint_does_not_pass_for_this_one(known):
    steps = known["marginals-k20"]
    assert steps["step_2000"]["zero"] != pytest.approx(steps["step_4000"]["zero"], rel=RTOL)
