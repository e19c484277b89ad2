import torch

from analyses.groups.outcomes import group_outcomes
from mechinterp.config import MarginalsConfig
from mechinterp.runs import Run
from mechinterp.tasks import make_task
from mechinterp.tasks.marginals_diagnostics import group_correct


class _Hashed:
    """Logits that depend on the prefix alone, as arbitrary as a hash; counts the rows it is given.

    `knows` adds what a model would that has learned some of the answers.
    """

    def __init__(self, task, knows=0.0):
        self.rows, self.task, self.knows = 0, task, knows
        self.weights = torch.randn(16, generator=torch.Generator().manual_seed(0)).double()

    def __call__(self, tokens):
        self.rows += len(tokens)
        phase = (tokens.double() * self.weights[: tokens.shape[1]]).cumsum(-1) * 37.0
        logits = torch.sin(phase[..., None] * torch.arange(1, self.task.d_vocab + 1))
        own = self.task.groups(self.task.config.n_b).flatten(0, 1)
        decide = self.task.scored[0]
        for row, shown in enumerate(tokens[:, : decide + 1]):
            match = (own[:, : decide + 1] == shown).all(1).nonzero()[0, 0]
            if match % 3:
                logits[row, decide, own[match, decide + 1]] += self.knows
        return logits


def test_it_gives_what_scoring_every_candidate_gives():
    task = make_task(MarginalsConfig(k=6, n_b=9))
    for knows in (0.0, 3.0, 30.0):
        slow, fast = _Hashed(task, knows), _Hashed(task, knows)
        expected = group_correct(slow, task, 9)
        assert torch.equal(group_outcomes(fast, task, 9), expected)
        assert fast.rows < slow.rows
        assert 0.0 < expected.double().mean() < 1.0


def test_a_model_that_knows_is_asked_about_once_for_each_member():
    task = make_task(MarginalsConfig(k=6, n_b=9))
    model = _Hashed(task, knows=30.0)
    correct = group_outcomes(model, task, 9)
    known = 54 - 18
    assert correct.sum() >= known
    assert model.rows <= 54 + 18 * 5


def test_prefixes_that_repeat_are_no_obstacle():
    task = make_task(MarginalsConfig(k=6, n_b=9, distinct_prefix=0))
    model = _Hashed(task)
    assert torch.equal(group_outcomes(model, task, 9), group_correct(model, task, 9))


def test_ties_go_to_the_first_slot():
    task = make_task(MarginalsConfig(k=4, n_b=5))

    def flat(tokens):
        return torch.zeros(*tokens.shape, task.d_vocab)

    correct = group_outcomes(flat, task, 5)
    assert torch.equal(correct, group_correct(flat, task, 5))
    assert correct[:, 0].all()
    assert not correct[:, 1:].any()


def test_a_trained_model_over_its_checkpoints(tiny_runs):
    run = Run.open("lookup-12", tiny_runs)
    for step in (0, 24, 120):
        model = run.model(step).eval()
        assert torch.equal(
            group_outcomes(model, run.task(), 12), group_correct(model, run.task(), 12)
        )
