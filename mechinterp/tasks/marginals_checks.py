"""Which marginals configurations can be built; checked before any work is done."""

import typing

from circuits.errors import InputError, near_matches
from mechinterp.config import MarginalsConfig, Sharing, Variant

N_CHARACTERS = 36
B_LENGTH = 6
A_LENGTH = 4
MAX_Z_LENGTH = 6
N_ANSWERS = N_CHARACTERS**A_LENGTH

CANDIDATE_VARIANTS = ("bz_to_a", "b_to_a")
"""Variants whose answer is one of the K strings of a fibre."""

SELECTOR_VARIANTS = ("bz_to_a", "az_to_b")
"""Variants that show the selector z."""


def n_selector_sets(config: MarginalsConfig) -> int:
    """Number of different selector sets: one, one for each supergroup, or one for each B."""
    return {"shared": 1, "supergroup": config.supergroups, "private": config.n_b}[config.z_sharing]


def check_config(config: MarginalsConfig) -> None:
    """Refuses a configuration that cannot be built, or that would silently mean something else.

    Raises:
        InputError: with what was given, what is allowed and what to do.
    """
    _check_names(config)
    _check_ranges(config)
    _check_answers(config)
    _check_selectors(config)
    _check_training(config)


def _refuse_if(wrong: bool, message: str) -> None:
    if wrong:
        raise InputError(message)


def _check_names(config: MarginalsConfig) -> None:
    for field, kind in (("variant", Variant), ("z_sharing", Sharing)):
        given, allowed = getattr(config, field), typing.get_args(kind)
        if given not in allowed:
            close = near_matches(str(given), allowed)
            raise InputError(f"{field}={given!r} is not one of {', '.join(allowed)}: try {close}")


def _check_ranges(config: MarginalsConfig) -> None:
    limits = {
        "k": (1, N_ANSWERS),
        "n_b": (1, N_ANSWERS),
        "supergroups": (1, config.n_b),
        "z_length": (1, MAX_Z_LENGTH),
        "distinct_prefix": (0, 2),
        "random_z_until": (0, 2**62),
        "mapping_seed": (0, 2**62),
    }
    for field, (least, most) in limits.items():
        given = getattr(config, field)
        _refuse_if(
            not least <= given <= most,
            f"{field}={given} is out of range: choose {field} from {least} to {most}",
        )
    # Written so that NaN is refused too.
    _refuse_if(
        not 0 <= config.label_noise <= 1,
        f"label_noise={config.label_noise} is not a probability: choose one from 0 to 1",
    )


def _check_answers(config: MarginalsConfig) -> None:
    k, prefix = config.k, config.distinct_prefix
    n_prefixes = N_CHARACTERS**prefix
    remedy = (
        f"set distinct_prefix to 2 (k up to {N_CHARACTERS**2}), or to 0 for no rule"
        if prefix == 1
        else "set distinct_prefix to 0 for no rule"
    )
    _refuse_if(
        prefix > 0 and k > n_prefixes,
        f"k={k} with distinct_prefix={prefix}: only {n_prefixes} prefixes differ; "
        f"use k <= {n_prefixes} or {remedy}",
    )
    _refuse_if(
        k * config.n_b > N_ANSWERS,
        f"k={k} with n_b={config.n_b} needs {k * config.n_b} different answers, but only "
        f"{N_ANSWERS} strings of {A_LENGTH} characters exist: use n_b <= {N_ANSWERS // k}",
    )


def _check_selectors(config: MarginalsConfig) -> None:
    _refuse_if(
        config.z_sharing != "supergroup" and config.supergroups != 1,
        f"supergroups={config.supergroups} has no effect with z_sharing={config.z_sharing!r}: "
        "use z_sharing='supergroup' or supergroups=1",
    )
    needed = n_selector_sets(config) * config.k
    available = N_CHARACTERS**config.z_length
    if needed > available:
        enough = next(
            (n for n in range(1, MAX_Z_LENGTH + 1) if N_CHARACTERS**n >= needed), MAX_Z_LENGTH
        )
        raise InputError(
            f"z_sharing={config.z_sharing!r} with k={config.k} and n_b={config.n_b} needs {needed} "
            f"selectors, but only {available} have z_length={config.z_length}: "
            f"use z_length >= {enough} or fewer selectors"
        )


def _check_training(config: MarginalsConfig) -> None:
    _refuse_if(
        config.label_noise > 0 and config.k < 2,
        f"label_noise={config.label_noise} with k=1: a noisy answer is another one of the fibre; "
        "use k >= 2 or label_noise=0",
    )
    _refuse_if(
        config.label_noise > 0 and config.variant != "bz_to_a",
        f"label_noise={config.label_noise} with variant={config.variant!r}: only bz_to_a has a "
        "wrong answer in its fibre; use variant='bz_to_a' or label_noise=0",
    )
    _refuse_if(
        config.random_z_until > 0 and config.variant not in SELECTOR_VARIANTS,
        f"random_z_until={config.random_z_until} with variant={config.variant!r}, which shows no "
        f"selector: use {' or '.join(SELECTOR_VARIANTS)}, or random_z_until=0",
    )
