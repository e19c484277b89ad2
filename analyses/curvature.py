"""Curvature: is the plateau a saddle, how sharp, and does the gradient or its noise escape it?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import Curvature
from analyses.checkpoints import measure_checkpoints, read_from
from analyses.hessian.figures import density_figure, eigenvalue_figure, noise_figure
from analyses.hessian.measuring import Effort, curvature_rows
from analyses.hessian.surface import Surface, example_losses
from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.tasks import Marginals

MIN_CHECKPOINTS = 3
"""Checkpoints below which nothing can be said about a course of training."""

PART = 64
"""Examples that are differentiated together."""

CRITICAL = 0.1
"""Gradient norm above which the paper's own probe says "not critical"."""


def answer(request: Curvature) -> Answer:
    """Measures the loss around checkpoints of one run, on one fixed batch, in double precision.

    Costs a few hundred Hessian-vector products a checkpoint, each about two backward passes.

    Raises:
        InputError: the run has too few checkpoints, or an option is out of range.
    """
    run = Run.open(request.run, request.root)
    _check(request)
    steps = choose_steps(run, request)
    effort = Effort(request.eigenvalues, request.probes, request.lanczos)
    options = {"examples": request.examples, **effort.__dict__, "dtype": "float64"}
    rows = measure_checkpoints(
        run, steps, "curvature", options, _measure(run, request.examples, effort), request.quiet
    )
    tables = curvature_tables(rows, request.examples, _share_of_table(run, request.examples))
    return Answer(
        summary=tuple(_summary(run, tables, request.examples)),
        tables=tables,
        figures=_figures(tables),
        provenance={**read_from(run, steps), "options": options},
    )


def _measure(run: Run, examples: int, effort: Effort) -> Callable[[Any], pd.DataFrame]:
    task = run.task()
    tokens = task.evaluation(examples)

    def measure(model: Any) -> pd.DataFrame:
        import torch

        exact = model.to(torch.float64, print_details=False)
        parts = [partial(example_losses, exact, some, task.scored) for some in tokens.split(PART)]
        surface = Surface.of(parts, list(exact.parameters()))
        return curvature_rows(surface, effort)

    return measure


def _check(request: Curvature) -> None:
    for name, value, low in (
        ("examples", request.examples, 2),
        ("eigenvalues", request.eigenvalues, 1),
        ("probes", request.probes, 2),
        ("lanczos", request.lanczos, 2),
        ("checkpoints", request.checkpoints, 1),
    ):
        if value < low:
            raise InputError(f"{name} is {value}; it has to be at least {low}")


def choose_steps(run: Run, request: Curvature) -> list[int]:
    """Gives the steps that were asked for, or some spread evenly over the checkpoints.

    Raises:
        InputError: a step without a checkpoint, or a run with too few of them.
    """
    if request.steps:
        return sorted({run.resolve_step(step) for step in request.steps})
    saved = run.steps
    if len(saved) < MIN_CHECKPOINTS:
        raise InputError(
            f"{run.name} has {len(saved)} checkpoints; curvature needs at least "
            f"{MIN_CHECKPOINTS}: train with a smaller --save-every, or name some with --steps"
        )
    places = np.linspace(0, len(saved) - 1, min(request.checkpoints, len(saved)))
    return [saved[int(place)] for place in places.round()]


def _share_of_table(run: Run, examples: int) -> float:
    """Share of all sequences that the batch holds; 0 for a task that draws ever new ones."""
    task = run.task()
    return examples / task.n_examples if isinstance(task, Marginals) else 0.0


def curvature_tables(rows: pd.DataFrame, examples: int, share: float) -> dict[str, pd.DataFrame]:
    """Gives the tables of the answer.

    Args:
        rows: what `curvature_rows` gives, with `step`.
        examples: in the batch.
        share: of all sequences that training can draw; a batch of all of them has no sampling
            noise (the correction for drawing from a finite table without replacement).

    Returns:
        `points`: a row a step, with the extreme eigenvalues, the paper's beside them, gradient and
        traces. `directions`: a row for each eigenvector, its `noise_ratio` being the noise along it
        over that along an average direction. `density`: nodes and weights of the spectrum.
    """
    named = rows.set_index(["step", "quantity"])
    points = pd.DataFrame(
        [_point(step, pd.DataFrame(named.loc[step]), examples, share) for step in _steps(rows)]
    )
    names = ("eigenvalue", "gradient_along", "noise_along")
    parts = [rows[rows["quantity"] == n].set_index(["step", "index"])["value"] for n in names]
    directions = pd.concat(parts, axis=1, keys=names)
    residuals = rows[rows["quantity"] == "eigenvalue"].set_index(["step", "index"])["error"]
    directions = directions.assign(residual=residuals).reset_index()
    at = points.set_index("step").loc[directions["step"]].reset_index()
    directions["gradient_cosine"] = directions["gradient_along"].abs() / at["grad_norm"]
    average = at["noise_trace"] / at["n_parameters"]
    directions["noise_ratio"] = directions["noise_along"] / average
    density = rows[rows["quantity"] == "node"]
    density = density.rename(columns={"value": "eigenvalue", "error": "weight", "index": "probe"})
    density = density[["step", "probe", "eigenvalue", "weight"]].reset_index(drop=True)
    return {"points": points, "directions": directions, "density": density}


def _steps(rows: pd.DataFrame) -> list[int]:
    return sorted(int(step) for step in rows["step"].unique())


def _point(step: int, rows: pd.DataFrame, examples: int, share: float) -> dict[str, Any]:
    def value(name: str, column: str = "value") -> float:
        return float(rows.loc[[name], column].iloc[0])

    eigen = rows.loc[["eigenvalue"]]
    noise = value("noise_trace")
    return {
        "step": step,
        "examples": examples,
        **{name: value(name) for name in ("loss", "grad_norm", "n_parameters")},
        "lambda_max": float(eigen["value"].iloc[0]),
        "lambda_max_residual": float(eigen["error"].iloc[0]),
        "lambda_min": float(eigen["value"].iloc[-1]),
        "lambda_min_residual": float(eigen["error"].iloc[-1]),
        "converged": bool(value("converged")),
        "products": int(value("products")),
        "trace": value("trace"),
        "trace_se": value("trace", "error"),
        "noise_trace": noise,
        "noise_trace_se": value("noise_trace", "error"),
        "grad_norm_of_noise": (noise * (1 - share) / examples) ** 0.5,
        **{
            f"paper_{end}{ending}": value(f"paper_{end}", column)
            for end in ("max", "min")
            for ending, column in (("", "value"), ("_residual", "error"), ("_iterations", "index"))
        },
    }


def verdict(point: pd.Series) -> str:
    """Is the point a saddle, a minimum, or no critical point at all?"""
    if point["grad_norm"] > CRITICAL:
        return f"no critical point (gradient norm above {CRITICAL})"
    if abs(point["lambda_min"]) <= point["lambda_min_residual"]:
        return "nearly critical; the sign of lambda_min is not settled"
    return "nearly critical, a saddle" if point["lambda_min"] < 0 else "nearly critical, a minimum"


def _summary(run: Run, tables: dict[str, pd.DataFrame], examples: int) -> list[str]:
    lines = [
        f"{run.name}: Hessian of the loss on {examples} fixed evaluation sequences, by Lanczos "
        "(± residual); the paper's power iteration beside it"
    ]
    directions = tables["directions"].groupby("step")
    for (_, point), (_, along) in zip(tables["points"].iterrows(), directions, strict=True):
        sharp, escape = along.iloc[0], along.iloc[-1]
        lines += [
            f"step {point['step']}: lambda_max {point['lambda_max']:.4g} ± "
            f"{point['lambda_max_residual']:.1g} (paper {point['paper_max']:.4g} ± "
            f"{point['paper_max_residual']:.1g}), lambda_min {point['lambda_min']:.4g} ± "
            f"{point['lambda_min_residual']:.1g} (paper {point['paper_min']:.4g} ± "
            f"{point['paper_min_residual']:.1g} after {point['paper_min_iterations']:.0f} "
            f"iterations); {'converged' if point['converged'] else 'NOT converged'} in "
            f"{point['products']} products",
            f"  trace {point['trace']:.4g} ± {1.96 * point['trace_se']:.2g}; gradient norm "
            f"{point['grad_norm']:.3g} ({point['grad_norm_of_noise']:.2g} expected of sampling "
            f"noise alone): {verdict(point)}",
            f"  cosine of gradient and escape direction {escape['gradient_cosine']:.3f}; noise "
            f"against an average direction: sharp {sharp['noise_ratio']:.3g} x, escape "
            f"{escape['noise_ratio']:.3g} x",
        ]
    return lines


def _figures(tables: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    return {
        "Eigenvalues": eigenvalue_figure(tables["points"]),
        "Density": density_figure(tables["density"]),
        "Noise": noise_figure(tables["directions"]),
    }
