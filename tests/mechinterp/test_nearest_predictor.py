"""Distances to the predictors, and the rule that turns them into a phase."""

import math

import pytest
import torch

from mechinterp.nearest_predictor import (
    kl_divergence,
    kl_to_predictors,
    late_positions,
    nearest_phase,
    transience_index,
)

FAR = {
    "one_gen": 0.3,
    "two_gen": 0.3,
    "one_mem_stationary": 0.3,
    "one_mem_transition": 0.3,
    "two_mem": 0.3,
}


@pytest.mark.parametrize(
    ("length", "first", "last"), [(64, 15, 62), (65, 16, 63), (128, 31, 126), (2, 0, 0), (5, 1, 3)]
)
def test_late_positions_have_seen_a_quarter(length: int, first: int, last: int) -> None:
    late = late_positions(length)
    assert (late[0], late[-1]) == (first, last)
    assert late[0] + 1 >= length / 4 > late[0]


def test_kl_worked_by_hand() -> None:
    q = torch.tensor([[[0.5, 0.5]]]).log()
    p = torch.tensor([[[0.25, 0.75]]]).log()
    forward = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    backward = 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2)
    assert kl_divergence(q, p).item() == pytest.approx(forward, rel=1e-6)
    assert kl_divergence(p, q).item() == pytest.approx(backward, rel=1e-6)
    assert kl_divergence(q, q).item() == 0.0


def test_kl_to_predictors_is_from_the_predictor_and_over_late_positions() -> None:
    generator = torch.Generator().manual_seed(0)
    answer, model = (torch.randn(2, 9, 3, generator=generator).log_softmax(-1) for _ in range(2))
    found = kl_to_predictors(model[:, :-1], {"two_gen": answer})["two_gen"]
    expected = kl_divergence(answer, model)[:, 2:8].mean(-1)  # N = 9: 3 to 8 states seen
    torch.testing.assert_close(found, expected)
    changed = model.clone()
    changed[:, :2] = 0.0
    torch.testing.assert_close(
        kl_to_predictors(changed[:, :-1], {"two_gen": answer})["two_gen"], expected
    )


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("one_gen", "1-Gen"),
        ("two_gen", "2-Gen"),
        ("one_mem_stationary", "1-Mem"),
        ("one_mem_transition", "1-Mem"),
        ("two_mem", "2-Mem"),
    ],
)
def test_a_close_predictor_names_the_phase(name: str, phase: str) -> None:
    found = nearest_phase(FAR | {name: 0.005}, FAR | {name: 0.02})
    assert (found.nearest, found.name, found.mixed) == (name, phase, False)
    assert found.distance == 0.005
    assert found.margin == pytest.approx(30.0)  # 0.3 over the root of 0.005 * 0.02


def test_both_sets_decide() -> None:
    train = FAR | {"one_gen": 0.010, "one_mem_stationary": 0.009}
    new = FAR | {"one_gen": 0.010, "one_mem_stationary": 0.090}
    assert nearest_phase(train, new).name == "1-Gen"
    assert nearest_phase(train, train).nearest == "one_mem_stationary"


def test_too_far_or_too_close_a_second_is_mixed() -> None:
    assert nearest_phase(FAR | {"two_gen": 0.031}, FAR | {"two_gen": 0.001}).name == "mixed"
    assert nearest_phase(FAR | {"two_gen": 0.029}, FAR | {"two_gen": 0.1}).name == "2-Gen"
    rival = FAR | {"two_gen": 0.010, "two_mem": 0.012}
    found = nearest_phase(rival, rival)
    assert (found.name, found.nearest, found.runner_up) == ("mixed", "two_gen", "two_mem")
    assert found.margin == pytest.approx(1.2)
    assert nearest_phase(rival, rival, clearest=1.1).name == "2-Gen"


def test_memorisers_of_four_chains_are_told_apart_by_ratio() -> None:
    # Off its chains a memoriser is far from every predictor; the sum of both sets would be a tie.
    train = FAR | {"two_mem": 0.008, "one_mem_transition": 0.046}
    new = FAR | {"two_mem": 0.172, "one_mem_transition": 0.158}
    found = nearest_phase(train, new)
    assert (found.name, found.runner_up) == ("2-Mem", "one_mem_transition")


def test_the_two_readouts_of_one_mem_are_no_rivals() -> None:
    both = FAR | {"one_mem_stationary": 0.011, "one_mem_transition": 0.010}
    found = nearest_phase(both, both)
    assert found.name == "1-Mem"
    assert found.runner_up in {"one_gen", "two_gen", "two_mem"}


def test_fresh_chains_leave_two_candidates() -> None:
    found = nearest_phase({"one_gen": 0.2, "two_gen": 0.0}, {"one_gen": 0.2, "two_gen": 0.0})
    assert (found.name, found.runner_up, found.margin) == ("2-Gen", "one_gen", math.inf)


def test_transience_index_changes_sign_where_two_mem_takes_over() -> None:
    assert transience_index(0.02, 0.2) == pytest.approx(-math.log(10))
    assert transience_index(0.2, 0.02) == pytest.approx(math.log(10))
    assert math.isfinite(transience_index(0.1, 0.0))
