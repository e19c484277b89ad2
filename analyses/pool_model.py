"""Encode-pool-decode: how many chains it memorises at each size, and whether it generalises."""

import itertools
import math
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import PoolModel
from analyses.checkpoints import check_examples, progress, versions
from analyses.line_figure import line_colour
from analyses.minimal_models.pool_cells import Cell, PoolGrid, train_cell
from analyses.rows import Row, records
from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.encode_pool_decode import EncodePoolDecode
from mechinterp.minimal_models.figures import capacity_figure
from mechinterp.minimal_models.pool_capacity import GENERALISES, MEMORISED, capacity
from mechinterp.minimal_models.pool_training import PoolTraining
from mechinterp.tasks.markov_chains import MarkovChains
from mechinterp.workers import in_processes

NORMAL = 1.959964


def answer(request: PoolModel) -> Answer:
    """Trains every model of the grid, or finds it in the cache, and reads off the capacities.

    Raises:
        InputError: an empty grid, or a size or number out of range.
    """
    _check(request)
    cells: list[Cell] = [
        (d_task, d_hidden, k, seed)
        for seed in request.seeds
        for d_hidden in request.d_hiddens
        for d_task in request.d_tasks
        for k in request.ks
    ]
    models = with_ratio_interval(_trained(request, cells))
    tables = {
        "capacity": capacity_table(models),
        "generalisation": generalisation_table(models),
        "models": models,
    }
    return Answer(
        summary=tuple(_summary(request, tables)),
        tables=tables,
        figures=_figures(tables),
        provenance={"options": _options(request), "versions": versions()},
    )


def _check(request: PoolModel) -> None:
    check_examples(request.examples)
    for name in ("ks", "d_tasks", "d_hiddens", "seeds"):
        if not getattr(request, name):
            raise InputError(f"{name} is empty; give at least one value: --{name} ...")
        if len(set(getattr(request, name))) < len(getattr(request, name)):
            raise InputError(f"{name} names a value twice; a model counts once")
    for k in request.ks:
        MarkovChains(MarkovChainsConfig(request.n_states, k, request.length))
    if all(k == "inf" for k in request.ks):
        raise InputError("ks is inf alone; capacity needs finite K, for example --ks 4 8 16 inf")
    if request.jobs < 1:
        raise InputError(f"jobs is {request.jobs}; it has to be at least 1")
    for d_task in request.d_tasks:
        for d_hidden in request.d_hiddens:
            EncodePoolDecode(request.n_states, d_task, d_hidden)
    PoolTraining(steps=request.steps)


def _options(request: PoolModel) -> dict[str, Any]:
    names = ("n_states", "length", "steps", "examples")
    lists = ("ks", "d_tasks", "d_hiddens", "seeds")
    values = {name: getattr(request, name) for name in names}
    return values | {name: list(getattr(request, name)) for name in lists}


def _trained(request: PoolModel, cells: list[Cell]) -> pd.DataFrame:
    grid = PoolGrid(request.n_states, request.length, request.steps, request.examples, versions())
    train = partial(train_cell, grid)
    with progress("pool model: models", len(cells), request.quiet) as advance:
        found: dict[Cell, pd.DataFrame] = {}
        if request.jobs == 1 or len(cells) == 1:
            for cell in cells:
                found[cell] = train(cell)
                advance()
        else:
            for cell, table in in_processes(train, cells, request.jobs):
                found[cell] = table
                advance()
    return pd.concat([found[cell] for cell in cells], ignore_index=True)


def with_ratio_interval(models: pd.DataFrame) -> pd.DataFrame:
    """Adds `ratio_low` and `ratio_high`, 95 %, from the model's own error over sequences.

    Both distances of the ratio are over the same sequences and rise and fall together, so this is
    wider than it need be.
    """
    half = NORMAL * models["kl_truth_new_se"] / models["gap_two_gen_new"]
    return models.assign(
        ratio_low=models["ratio_new"] - half, ratio_high=models["ratio_new"] + half
    )


def capacity_table(models: pd.DataFrame) -> pd.DataFrame:
    """How many chains does each size memorise, and how sure is that?

    Args:
        models: one row a model, as `pool_row` has it.

    Returns:
        What `capacity` gives over all seeds, with `low` and `high`: K_c lies between the least K_c
        of any seed and the greatest first K that some seed fails at (infinite when it fails at
        none). With one seed that is the step of the grid alone.
    """
    table = capacity(models)
    by_seed = [capacity(group) for _, group in models[models["k"] < math.inf].groupby("seed")]
    ends = pd.concat(by_seed).groupby(["d_task", "d_hidden"])
    low, high = ends["k_c"].min().rename("low"), ends["next_k"].max().rename("high")
    return table.merge(pd.concat([low, high], axis=1).reset_index(), on=["d_task", "d_hidden"])


def generalisation_table(models: pd.DataFrame) -> pd.DataFrame:
    """Which sizes answer for new chains as 2-Gen does, and from how many training chains on?

    Returns:
        One row a `d_task`, `d_hidden` and `k`: mean over seeds of `ratio_new` (distance to the
        truth on new chains over that of 2-Gen), `ratio_low` and `ratio_high` (the widest of the
        seeds), and `generalises`, the share of seeds up to 1.2.
    """
    grouped = models.groupby(["d_task", "d_hidden", "k"], as_index=False)
    return grouped.agg(
        ratio_new=("ratio_new", "mean"),
        ratio_low=("ratio_low", "min"),
        ratio_high=("ratio_high", "max"),
        generalises=("generalises", "mean"),
    )


def _summary(request: PoolModel, tables: dict[str, pd.DataFrame]) -> list[str]:
    seeds = len(request.seeds)
    lines = [
        f"encode-pool-decode: C = {request.n_states}, N = {request.length}, "
        f"{len(tables['models'])} models of {request.steps} steps, {seeds} seeds",
        f"capacity K_c: largest K memorised (KL to 2-Mem below {MEMORISED:g} of that to 2-Gen on "
        "training chains)",
        "  d_task  d_hidden  K_c  interval (seeds and grid)",
    ]
    for row in records(tables["capacity"]):
        high = f"{row['high']:.0f}" if math.isfinite(row["high"]) else "beyond the grid"
        lines.append(
            f"  {row['d_task']:6d}  {row['d_hidden']:8d}  {row['k_c']:3.0f}  {row['low']:.0f} to "
            f"below {high}"
        )
    lines.append(_rises(tables["capacity"], "d_task", "task dimension"))
    lines.append(_rises(tables["capacity"], "d_hidden", "decoder width"))
    lines.append(
        f"on new chains, KL to the truth over that of 2-Gen (up to {GENERALISES:g} counts)"
    )
    lines += [f"  {_new_line(row)}" for row in _best(tables["generalisation"])]
    unfinished = tables["models"]["late_gain"].max()
    lines.append(
        f"the last quarter of training still gained at most {unfinished:.4f} nats; capacities are "
        "those of this training length"
    )
    return lines


def _rises(table: pd.DataFrame, column: str, what: str) -> str:
    """Compares the capacities of the smallest and the largest value, all else alike."""
    others = [name for name in ("d_task", "d_hidden") if name != column]
    ups, downs, ties = 0, 0, 0
    for _, group in table.groupby(others):
        ordered = records(group.sort_values(column))
        for one, other in itertools.pairwise(ordered):
            ups += other["k_c"] > one["k_c"]
            downs += other["k_c"] < one["k_c"]
            ties += other["k_c"] == one["k_c"]
    return f"K_c with the {what}: rises in {ups}, falls in {downs} and stays in {ties} steps"


def _best(table: pd.DataFrame) -> list[Row]:
    """The size that does best on new chains, for each K."""
    return [
        records(group.nsmallest(1, "ratio_new"))[0] for _, group in table.groupby("k", sort=True)
    ]


def _new_line(row: Row) -> str:
    k = "fresh chains" if math.isinf(row["k"]) else f"K {row['k']:.0f}"
    verdict = "generalises" if row["generalises"] >= 0.5 else "does not generalise"
    return (
        f"{k}: best {row['ratio_new']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f}) at "
        f"d_task {row['d_task']:.0f}, d_hidden {row['d_hidden']:.0f}: {verdict}"
    )


def _figures(tables: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    if not (tables["capacity"]["k_c"] > 0).any():
        return {"New chains": ratio_figure(tables["generalisation"])}
    return {
        "Capacity": capacity_figure(tables["capacity"]),
        "New chains": ratio_figure(tables["generalisation"]),
    }


def ratio_figure(table: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the distance on new chains over that of 2-Gen against K; fresh chains come last."""
    figure = go.Figure()
    for number, (size, group) in enumerate(table.groupby(["d_task", "d_hidden"])):
        d_task, d_hidden = size  # pyright: ignore
        labels = ["fresh" if math.isinf(row["k"]) else f"{row['k']:.0f}" for row in records(group)]
        figure.add_scatter(
            x=labels, y=group["ratio_new"].to_list(), mode="lines+markers",
            name=f"d_task {d_task}, d_hidden {d_hidden}",
            line={"color": line_colour(number, theme)},
            error_y={
                "array": (group["ratio_high"] - group["ratio_new"]).to_list(),
                "arrayminus": (group["ratio_new"] - group["ratio_low"]).to_list(),
                "symmetric": False,
            },
        )  # fmt: skip
    figure.add_hline(y=GENERALISES, line={"color": theme.ink, "dash": "dot", "width": 1})
    return themed(
        figure,
        theme,
        "KL to the truth on new chains, over that of 2-Gen",
        xaxis={"title": {"text": "training chains K"}, "type": "category"},
        yaxis={"title": {"text": "ratio"}, "type": "log"},
        height=460,
    )
