"""Did a run pass through 2-Gen, or bypass it on the way to 2-Mem? One answer for each run."""

import math
from collections.abc import Sequence
from typing import Literal

import pandas as pd

from analyses.chains.phase_changes import two_gen_time
from analyses.phases import check_chains, log_phases
from analyses.rows import Row, records
from circuits.errors import InputError
from mechinterp.config import to_json
from mechinterp.optimizer import scheduled_steps
from mechinterp.runs import Run

Rule = Literal["phase", "nearest"]

PLAIN = "unscaled"
"""Name of the arm whose learning rates are all the same."""

MIN_ROWS = 3

_FREE = {
    "task": ("name", "k", "chain_seed", "held_out"),
    "model": ("init_seed",),
    "training": ("lr_factor", "data_seed", "steps", "eval_every", "eval_examples", "forward"),
}
"""Settings in which the runs may differ: K, the arm, seeds, and how closely a run was watched. The
length of training counts all the same where the learning rate falls with it."""


def outcome_table(runs: Sequence[Run], rule: Rule) -> pd.DataFrame:
    """Reads off every run's log whether it entered 2-Gen.

    Args:
        runs: of the Markov-chain task, alike but for K, seeds and `lr_factor`.
        rule: `phase`: some row of the log is in the phase 2-Gen, near enough to it and clearly
            nearer than to any other; `nearest`: some row is nearest to it, however far.

    Returns:
        One row a run: `run`, `arm` (its factors, or `unscaled`), `k`, `seed`, `outcome`: `entered`,
        `bypassed` (it ends nearest to 2-Mem and 2-Gen was never the nearest) or `undecided`
        (neither); `step`, the first row in 2-Gen (infinite if none); and `last`.

    Raises:
        InputError: a run of another task, with fresh chains, with too short a log, or that differs
            in another setting.
    """
    for run in runs:
        if check_chains(run, "kinetics").k == "inf":
            raise InputError(f"{run.name} has k=inf, which is no point on an axis: leave it out")
    _refuse_other_settings(runs)
    return pd.DataFrame([_row(run, rule) for run in runs])


def arm_of(run: Run) -> str:
    """Names the arm of a run by its learning-rate factors."""
    return ", ".join(run.config.training.lr_factor) or PLAIN


def _row(run: Run, rule: Rule) -> Row:
    table = log_phases(run)
    if len(table) < MIN_ROWS:
        raise InputError(
            f"the log of {run.name} has {len(table)} rows with distances to the predictors; "
            f"kinetics needs at least {MIN_ROWS}: train longer or with a smaller --eval-every"
        )
    step = entered_at(table, rule)
    last = records(table)[-1]
    straight = last["nearest_phase"] == "2-Mem" and math.isinf(entered_at(table, "nearest"))
    outcome = "bypassed" if straight else "undecided"
    config = run.config
    chain_seed = check_chains(run, "kinetics").chain_seed
    seeds = (chain_seed, config.model.init_seed, config.training.data_seed)
    return {
        "run": run.name,
        "arm": arm_of(run),
        "k": config.task.k,
        "seed": ", ".join(map(str, seeds)),
        "outcome": "entered" if math.isfinite(step) else outcome,
        "step": step,
        "last": int(last["step"]),
    }


def entered_at(table: pd.DataFrame, rule: Rule) -> float:
    """When does a run enter 2-Gen? The step, infinite if it never does."""
    if rule == "nearest":
        return two_gen_time(table)
    inside = table[table["phase"] == "2-Gen"]["step"]
    return float(inside.iloc[0]) if len(inside) else math.inf


def _refuse_other_settings(runs: Sequence[Run]) -> None:
    first = _fixed(runs[0])
    for run in runs[1:]:
        for name, value in _fixed(run).items():
            if value != first[name]:
                raise InputError(
                    f"{run.name} has {name} {value}, but {runs[0].name} has {first[name]}; "
                    "kinetics compares runs that differ in k, seeds and lr_factor alone: leave one "
                    "of them out"
                )


def _fixed(run: Run) -> Row:
    body = to_json(run.config)
    fixed = {
        f"{section}.{name}": value
        for section, free in _FREE.items()
        for name, value in body[section].items()
        if name not in free
    }
    return fixed | {"training.scheduled_steps": scheduled_steps(run.config.training)}
