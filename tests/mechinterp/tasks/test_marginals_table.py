"""The table: all strings differ where they must, and every set is equally likely."""

import hashlib
import itertools
from collections import Counter

import pytest
import torch

from mechinterp.config import MarginalsConfig
from mechinterp.tasks import marginals_table as module
from mechinterp.tasks.marginals_table import (
    characters,
    codes_of,
    marginals_table,
    prefix_sets,
    unique_codes,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def strings(tokens: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row) for row in tokens.reshape(-1, tokens.shape[-1]).tolist()]


def test_characters_are_digits_in_base_36():
    # 1 * 36^2 + 2 * 36 + 35, and ids start at 4.
    assert characters(torch.tensor([1403]), 3).tolist() == [[5, 6, 39]]
    codes = torch.tensor([[0, 36**6 - 1], [46656, 7]])
    assert codes_of(characters(codes, 6)).equal(codes)


@pytest.mark.parametrize(("space", "n"), [(50, 50), (10, 3), (36**6, 1000), (1000, 200)])
def test_unique_codes_differ_and_stay_in_their_space(monkeypatch, space, n):
    # The last two take the rejection route; the very last meets many duplicates on it.
    monkeypatch.setattr(module, "_SHUFFLE_WHOLE_SPACE", 100)
    codes = unique_codes(n, space, seeded()).tolist()
    assert len(set(codes)) == len(codes) == n
    assert min(codes) >= 0
    assert max(codes) < space


def test_rejection_draws_ordered_pairs_uniformly(monkeypatch):
    monkeypatch.setattr(module, "_SHUFFLE_WHOLE_SPACE", 0)
    generator = seeded()
    drawn = Counter(tuple(unique_codes(2, 8, generator).tolist()) for _ in range(1120))
    assert set(drawn) == set(itertools.permutations(range(8), 2))
    # 20 expected each, standard deviation 4.4.
    assert max(abs(count - 20) for count in drawn.values()) < 20


def test_every_prefix_set_is_equally_likely_while_there_is_room():
    member = prefix_sets(12000, 2, 4, 12000, seeded())
    drawn = Counter(tuple(row.nonzero()[:, 0].tolist()) for row in member)
    assert set(drawn) == set(itertools.combinations(range(4), 2))
    # 2000 expected each, standard deviation about 41.
    assert max(abs(count - 2000) for count in drawn.values()) < 180


@pytest.mark.parametrize("n_b", [1, 7, 17, 18])
def test_prefix_sets_keep_to_the_capacity_until_the_alphabet_is_used_up(n_b):
    # 18 rows of 4 from 6 prefixes of capacity 12 use every place.
    for seed in range(20):
        member = prefix_sets(n_b, 4, 6, 12, seeded(seed))
        assert (member.sum(1) == 4).all()
        assert (member.sum(0) <= 12).all()


@pytest.mark.parametrize(
    ("k", "n_b", "prefix"), [(3, 5, 1), (20, 1000, 1), (36, 100, 1), (50, 40, 2), (5, 30, 0)]
)
def test_answers_are_all_different_and_so_are_prefixes_inside_a_fibre(k, n_b, prefix):
    table = marginals_table(MarginalsConfig(k=k, n_b=n_b, distinct_prefix=prefix))
    assert len(set(strings(table.a))) == k * n_b
    assert len(set(strings(table.b))) == n_b
    assert int(table.a.min()) >= 4
    assert int(table.a.max()) < 40
    for fibre in table.a.tolist():
        assert len({tuple(answer[:prefix]) for answer in fibre}) == (k if prefix else 1)


def test_without_the_rule_first_characters_collide():
    # The control of the test above: 20 draws from 36 nearly always repeat one.
    table = marginals_table(MarginalsConfig(k=20, n_b=50, distinct_prefix=0))
    assert min(len(set(fibre)) for fibre in table.a[..., 0].tolist()) < 20


@pytest.mark.parametrize(
    ("k", "n_b", "prefix", "n_characters"), [(36, 3, 1, 36), (4, 9, 1, 6), (27, 4, 2, 6)]
)
def test_a_full_alphabet_is_used_to_the_last_string(monkeypatch, k, n_b, prefix, n_characters):
    # Fewer strings than 36^4 make exhaustion quick: exactly k * n_b answers exist.
    n_answers = k * n_b
    monkeypatch.setattr(module, "N_CHARACTERS", n_characters)
    monkeypatch.setattr(module, "N_ANSWERS", n_answers)
    config = MarginalsConfig(k=k, n_b=n_b, distinct_prefix=prefix)
    codes = module._answers(config, seeded())
    assert sorted(codes.flatten().tolist()) == list(range(n_answers))
    prefixes = codes // (n_answers // n_characters**prefix)
    assert all(len(set(row)) == k for row in prefixes.tolist())


def test_first_characters_are_spread_over_alphabet_and_slots():
    first = marginals_table(MarginalsConfig(k=10, n_b=3600)).a[..., 0]
    for slot in (0, 9):
        counts = torch.bincount(first[:, slot] - 4, minlength=36)
        # 100 expected, standard deviation about 10.
        assert int(counts.min()) > 50
        assert int(counts.max()) < 150


def test_selectors_are_shared_private_or_of_a_supergroup():
    def selectors(**changes):
        config = MarginalsConfig(k=3, n_b=6, **changes)
        return [tuple(strings(row)) for row in marginals_table(config).z]

    shared, private = selectors(), selectors(z_sharing="private")
    grouped = selectors(z_sharing="supergroup", supergroups=2)
    assert len(set(shared)) == 1
    assert len(set(itertools.chain(*private))) == 18
    assert len(set(itertools.chain(*grouped))) == 6
    assert sorted(Counter(grouped).values()) == [3, 3]
    assert selectors(z_sharing="supergroup", supergroups=1) == shared
    assert selectors(z_sharing="supergroup", supergroups=6) == private


def test_table_depends_on_its_seed_and_sizes_alone():
    base = marginals_table(MarginalsConfig(k=4, n_b=9))
    other = marginals_table(MarginalsConfig(k=4, n_b=9, mapping_seed=43))
    kin = marginals_table(MarginalsConfig(k=4, n_b=9, variant="a_to_b", z_sharing="private"))
    assert kin.a.equal(base.a)
    assert kin.b.equal(base.b)
    assert not other.a.equal(base.a)
    assert not other.b.equal(base.b)
    assert not other.z.equal(base.z)


def test_making_a_table_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    marginals_table(MarginalsConfig(k=2, n_b=11, mapping_seed=7))
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(123)
    module.marginals_table.cache_clear()
    again = marginals_table(MarginalsConfig(k=2, n_b=11, mapping_seed=7)).a
    module.marginals_table.cache_clear()
    torch.manual_seed(321)
    assert marginals_table(MarginalsConfig(k=2, n_b=11, mapping_seed=7)).a.equal(again)
    torch.set_rng_state(state)


def test_the_table_of_the_default_seed_has_not_drifted():
    # Saved runs were trained on this table; with another one their weights would mean nothing.
    table = marginals_table(MarginalsConfig())
    parts = (table.b, table.z, table.a)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    spelled = [
        "".join(alphabet[c - 4] for c in row) for row in (p.flatten(0, -2)[0] for p in parts)
    ]
    assert spelled == ["6spvcl", "od", "z8rz"]
    digest = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts))
    assert digest.hexdigest().startswith("896340faca2213033bddeb08")
