"""From runs to points: x, time and seed of each, and what else the runs differ in."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyses.chains.phase_changes import two_gen_time, two_mem_time
from analyses.phases import check_chains, log_phases
from analyses.plateau import check_marginals, log_series
from analyses.rows import keyed
from analyses.waiting.tau import tau_table
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, to_json
from mechinterp.runs import Run

SEEDS = ("mapping_seed", "chain_seed", "init_seed", "data_seed")
"""Settings that make two runs of the same x different seeds."""

KEPT_APART = ("steps", "eval_every", "eval_examples")
"""Settings of how long and how closely a run was watched; they may differ."""

READINGS = ("paper", "sound")

MARKOV_TIMES = {"two_gen": two_gen_time, "two_mem": two_mem_time}


def points_of(runs: Sequence[Run], x: str, time: str) -> pd.DataFrame:
    """Reads x and the time off every run; no weights are read.

    Args:
        runs: the runs.
        x: name of what varies, see `analyses.catalogue.Scaling`.
        time: a definition of tau, `two_gen` or `two_mem`.

    Returns:
        One row a run: `run`, `x`, `seed` (its seeds, as text), `paper` and `sound` (times in steps;
        equal for `two_gen` and `two_mem`, whose definition is ours), infinite where the run ends
        first, and `last`, its last logged step.

    Raises:
        InputError: a run is of the wrong task for x or the time, or its log is too short.
    """
    rows = []
    for run in runs:
        value = x_of(run, x)
        paper, sound, last = _times(run, time)
        row = {"run": run.name, "x": value, "seed": seed_of(run)}
        rows.append(row | {"paper": paper, "sound": sound, "last": last})
    return pd.DataFrame(rows)


def x_of(run: Run, x: str) -> float:
    """Gives the value of what varies for one run.

    Raises:
        InputError: the run's task has no such setting, or K is infinite.
    """
    task, training = run.config.task, run.config.training
    values: dict[str, Any] = {"lr": training.lr, "batch": training.batch, "k": task.k}
    if isinstance(task, MarginalsConfig):
        values |= {"n_b": task.n_b, "d": task.k * task.n_b}
    else:
        values |= {"n_states": task.n_states, "length": task.length}
        values["n_over_log"] = task.length / math.log(task.length)
    if x not in values:
        raise InputError(
            f"{run.name} has no {x}: its task has {', '.join(values)}; choose one of these with --x"
        )
    if values[x] == "inf":
        raise InputError(f"{run.name} has k=inf, which is no point on an axis: leave it out")
    return float(values[x])


def seed_of(run: Run) -> str:
    """Gives the seeds of a run as one text, equal for runs that share all of them."""
    parts = to_json(run.config)
    found = [(n, part[n]) for part in parts.values() for n in SEEDS if n in part]
    return ", ".join(f"{name} {value}" for name, value in found)


def other_differences(runs: Sequence[Run], x: str) -> list[str]:
    """What do the runs differ in besides x, their seeds, and how long they were watched?

    Returns:
        `n_b (250, 500)` for each such setting: all of them compete with x for the effect.
    """
    # D = K n_b: what varies D is no competitor, unless both of its factors do.
    varied = [n for n in ("k", "n_b") if len({getattr(r.config.task, n, None) for r in runs}) > 1]
    own = {"d": varied if len(varied) == 1 else (), "n_over_log": ("length",)}.get(x, (x,))
    ignored = {*SEEDS, *KEPT_APART, *own, "checkpoints"}
    settings: dict[str, list[str]] = {}
    for run in runs:
        body = to_json(run.config)
        for section in ("task", "model", "training"):
            for name, value in body[section].items():
                if name not in ignored:
                    settings.setdefault(f"{section}.{name}", []).append(str(value))
    listed = []
    for name, values in settings.items():
        distinct = list(dict.fromkeys(values))
        if len(distinct) > 1 or len(values) < len(runs):
            listed.append(f"{name} ({', '.join(distinct)})")
    return listed


def _times(run: Run, time: str) -> tuple[float, float, int]:
    if time in MARKOV_TIMES:
        check_chains(run, f"--time {time}")
        table = log_phases(run)
        if len(table) < 3:
            raise InputError(
                f"the log of {run.name} has {len(table)} rows with distances to the predictors; at "
                "least 3 are needed: train longer or with a smaller --eval-every"
            )
        found = MARKOV_TIMES[time](table)
        return found, found, int(table["step"].iloc[-1])
    config = check_marginals(run, f"--time {time}")
    series, lines = log_series(run), run.task().reference_lines()
    table = tau_table(series, math.log(config.k), lines["marginal_first_token_ce"])
    row = keyed(table, "definition")[time]
    return row["paper"], row["sound"], int(series["step"].iloc[-1])
