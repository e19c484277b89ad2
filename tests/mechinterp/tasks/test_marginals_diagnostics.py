"""Diagnostics against models that know a stated part of the task, and against plain loops."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from circuits.ablated_model import ablated
from circuits.errors import InputError
from circuits.side_by_side import side_by_side as true
from mechinterp.config import MarginalsConfig, ModelConfig
from mechinterp.model import build_model
from mechinterp.tasks import marginals_diagnostics as module
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_diagnostics import (
    candidate_log_probs,
    diagnostics,
    group_correct,
    z_gap,
)
from mechinterp.tasks.marginals_fibres import (
    answer_slot,
    b_index,
    candidates,
    with_wrong_selector,
)
from mechinterp.tasks.marginals_layout import EOS
from mechinterp.tasks.marginals_reference import reference_lines

EPSILON = 1e-3
Row = tuple[int, ...]


def task_of(**changes: Any) -> Marginals:
    return Marginals(MarginalsConfig(**{"k": 5, "n_b": 8, **changes}))


def rows(tokens: torch.Tensor) -> list[Row]:
    return [tuple(row) for row in tokens.tolist()]


def fibres_of(task: Marginals) -> dict[Row, dict[Row, Row]]:
    """Writes the table as B -> z -> A."""
    table = task.table
    return {
        b: dict(zip(rows(z), rows(a), strict=True))
        for b, z, a in zip(rows(table.b), table.z, table.a, strict=True)
    }


def model_of(task: Marginals, next_token: Callable[[Row], list[float]]):
    """Makes a model from a function that gives probabilities after a prefix."""

    def model(tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, task.d_vocab, dtype=torch.float64)
        for i, row in enumerate(rows(tokens)):
            for position in task.scored:
                logits[i, position] = torch.tensor(next_token(row[: position + 1])).log()
        return logits

    return model


def spread(allowed: list[int]) -> list[float]:
    return [allowed.count(token) / len(allowed) for token in range(40)]


def ignorant_model(task: Marginals):
    """Knows the alphabet and where EOS stands."""
    characters = list(range(4, 40))
    last = task.n_tokens - 1
    return model_of(task, lambda prefix: spread([EOS] if len(prefix) == last else characters))


def marginal_model(task: Marginals):
    """Knows P(A | B) and ignores z."""
    fibres, start = fibres_of(task), task.layout.spans["A"][0]

    def next_token(prefix: Row) -> list[float]:
        begun = prefix[start:]
        rest = [
            (*a, EOS)[len(begun)] for a in fibres[prefix[1:7]].values() if a[: len(begun)] == begun
        ]
        return spread(rest)

    return model_of(task, next_token)


def knowing_model(task: Marginals, known: Callable[[Row, Row], bool] = lambda b, z: True):
    """Looks the answer up where it is known, and is sure of a wrong one elsewhere."""
    fibres, start = fibres_of(task), task.layout.spans["A"][0]

    def next_token(prefix: Row) -> list[float]:
        b, z = prefix[1:7], prefix[8:10]
        answers = list(fibres[b].values())
        slot = answers.index(fibres[b][z]) + (0 if known(b, z) else 1)
        right = (*answers[slot % len(answers)], EOS)[len(prefix) - start]
        return [1 - EPSILON if token == right else EPSILON / 39 for token in range(40)]

    return model_of(task, next_token)


def random_model(seed: int = 0):
    """A causal model that means nothing: every logit depends on all tokens up to its own."""
    draw = torch.Generator().manual_seed(seed)
    embed, scale, unembed = (
        torch.randn(*shape, dtype=torch.float64, generator=draw)
        for shape in ((40, 12), (20, 12), (12, 40))
    )

    def model(tokens: torch.Tensor) -> torch.Tensor:
        return 3 * (embed[tokens] * scale[: tokens.shape[1]]).cumsum(1).sin() @ unembed

    return model


def log_prob(model, row: Row, positions: range) -> float:
    """Sums the log-probabilities of a sequence's tokens, one token and one call at a time."""
    total = 0.0
    for position in positions:
        logits = model(torch.tensor([row[:position]]))[0, -1].tolist()
        total += logits[row[position]] - math.log(sum(math.exp(x) for x in logits))
    return total


def values(measures) -> dict[str, float]:
    return {name: measure.value for name, measure in measures.items()}


def test_a_model_that_knows_nothing():
    task = task_of()
    found = values(diagnostics(ignorant_model(task), task, 40, "full"))
    lines = reference_lines(task)
    assert found["first_token_ce"] == pytest.approx(math.log(36)) == lines["ln_36"]
    assert found["target_ce"] == pytest.approx(0.8 * math.log(36)) == lines["ignorant_target_ce"]
    assert found["candidate_mass"] == pytest.approx(5 / 36) == lines["ignorant_candidate_mass"]
    assert found["candidate_loss"] == pytest.approx(math.log(5)) == lines["ln_k"]
    # All candidates tie; the first one counts, which is right for one in k.
    assert found["group_mean_accuracy"] == pytest.approx(0.2) == lines["chance_candidate_accuracy"]
    assert found["z_gap"] == found["target_accuracy"] == found["group_accuracy"] == 0


def test_a_model_that_knows_the_marginal():
    task = task_of()
    found = values(diagnostics(marginal_model(task), task, 40))
    lines = reference_lines(task)
    assert found["first_token_ce"] == pytest.approx(math.log(5)) == lines["marginal_first_token_ce"]
    assert found["target_ce"] == pytest.approx(math.log(5) / 5) == lines["marginal_target_ce"]
    assert found["candidate_mass"] == pytest.approx(1)
    assert found["candidate_loss"] == pytest.approx(math.log(5))
    assert found["z_gap"] == 0


def test_a_model_that_knows_the_table():
    task = task_of()
    found = values(diagnostics(knowing_model(task), task, 40, "full"))
    right, wrong = math.log(1 - EPSILON), math.log(EPSILON / 39)
    assert found["first_token_ce"] == pytest.approx(found["target_ce"]) == pytest.approx(-right)
    assert found["candidate_mass"] == pytest.approx(1 - EPSILON + 4 * EPSILON / 39)
    # With the wrong selector the model is as sure of another first character.
    assert found["z_gap"] == pytest.approx(right - wrong)
    assert 0 < found["candidate_loss"] < 1e-4
    for name in ("target_accuracy", "candidate_accuracy", "group_accuracy", "groups_80"):
        assert found[name] == 1


def test_groups_are_counted_whole():
    task = task_of()
    order = {tuple(group[0][1:7]): i for i, group in enumerate(task.groups(8).tolist())}
    slots = {z: j for j, z in enumerate(rows(task.table.z[0]))}
    # The first two groups have all five right, the next three four, the last three three.
    n_known = [5, 5, 4, 4, 4, 3, 3, 3]
    model = knowing_model(task, lambda b, z: slots[z] < n_known[order[b]])
    assert group_correct(model, task, 8).sum(1).tolist() == n_known
    found = diagnostics(model, task, 40, "full")
    assert found["group_accuracy"].value == 2 / 8
    assert found["groups_80"].value == 5 / 8
    assert found["group_mean_accuracy"].value == pytest.approx(31 / 40)
    shares = torch.tensor(n_known) / 5
    assert found["group_mean_accuracy"].se == pytest.approx(float(shares.std()) / 8**0.5)
    assert found["candidate_accuracy"].value == pytest.approx(31 / 40)
    # A part of the evaluation set has as many groups as it needs to hold its examples.
    assert diagnostics(model, task, 11, "full")["group_accuracy"].value == pytest.approx(2 / 3)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("variant", ["bz_to_a", "b_to_a"])
def test_candidates_and_mass_agree_with_plain_loops(variant, prefix):
    task, model = task_of(variant=variant, distinct_prefix=prefix, k=6), random_model()
    fibres, start = fibres_of(task), task.layout.spans["A"][0]
    answer = range(start, start + 5)
    tokens = task.evaluation(9)
    scores = candidate_log_probs(model, task, tokens)
    losses, correct, mass, first = [], [], [], []
    for row, given in zip(rows(tokens), scores.tolist(), strict=True):
        members = list(fibres[row[1:7]].values())
        by_hand = [log_prob(model, (*row[:start], *a, EOS), answer) for a in members]
        assert given == pytest.approx(by_hand)
        right = members.index(row[start:-1])
        losses.append(math.log(sum(map(math.exp, by_hand))) - by_hand[right])
        correct.append(max(by_hand) == by_hand[right])
        starts = {a[0] for a in members}
        mass.append(sum(math.exp(log_prob(model, (*row[:start], c), answer[:1])) for c in starts))
        first.append(-log_prob(model, row, answer[:1]))
    found = values(diagnostics(model, task, 9))
    assert found["candidate_loss"] == pytest.approx(sum(losses) / 9)
    assert found["candidate_mass"] == pytest.approx(sum(mass) / 9)
    assert found["first_token_ce"] == pytest.approx(sum(first) / 9)
    if variant == "bz_to_a":
        assert found["candidate_accuracy"] == pytest.approx(sum(correct) / 9)


@pytest.mark.parametrize("variant", ["bz_to_a", "az_to_b"])
def test_losses_and_z_gap_agree_with_plain_loops(variant):
    task, model = task_of(variant=variant, z_sharing="private"), random_model(1)
    tokens = task.evaluation(12)
    answer = range(task.scored[0] + 1, task.n_tokens)
    wrong = rows(with_wrong_selector(task, tokens))
    whole = [-log_prob(model, row, answer) / len(answer) for row in rows(tokens)]
    gaps = [
        log_prob(model, row, answer[:1]) - log_prob(model, other, answer[:1])
        for row, other in zip(rows(tokens), wrong, strict=True)
    ]
    assert z_gap(model, task, tokens).tolist() == pytest.approx(gaps)
    found = diagnostics(model, task, 12)
    assert found["target_ce"].value == pytest.approx(sum(whole) / 12)
    assert found["target_ce"].se == pytest.approx(float(torch.tensor(whole).std()) / 12**0.5)
    assert found["z_gap"].value == pytest.approx(sum(gaps) / 12)


def test_target_accuracy_asks_for_every_character_but_not_for_eos():
    task = task_of()
    right = knowing_model(task)

    def broken(position: int):
        def model(tokens: torch.Tensor) -> torch.Tensor:
            logits = right(tokens)
            logits[: len(tokens) // 2, position] = 0
            logits[: len(tokens) // 2, position, 0] = 1
            return logits

        return model

    assert diagnostics(broken(14), task, 40)["target_accuracy"].value == 1
    for position in (10, 13):
        assert diagnostics(broken(position), task, 40)["target_accuracy"].value < 1


@pytest.mark.parametrize("sharing", ["shared", "private", "supergroup"])
@pytest.mark.parametrize("k", [2, 5])
def test_no_row_is_shown_its_own_selector(sharing, k):
    task = task_of(k=k, z_sharing=sharing, supergroups=3 if sharing == "supergroup" else 1)
    fibres = fibres_of(task)
    tokens = task.evaluation(8 * k)
    wrong = with_wrong_selector(task, tokens)
    for row, other in zip(rows(tokens), rows(wrong), strict=True):
        assert other[8:10] != row[8:10]
        assert other[8:10] in fibres[row[1:7]]
        assert (*other[:8], *other[10:]) == (*row[:8], *row[10:])
    # Neither the rest of the batch nor an earlier call matters.
    assert with_wrong_selector(task, tokens[3:5]).equal(wrong[3:5])
    if k == 5:
        shift = {
            (list(fibres[r[1:7]]).index(o[8:10]) - list(fibres[r[1:7]]).index(r[8:10])) % 5
            for r, o in zip(rows(tokens), rows(wrong), strict=True)
        }
        assert shift == {1, 2, 3, 4}


def test_the_wrong_selector_is_not_the_one_shown_by_a_noisy_sequence():
    task = task_of(label_noise=1.0)
    tokens = task.batch(0, 200, torch.Generator().manual_seed(0))
    wrong = with_wrong_selector(task, tokens)
    assert (wrong[:, 8:10] != tokens[:, 8:10]).any(1).all()


def test_each_different_sequence_is_run_once_and_in_bounded_pieces(monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    ran: list[Row] = []

    def counting(tokens: torch.Tensor) -> torch.Tensor:
        assert len(tokens) <= 7
        assert not torch.is_grad_enabled()
        ran.extend(rows(tokens))
        return random_model()(tokens)

    task, plain = task_of(), task_of(variant="b_to_a")
    measured = diagnostics(counting, task, 12)
    # The right candidate is the clean sequence itself, and examples of one B share more.
    assert len(ran) == len(set(ran)) <= 12 * (5 + 1)
    tokens, fibres = task.evaluation(12), fibres_of(task)
    needed = {(*row[:11], *a) for row in rows(tokens) for a in fibres[row[1:7]].values()}
    assert set(ran) == needed | {row[:-1] for row in rows(with_wrong_selector(task, tokens))}
    assert {len(row) for row in ran} == {15}
    ran.clear()
    diagnostics(counting, plain, 40)
    assert len(ran) == 8 * 5
    monkeypatch.undo()
    again = diagnostics(random_model(), task, 12)
    assert values(again) == pytest.approx(values(measured), rel=1e-12)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("hooks", ["none", "an ablation's", "the user's"])
def test_blocks_run_at_once_only_where_no_hook_is_shared(hooks, monkeypatch, two_threads):
    """Each case against one block at a time; hooks that two threads share would mix them up."""
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    task = task_of(k=3, n_b=6)
    model = build_model(ModelConfig(n_layers=2, n_heads=2, d_model=8, n_ctx=16), task.d_vocab)
    asked = ablated(model, "L0H1") if hooks == "an ablation's" else model
    if hooks == "the user's":
        model.add_hook("blocks.0.attn.hook_z", lambda tensor, hook: 0.5 * tensor)
    seen = []
    monkeypatch.setattr(module, "side_by_side", lambda *given: seen.append(given) or true(*given))
    found = values(diagnostics(asked, task, 18, "full"))
    assert {workers for _, _, workers in seen} == {2 if hooks == "none" else 1}
    torch.set_num_threads(1)
    assert found == pytest.approx(values(diagnostics(asked, task, 18, "full")), abs=1e-12)
    assert found["target_ce"] != values(diagnostics(random_model(), task, 18))["target_ce"]


def test_repeated_measurements_agree_and_leave_the_global_generator_alone():
    task, model = task_of(), random_model()
    state = torch.get_rng_state()
    first = task.diagnostics(model, 20, "full")
    assert task.diagnostics(model, 20, "full") == first
    assert torch.get_rng_state().equal(state)


def test_low_precision_models_are_scored_in_double():
    task, model = task_of(), random_model()
    rough = diagnostics(lambda tokens: model(tokens).bfloat16(), task, 20)
    exact = diagnostics(model, task, 20)
    assert rough["target_ce"].value == pytest.approx(exact["target_ce"].value, rel=0.02)
    assert rough["target_ce"].value != exact["target_ce"].value


ALWAYS = {"first_token_ce", "target_ce", "target_accuracy"}
GROUPS = {"group_mean_accuracy", "group_accuracy", "groups_80", "group_candidate_loss"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"candidate_mass", "candidate_loss", "candidate_accuracy", "z_gap"} | GROUPS),
        ({"k": 1}, {"candidate_mass"}),
        ({"variant": "b_to_a"}, {"candidate_mass", "candidate_loss"}),
        ({"variant": "az_to_b"}, {"z_gap"}),
        ({"variant": "az_to_b", "k": 1}, set()),
        ({"variant": "a_to_b"}, set()),
    ],
)
def test_measures_that_make_no_sense_are_left_out(changes, names):
    task = task_of(**changes)
    full = task.diagnostics(random_model(), 8, "full")
    assert set(full) == ALWAYS | names
    quick = task.diagnostics(random_model(), 8)
    assert set(quick) == (ALWAYS | names) - GROUPS
    assert {name: full[name] for name in quick} == quick


def test_reference_lines_of_the_paper_scale():
    lines = Marginals(MarginalsConfig()).reference_lines()
    # Worked out by hand for k = 20.
    assert lines["ln_k"] == pytest.approx(2.9957, abs=1e-4)
    assert lines["ln_36"] == pytest.approx(3.5835, abs=1e-4)
    assert lines["ignorant_target_ce"] == pytest.approx(2.867, abs=1e-3)
    assert lines["first_character_target_ce"] == pytest.approx(2.75, abs=5e-3)
    assert lines["marginal_target_ce"] == pytest.approx(0.599, abs=1e-3)
    assert lines["ignorant_candidate_mass"] == pytest.approx(20 / 36)
    assert lines["chance_candidate_accuracy"] == 0.05


def test_reference_lines_follow_the_table_where_first_characters_repeat():
    task = task_of(distinct_prefix=0, k=12, n_b=6)
    lines, found = reference_lines(task), values(diagnostics(marginal_model(task), task, 72))
    assert lines["marginal_first_token_ce"] < math.log(12) - 0.01
    assert found["first_token_ce"] == pytest.approx(lines["marginal_first_token_ce"])
    assert found["target_ce"] == pytest.approx(lines["marginal_target_ce"])
    ignorant = values(diagnostics(ignorant_model(task), task, 72))
    assert ignorant["candidate_mass"] == pytest.approx(lines["ignorant_candidate_mass"])
    assert lines["ignorant_candidate_mass"] < 12 / 36


def test_reference_lines_without_candidates():
    lines = reference_lines(task_of(variant="a_to_b"))
    assert lines == {
        "ln_36": math.log(36),
        "ignorant_target_ce": pytest.approx(6 / 7 * math.log(36)),
    }


@pytest.mark.parametrize("variant", ["bz_to_a", "az_to_b", "b_to_a", "a_to_b"])
def test_sequences_are_found_in_the_table(variant):
    task = task_of(variant=variant)
    tokens = task.groups(8).flatten(0, 1)
    b = b_index(task, tokens)
    assert task.table.b[b].equal(tokens[:, list(task.positions["B"])])
    assert answer_slot(task, tokens).tolist() == [0, 1, 2, 3, 4] * 8


def changed(tokens: torch.Tensor, position: int) -> torch.Tensor:
    other = tokens.clone()
    other[1, position] = 4 + (other[1, position] - 3) % 36
    return other


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: candidates(task_of(variant="a_to_b"), task_of(variant="a_to_b").evaluation(2)),
            "variant='a_to_b' has one answer, not k candidates: candidates need bz_to_a or b_to_a",
        ),
        (
            lambda: group_correct(random_model(), task_of(variant="az_to_b"), 2),
            "variant='az_to_b' has one answer, not k candidates: candidates need bz_to_a or b_to_a",
        ),
        (
            lambda: z_gap(random_model(), task_of(k=1), task_of(k=1).evaluation(2)),
            "variant='bz_to_a' with k=1 has no other selector to show: use bz_to_a or az_to_b "
            "with k >= 2",
        ),
        (
            lambda: b_index(task_of(), changed(task_of().evaluation(3), 2)),
            "the B string of sequence 1 is not in the table (mapping_seed=42): use sequences of "
            "this task",
        ),
        (
            lambda: answer_slot(task_of(), changed(task_of().evaluation(3), 12)),
            "the A string of sequence 1 is not in the fibre of its B (mapping_seed=42): use "
            "sequences of this task",
        ),
        (
            lambda: task_of().diagnostics(random_model(), 41),
            "41 evaluation sequences asked for, but k=5 and n_b=8 give 40: choose from 1 to 40",
        ),
    ],
)
def test_refusals(ask, message):
    with pytest.raises(InputError) as refusal:
        ask()
    assert str(refusal.value) == message
