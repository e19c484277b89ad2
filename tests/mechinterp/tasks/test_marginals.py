"""Sequences of the marginals task: layouts, epochs, noise, the marginal control, and pairs."""

import hashlib
import time
from typing import Any

import pytest
import torch

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_layout import BOS, EOS, SEP

SMALL: dict[str, Any] = {"k": 3, "n_b": 7}


def task_of(**changes: Any) -> Marginals:
    return Marginals(MarginalsConfig(**(SMALL | changes)))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(tokens: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row) for row in tokens.tolist()]


def expected_rows(task: Marginals) -> list[tuple[int, ...]]:
    """Writes every sequence out by hand, from the table."""
    table, written = task.table, []
    for i, b in enumerate(table.b.tolist()):
        for z, a in zip(table.z[i].tolist(), table.a[i].tolist(), strict=True):
            middle = {
                "bz_to_a": [*b, SEP, *z, SEP, *a],
                "az_to_b": [*a, SEP, *z, SEP, *b],
                "b_to_a": [*b, SEP, *a],
                "a_to_b": [*a, SEP, *b],
            }[task.config.variant]
            written.append((BOS, *middle, EOS))
    return written


@pytest.mark.parametrize("variant", ["bz_to_a", "az_to_b", "b_to_a", "a_to_b"])
def test_every_sequence_is_laid_out_as_written_by_hand(variant):
    task = task_of(variant=variant)
    assert sorted(rows(task.evaluation(21))) == sorted(expected_rows(task))
    assert task.evaluation(5).equal(task.evaluation(21)[:5])


@pytest.mark.parametrize(
    ("variant", "n_tokens", "scored", "positions"),
    [
        ("bz_to_a", 16, range(10, 15), {"B": range(1, 7), "z": (8, 9), "A": range(11, 15)}),
        ("az_to_b", 16, range(8, 15), {"A": range(1, 5), "z": (6, 7), "B": range(9, 15)}),
        ("b_to_a", 13, range(7, 12), {"B": range(1, 7), "A": range(8, 12)}),
        ("a_to_b", 13, range(5, 12), {"A": range(1, 5), "B": range(6, 12)}),
    ],
)
def test_positions(variant, n_tokens, scored, positions):
    task = task_of(variant=variant)
    groups = task.positions
    assert task.n_tokens == n_tokens
    assert task.scored == tuple(scored)
    assert {name: groups[name] for name in positions} == {
        name: tuple(span) for name, span in positions.items()
    }
    tokens = task.evaluation(4)
    assert (tokens[:, list(groups["SEP"])] == SEP).all()
    assert int((tokens == SEP).sum()) == 4 * len(groups["SEP"])
    assert groups["BOS"] == (0,)
    assert groups["decide"] == groups["SEP"][-1:] == task.scored[:1]
    assert groups["first_sep"] == groups["SEP"][:1]
    # What a model reads ends before EOS; every position in it belongs to a string, BOS or SEP.
    read = [p for name in ("BOS", "SEP", "B", "z", "A") for p in groups.get(name, ())]
    assert sorted(read) == list(range(n_tokens - 1))
    assert task.d_vocab == 40


def test_a_longer_selector_moves_everything_after_it():
    task = task_of(z_sharing="private", z_length=3)
    assert task.n_tokens == 17
    assert task.positions["z"] == (8, 9, 10)
    assert task.scored == (11, 12, 13, 14, 15)


@pytest.mark.parametrize("size", [1, 4, 21, 50])
def test_each_epoch_holds_every_example_once(size):
    task, generator = task_of(), seeded()
    n_steps = -(-42 // size)
    stream = torch.cat([task.batch(step, size, generator) for step in range(n_steps)])
    first, second = rows(stream[:21]), rows(stream[21:42])
    assert sorted(first) == sorted(second) == sorted(expected_rows(task))
    assert first != second


def test_a_batch_depends_on_seed_and_step_alone():
    task = task_of(label_noise=0.5, random_z_until=5)
    used = seeded(3)
    torch.rand(100, generator=used)
    for step in (7, 2, 0, 2):
        assert task.batch(step, 8, used).equal(task.batch(step, 8, seeded(3)))
    assert not task.batch(2, 8, used).equal(task.batch(2, 8, seeded(4)))


def test_nothing_touches_the_global_generator():
    task, state = task_of(label_noise=0.5, random_z_until=5), torch.get_rng_state()
    task.batch(0, 8, seeded())
    task.evaluation(8)
    task.groups(2)
    task.pairs(8, seeded())
    assert torch.get_rng_state().equal(state)


def test_a_returned_batch_is_the_callers_own():
    task = task_of()
    task.batch(0, 21, seeded()).zero_()
    task.evaluation(21).zero_()
    task.groups(7).zero_()
    task.pairs(21, seeded()).clean.zero_()
    assert sorted(rows(task.evaluation(21))) == sorted(expected_rows(task))


def lookup(task: Marginals) -> dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]:
    return {(row[1:7], row[8:10]): row[11:15] for row in expected_rows(task)}


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_label_noise_gives_another_answer_of_the_same_fibre(noise):
    task = task_of(k=5, label_noise=noise)
    truth = lookup(task)
    fibres: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for (b, _), answer in truth.items():
        fibres.setdefault(b, set()).add(answer)
    wrong, n = 0, 3500
    for row in rows(task.batch(0, n, seeded())):
        assert row[11:15] in fibres[row[1:7]]
        wrong += row[11:15] != truth[row[1:7], row[8:10]]
    # Standard deviation of the share at 0.3 is 0.008.
    assert wrong / n == pytest.approx(noise, abs=0.035 if 0 < noise < 1 else 0)


def test_label_noise_reaches_neither_evaluation_nor_pairs():
    noisy, clean = task_of(label_noise=1.0), task_of()
    assert noisy.evaluation(21).equal(clean.evaluation(21))
    assert noisy.groups(7).equal(clean.groups(7))
    assert noisy.pairs(9, seeded()).corrupt.equal(clean.pairs(9, seeded()).corrupt)


def test_selectors_are_random_until_the_given_step():
    control, real = task_of(k=4, random_z_until=3), task_of(k=4)
    truth, own = lookup(real), {row[8:10] for row in expected_rows(real)}
    n, generator = 2800, seeded()
    tokens = control.batch(2, n, generator)
    assert {row[8:10] for row in rows(tokens)} == own
    agree = [row[11:15] == truth[row[1:7], row[8:10]] for row in rows(tokens)]
    # The selector carries nothing: 1/k agree by chance, standard deviation 0.008.
    assert sum(agree) / n == pytest.approx(1 / 4, abs=0.035)
    # Only z differs from the batch without the control, and nothing from the given step on.
    plain = real.batch(2, n, generator)
    assert torch.cat([tokens[:, :8], tokens[:, 10:]], 1).equal(
        torch.cat([plain[:, :8], plain[:, 10:]], 1)
    )
    assert control.batch(3, n, generator).equal(real.batch(3, n, generator))
    assert control.evaluation(9).equal(real.evaluation(9))


def test_private_selectors_are_randomised_inside_their_own_set():
    task = task_of(z_sharing="private", random_z_until=1)
    truth = lookup(task)
    tokens = task.batch(0, 210, seeded())
    assert all((row[1:7], row[8:10]) in truth for row in rows(tokens))
    assert not tokens.equal(task_of(z_sharing="private").batch(0, 210, seeded()))


@pytest.mark.parametrize("sharing", ["shared", "private"])
def test_pairs_share_b_and_differ_in_selector_and_answer(sharing):
    task = task_of(z_sharing=sharing)
    truth, pairs = lookup(task), task.pairs(21, seeded())
    assert len(set(rows(pairs.clean))) == 21
    for clean, corrupt in zip(rows(pairs.clean), rows(pairs.corrupt), strict=True):
        assert clean[:8] == corrupt[:8]
        assert clean[8:10] != corrupt[8:10]
        assert truth[clean[1:7], clean[8:10]] == clean[11:15]
        assert truth[corrupt[1:7], corrupt[8:10]] == corrupt[11:15]
        assert clean[11] != corrupt[11]


@pytest.mark.parametrize("variant", ["az_to_b", "b_to_a", "a_to_b"])
def test_pairs_of_other_variants_are_of_another_b_in_the_same_slot(variant):
    task = task_of(variant=variant)
    written = expected_rows(task)
    pairs = task.pairs(21, seeded())
    for clean, corrupt in zip(rows(pairs.clean), rows(pairs.corrupt), strict=True):
        i, j = written.index(clean), written.index(corrupt)
        assert i % 3 == j % 3
        assert i // 3 != j // 3


def test_pairs_reach_every_partner():
    task = task_of(k=4, n_b=2)
    generator = seeded()
    seen = set()
    for _ in range(60):
        pairs = task.pairs(8, generator)
        seen |= set(zip(rows(pairs.clean), rows(pairs.corrupt), strict=True))
    assert len(seen) == 8 * 3


def test_groups_are_whole_fibres():
    task = task_of()
    groups = task.groups(7)
    assert groups.shape == (7, 3, 16)
    assert sorted(rows(groups.flatten(0, 1))) == sorted(expected_rows(task))
    for group in groups.tolist():
        assert len({tuple(row[1:7]) for row in group}) == 1
    assert task.groups(2).equal(groups[:2])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: task_of().evaluation(22),
            "22 evaluation sequences asked for, but k=3 and n_b=7 give 21: choose from 1 to 21",
        ),
        (
            lambda: task_of().groups(0),
            "0 groups asked for, but k=3 and n_b=7 give 7: choose from 1 to 7",
        ),
        (
            lambda: task_of().pairs(22, seeded()),
            "22 pairs asked for, but k=3 and n_b=7 give 21: choose from 1 to 21",
        ),
        (
            lambda: task_of(k=1).pairs(2, seeded()),
            "k=1: a corrupted partner needs another selector of the same B; use k>=2",
        ),
        (
            lambda: task_of(n_b=1, variant="a_to_b").pairs(2, seeded()),
            "n_b=1: a corrupted partner needs another B; use n_b>=2",
        ),
        (
            lambda: task_of().batch(-1, 8, seeded()),
            "step=-1, batch size=8: use a step >= 0 and a size >= 1",
        ),
        (
            lambda: task_of().batch(0, 0, seeded()),
            "step=0, batch size=0: use a step >= 0 and a size >= 1",
        ),
    ],
)
def test_refusals(ask, message):
    with pytest.raises(InputError) as refusal:
        ask()
    assert str(refusal.value) == message


def test_a_batch_costs_well_under_a_millisecond():
    task = Marginals(MarginalsConfig(label_noise=0.1, random_z_until=10**6))
    generator, seconds = seeded(), []
    for step in range(100):
        start = time.thread_time()
        task.batch(step, 128, generator)
        seconds.append(time.thread_time() - start)
    # Processor time, and the quickest of many: what it costs when nothing else runs.
    assert min(seconds) < 1e-3


def test_the_default_batches_have_not_drifted():
    # A run resumed by a later version must see what it would have seen.
    task, generator = Marginals(MarginalsConfig()), seeded()
    batches = b"".join(task.batch(step, 128, generator).numpy().tobytes() for step in (0, 1, 157))
    assert hashlib.sha256(batches).hexdigest().startswith("1ddb83ab987d63c040de4ca4")
