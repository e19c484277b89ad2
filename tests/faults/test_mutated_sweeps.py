"""Damaged descriptions of sweeps: each is planned, or refused in one line."""

import random

from mechinterp.sweep.planning import planned
from mechinterp.sweep.spec import read_spec
from tests.faults.mutating import ODD, mutate_bytes, withstanding

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
