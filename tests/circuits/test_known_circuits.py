"""The hand-set models do what they are said to do; else pruning them would prove nothing."""

import math

import pytest
import torch

from circuits.graph import Graph
from tests.circuits.known_circuits import (
    FLOOR,
    KNOWN,
    bigram_head,
    induction_head,
    selector_lookup,
)


def logits_of(known):
    with torch.no_grad():
        return known.model(known.clean)[:, list(known.scored)]


def targets_of(known):
    return known.clean[:, [p + 1 for p in known.scored]]


def test_induction_head_continues_every_sequence():
    known = induction_head()
    assert torch.equal(logits_of(known).argmax(-1), targets_of(known))


def test_induction_head_copies_what_followed_and_nothing_else():
    known = induction_head()
    tokens = torch.tensor([[3, 1, 4, 0, 5, 2, 4, 0]])  # 4 was followed by 0
    with torch.no_grad():
        logits = known.model(tokens)[0, 6]
    assert logits.tolist() == pytest.approx([10, 0, 0, 0, 0, 0], abs=1e-4)


def test_selector_lookup_knows_every_pair():
    known = selector_lookup()
    pairs = {(row[1].item(), row[3].item()) for row in known.clean}
    assert len(pairs) == 12
    assert torch.equal(logits_of(known).argmax(-1), targets_of(known))


def test_selector_lookups_corrupt_batch_changes_the_selector_only():
    known = selector_lookup()
    changed = (known.clean != known.corrupt).any(0).tolist()
    assert changed == [False, False, False, True, False, True]
    assert bool((known.clean[:, 3] != known.corrupt[:, 3]).all())


def test_bigram_head_predicts_by_the_counts_of_its_context():
    known = bigram_head()
    # States 0 1 0 2 0 1 0 after the opening token: 0 was followed by 1 twice and by 2 once.
    tokens = torch.tensor([[4, 0, 1, 0, 2, 0, 1, 0]])
    with torch.no_grad():
        logits = known.model(tokens)[0, -1, :4]

    def interpolated(share, below, above):
        low, high = math.log(below + FLOOR), math.log(above + FLOOR)
        return low + (high - low) * (share - below) / (above - below)

    none = math.log(FLOOR)
    hand_worked = [none, interpolated(2 / 3, 0.5, 1.0), interpolated(1 / 3, 0.25, 0.5), none]
    assert logits.tolist() == pytest.approx(hand_worked, abs=1e-4)


@pytest.mark.parametrize("name", KNOWN)
def test_listed_edges_are_edges_and_form_a_connected_circuit(name):
    known = KNOWN[name]()
    graph = Graph.of(known.model)
    for ablation, edges in known.edges.items():
        assert len(graph.select(edges)) == len(edges), ablation


def test_models_are_the_same_every_time():
    first, second = induction_head(), induction_head()
    assert torch.equal(first.clean, second.clean)
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
