"""Which forward and reverse runs belong together: same table, same model, same training."""

from collections.abc import Sequence

from analyses.directions.times import Role
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, task_name, to_json
from mechinterp.optimizer import scheduled_steps
from mechinterp.runs import Run

VARIANTS: dict[Role, tuple[str, ...]] = {
    "forward": ("az_to_b", "a_to_b"),
    "reverse": ("bz_to_a",),
}
"""Forward: A decides B, so z is redundant or absent. Reverse: B leaves K answers, and z decides."""

MAPPING = ("k", "n_b", "z_sharing", "supergroups", "z_length", "distinct_prefix", "mapping_seed")
"""Settings that decide the table from (B, z) to A."""

_FREE = {
    "task": ("name", "variant"),
    "model": ("init_seed",),
    "training": ("data_seed", "steps", "eval_every", "eval_examples", "forward"),
}
"""Settings in which the two runs of a pair may differ; the seeds make further pairs. The length of
training counts all the same where the learning rate falls with it."""


def check_roles(forward: Sequence[Run], reverse: Sequence[Run]) -> None:
    """Refuses runs that cannot be compared as forward and reverse.

    Raises:
        InputError: a run of another task or variant, a run given twice, forward runs of two
            variants, or a run without a partner of the same mapping, model and training.
    """
    seen = set()
    given: dict[Role, Sequence[Run]] = {"forward": forward, "reverse": reverse}
    for role, runs in given.items():
        if not runs:
            raise InputError(
                f"--{role} names no run; give at least one of variant "
                f"{' or '.join(VARIANTS[role])}: --{role} NAME NAME ..."
            )
        for run in runs:
            _check_variant(run, role)
            if run.path.resolve() in seen:
                raise InputError(f"{run.name} is named twice; a run counts once")
            seen.add(run.path.resolve())
    variants = sorted({run.config.task.variant for run in forward})  # pyright: ignore
    if len(variants) > 1:
        raise InputError(
            f"--forward mixes the variants {' and '.join(variants)}; give runs of one of them"
        )
    for run in forward:
        _check_partner(run, "forward", "reverse", reverse)
    for run in reverse:
        _check_partner(run, "reverse", "forward", forward)


def _check_variant(run: Run, role: Role) -> None:
    config = run.config.task
    if not isinstance(config, MarginalsConfig):
        found = f"the task {task_name(config)}"
    elif config.variant not in VARIANTS[role] or (role == "reverse" and config.k < 2):
        found = f"variant={config.variant}, k={config.k}"
    else:
        return
    least = " and k >= 2" if role == "reverse" else ""
    raise InputError(
        f"--{role} needs runs of the task marginals with variant "
        f"{' or '.join(VARIANTS[role])}{least}, but {run.name} has {found}"
    )


def _check_partner(run: Run, role: Role, other: Role, others: Sequence[Run]) -> None:
    own = shared_settings(run)
    for settings, what in ((MAPPING, "the mapping"), (tuple(own), "all but the variant and seeds")):
        chosen = [name for name in own if name in settings]
        theirs = [{name: shared_settings(one)[name] for name in chosen} for one in others]
        mine = {name: own[name] for name in chosen}
        if mine in theirs:
            continue
        off = [[name for name in chosen if one[name] != mine[name]] for one in theirs]
        nearest = min(range(len(off)), key=lambda at: len(off[at]))
        name = off[nearest][0]
        raise InputError(
            f"{run.name} (--{role}) has {name} {mine[name]}, but the nearest --{other} run, "
            f"{others[nearest].name}, has {theirs[nearest][name]}: forward and reverse have to "
            f"share {what}; train the missing run or leave this one out"
        )


def shared_settings(run: Run) -> dict[str, object]:
    """Gives all settings in which a forward and a reverse run have to agree, by name."""
    body = to_json(run.config)
    shared: dict[str, object] = {
        name: value
        for section, free in _FREE.items()
        for name, value in body[section].items()
        if name not in free
    }
    return shared | {"scheduled_steps": scheduled_steps(run.config.training)}


def setting_of(run: Run) -> tuple[tuple[str, object], ...]:
    """Gives what a run shares with the runs that differ from it in seeds and variant alone."""
    shared = shared_settings(run)
    return tuple((name, _plain(shared[name])) for name in shared if name != "mapping_seed")


def seeds_of(run: Run) -> tuple[int, int, int]:
    """Gives the seeds of the mapping, the initial weights and the training batches."""
    config = run.config
    assert isinstance(config.task, MarginalsConfig)
    return config.task.mapping_seed, config.model.init_seed, config.training.data_seed


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else value
