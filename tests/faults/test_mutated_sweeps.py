"""Damaged descriptions and outcomes of sweeps: each is read, or refused in one line."""

import random
from dataclasses import asdict

from mechinterp.stopping import StopRule
from mechinterp.sweep.outcome import OUTCOME, Outcome, read_outcome
from mechinterp.sweep.planning import planned
from mechinterp.sweep.spec import read_spec
from tests.faults.mutating import ODD, json_bytes, mutate_bytes, mutate_json, withstanding

SPEC = """
name = "grid"
keep = "window"
after = ["analyses", "plateau", "--run", "{run}"]
[base.task]
name = "marginals"
n_b = 20
[base.training]
steps = 40
[grid]
"task.k" = [2, 3]
[[zip]]
"model.n_layers" = [1, 2]
"model.n_heads" = [2, 4]
[[list]]
"task.k" = 5
"training.lr" = 1e-3
[seeds]
values = [0, 1]
fields = ["model.init_seed", "training.data_seed"]
[stop]
converged = 3
exploded = 4.0
"""
VALUES = ["nan", "inf", "-1", '""', "[]", "{}", "true", "10000000000000000000000", '"../x"']


def mutant(chance: random.Random) -> bytes:
    """A line with another value, another name, twice, or not at all; or bytes changed anywhere."""
    if chance.random() < 0.4:
        return mutate_bytes(SPEC.encode(), chance)
    lines = SPEC.splitlines()
    at = chance.randrange(len(lines))
    name, equals, _ = lines[at].partition("=")
    changes = [
        f"{name}= {chance.choice(VALUES)}" if equals else chance.choice(VALUES),
        f"{str(chance.choice(ODD))!r} {equals} 1",
        lines[at] + "\n" + lines[at],
        "",
        "[" * 2000,
    ]
    lines[at] = chance.choice(changes)
    return "\n".join(lines).encode("utf-8", "surrogateescape" if at % 2 else "replace")


def test_mutated_descriptions_are_planned_or_refused(tmp_path, count):
    path, refused = tmp_path / "grid.toml", 0
    path.write_text(SPEC)
    assert len(planned(read_spec(path))) == 10  # 2 x 2 points and one more, with two seeds
    with withstanding(count) as files:
        for seed in range(600):
            path.write_bytes(mutant(random.Random(seed)))
            refused += files.offer(lambda: planned(read_spec(path)))
    assert 300 < refused < 600


def test_mutated_outcomes_are_read_or_count_as_none(tmp_path, count):
    rule = StopRule(converged=3, exploded=4.0)
    body = asdict(Outcome("converged", 40, "", rule, 1.5, ("analyses plateau --run {run}",)))
    path, none = tmp_path / OUTCOME, 0

    def read() -> None:
        nonlocal none
        found = read_outcome(tmp_path, rule)
        none += found is None
        # What is believed has the promised form, and says that the run ended by this rule.
        assert found is None or (found.stop == rule or found.reason == "budget")
        assert found is None or type(found.step) is int

    with withstanding(count) as files:
        for seed in range(600):
            chance = random.Random(seed)
            whole = json_bytes(body)
            mutated = (
                mutate_bytes(whole, chance) if seed % 2 else json_bytes(mutate_json(body, chance))
            )
            path.write_bytes(mutated)
            assert not files.offer(read)
    assert 300 < none < 600
