"""Which runs can be trained as one stack? Those that differ in seeds and in what they are shown.

This file imports nothing heavy: the process that plans a sweep needs no torch.
"""

import dataclasses
from collections.abc import Hashable, Sequence

from circuits.errors import InputError
from mechinterp.config import RunConfig, TaskConfig, validate

SHOWN = {
    "k",
    "n_b",
    "mapping_seed",
    "label_noise",
    "random_z_until",
    "dirichlet",
    "held_out",
    "chain_seed",
}
"""Settings of a task that change its sequences and neither their length nor their tokens."""


def stack_kind(config: RunConfig) -> Hashable:
    """Gives what runs of one stack have in common."""
    return _trained(config), type(config.task), _shape(config.task)


def _shape(task: TaskConfig) -> tuple[tuple[str, object], ...]:
    return tuple((n, v) for n, v in dataclasses.asdict(task).items() if n not in SHOWN)


def _trained(config: RunConfig) -> Hashable:
    return (
        dataclasses.replace(config.model, init_seed=0),
        dataclasses.replace(config.training, data_seed=0),
        config.checkpoints,
    )


def can_stack(config: RunConfig) -> bool:
    """Says whether a run asks for nothing that goes run by run."""
    training = config.training
    return training.clip is None and not training.lr_factor and not training.gradient_noise


def refuse_unequal(configs: Sequence[RunConfig]) -> None:
    """Refuses runs that cannot be one stack.

    Raises:
        InputError: there are none, they differ in more than seeds and in what the task shows, or
            use what stacks cannot.
    """
    if not configs:
        raise InputError("there are no runs to stack")
    for config in configs:
        validate(config)
    if len({_trained(config) for config in configs}) > 1:
        raise InputError("stacked runs may differ in seeds and in the task only; train them apart")
    if len({stack_kind(config) for config in configs}) > 1:
        raise InputError("the runs' sequences differ in length or tokens; stack those that agree")
    if not can_stack(configs[0]):
        raise InputError("clip, lr_factor and gradient_noise go run by run; train these runs apart")
