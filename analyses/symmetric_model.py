"""The symmetric model: two scalars, their weak biases, and the cliff into 2-Gen."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from analyses.answer import Answer
from analyses.cache import cached
from analyses.catalogue import SymmetricModel
from analyses.checkpoints import progress, versions
from analyses.minimal_models.symmetric_report import MIN_LENGTHS, NORMAL, report
from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample
from mechinterp.minimal_models.cliff_time import CliffStudy, law_table, removal_table, tau_table
from mechinterp.minimal_models.figures import (
    bias_figure,
    landscape_figure,
    tau_figure,
    trajectory_figure,
)
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention
from mechinterp.minimal_models.symmetric_biases import bias_table, log_coefficient, log_growth
from mechinterp.minimal_models.symmetric_descent import Descent
from mechinterp.minimal_models.symmetric_landscape import loss_landscape
from mechinterp.tasks.base import fork

_BIASES, _TAU, _SLOPE = range(3)
"""Streams forked from the seed."""


def answer(request: SymmetricModel) -> Answer:
    """Measures biases, descents, landscape and the time of the cliff on fresh chains.

    Raises:
        InputError: too few chains, samples or lengths.
    """
    _check(request)
    key = {"question": "symmetric-model", "options": _options(request), "versions": versions()}
    seed = torch.Generator().manual_seed(request.seed)
    with progress("symmetric model", 2 + request.samples, request.quiet) as advance:
        size = (request.chains, request.n_states, max(request.lengths))
        long = draw_sample(*size, fork(seed, _BIASES), request.dirichlet)
        middle = long.last(request.length)
        parts = {
            name: cached({**key, "part": name}, lambda make=make: make(request, middle, long, seed))
            for name, make in _PARTS.items()
        }
        advance()
        advance()
        taus = [_taus(request, key, seed, at, advance) for at in range(request.samples)]
    tables = {**parts, "taus": pd.concat(taus, ignore_index=True)}
    tables["biases"] = with_intervals(tables["biases"])
    cliffs = tables["taus"][tables["taus"]["reached"].astype(bool)]
    if cliffs["length"].nunique() >= MIN_LENGTHS:
        tables["laws"] = law_table(tables["taus"])
    tables["removals"] = _removals(tables["paths"])
    return Answer(
        summary=tuple(report(request, tables)),
        tables=tables,
        figures={
            "Landscape": landscape_figure(tables["landscape"], _plain(tables["paths"])),
            "Descent": trajectory_figure(tables["paths"], label="removed"),
            "Biases": bias_figure(tables["biases"]),
        }
        | ({"Time of the cliff": tau_figure(tables["taus"])} if len(cliffs) else {}),
        provenance={"options": _options(request), "versions": versions()},
    )


def _check(request: SymmetricModel) -> None:
    if request.samples < 1 or request.chains < 2:
        raise InputError(
            f"samples is {request.samples} and chains {request.chains}; at least 1 sample of 2 "
            "chains is needed, and 2 samples for an interval"
        )
    if len(set(request.lengths)) < MIN_LENGTHS or min(request.lengths) < 4:
        raise InputError(
            f"lengths is {request.lengths}; a law needs at least {MIN_LENGTHS} different ones, of "
            "4 and more"
        )
    if not 0 < request.dirichlet < math.inf:
        raise InputError(f"dirichlet is {request.dirichlet:g}; it has to be a number above 0")
    usable = 0 < request.states_per_rate < math.inf
    if request.steps < 2 or not usable or min(request.grid) < 2:
        raise InputError(
            f"steps is {request.steps}, states_per_rate {request.states_per_rate:g} and grid "
            f"{request.grid}; they have to be at least 2, above 0, and at least 2 by 2"
        )
    if not 4 <= request.length <= max(request.lengths):
        raise InputError(
            f"length is {request.length}; it has to be in 4..{max(request.lengths)}, the largest "
            "of --lengths"
        )


def _options(request: SymmetricModel) -> dict[str, Any]:
    names = ("n_states", "length", "chains", "samples", "mu", "dirichlet", "steps", "seed")
    values = {name: getattr(request, name) for name in (*names, "states_per_rate")}
    return values | {"lengths": list(request.lengths), "grid": list(request.grid)}


def _biases(
    request: SymmetricModel, middle: ChainSample, long: ChainSample, seed: torch.Generator
) -> pd.DataFrame:
    return bias_table(long, sorted(set(request.lengths)), sorted({0.0, request.mu}))


def _growth(
    request: SymmetricModel, middle: ChainSample, long: ChainSample, seed: torch.Generator
) -> pd.DataFrame:
    """Growth of N c_beta with ln N between the two longest lengths, and what it tends to."""
    short, longest = sorted(set(request.lengths))[-2:]
    seen = log_growth(long, short, longest)
    drawn = fork(seed, _SLOPE)
    limit = log_coefficient(4 * request.chains, request.n_states, drawn, request.dirichlet)
    row = {"short": short, "long": longest, "growth": seen.value, "growth_se": seen.se}
    return pd.DataFrame([{**row, "limit": limit.value, "limit_se": limit.se}])


def _paths(
    request: SymmetricModel, middle: ChainSample, long: ChainSample, seed: torch.Generator
) -> pd.DataFrame:
    descent = Descent(
        learning_rate=middle.length / request.states_per_rate,
        steps=request.steps,
        start=SymmetricAttention(mu=request.mu),
    )
    summary, paths = removal_table(middle, descent)
    return paths.merge(summary, on="removed", suffixes=("", "_of_path"))


def _landscape(
    request: SymmetricModel, middle: ChainSample, long: ChainSample, seed: torch.Generator
) -> pd.DataFrame:
    betas, deltas = (
        np.linspace(-1, high, n).tolist() for high, n in zip((6, 9), request.grid, strict=True)
    )
    return loss_landscape(middle, betas, deltas, mu=request.mu)


_PARTS = {"biases": _biases, "growth": _growth, "paths": _paths, "landscape": _landscape}


def _taus(
    request: SymmetricModel, key: dict[str, Any], seed: torch.Generator, at: int, advance: Any
) -> pd.DataFrame:
    study = CliffStudy(
        n_states=request.n_states,
        lengths=tuple(sorted(set(request.lengths))),
        n_chains=request.chains,
        mu=request.mu,
        dirichlet=request.dirichlet,
        states_per_rate=request.states_per_rate,
        steps=request.steps,
    )
    table = cached(
        {**key, "part": "taus", "sample": at},
        lambda: tau_table(study, fork(seed, _TAU, at), n_samples=1).assign(sample=at),
    )
    advance()
    return table


def with_intervals(biases: pd.DataFrame) -> pd.DataFrame:
    """Adds `_low` and `_high` (95 %, normal, over chains) to every bias of `bias_table`."""
    ends = {}
    for name in ("c_beta", "c_delta", "cross"):
        half = NORMAL * biases[f"{name}_se"]
        ends |= {f"{name}_low": biases[name] - half, f"{name}_high": biases[name] + half}
    return biases.assign(**ends)


def _removals(paths: pd.DataFrame) -> pd.DataFrame:
    columns = ["removed", "reached", "tau", "waited", "drop"]
    return paths.drop_duplicates("removed")[columns].reset_index(drop=True)


def _plain(paths: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(paths[paths["removed"] == "none"])
