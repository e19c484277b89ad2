"""Everything that is measured of the loss around one checkpoint, as rows of a table."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyses.hessian.eigenvalues import extremes, power_iteration, spectral_nodes
from analyses.hessian.surface import Surface

SEED = 0


@dataclass(frozen=True)
class Effort:
    """How much to compute.

    Attributes:
        eigenvalues: of each end.
        probes: random vectors for traces and density.
        lanczos: steps for the density.
        tolerance: of the eigenvalues, relative.
        restarts: of the eigenvalue solver, before it gives up.
    """

    eigenvalues: int
    probes: int
    lanczos: int
    tolerance: float = 1e-3
    restarts: int = 30


def curvature_rows(surface: Surface, effort: Effort) -> pd.DataFrame:
    """Measures the loss around one point.

    Returns:
        `quantity`, `index`, `value`, `error`. `loss`, `grad_norm`, `n_parameters`, `products`,
        `converged`; `trace` of the Hessian and `noise_trace` of the covariance of per-example
        gradients (error: standard error over probes); `eigenvalue` number `index` from the top
        (error: residual), with `gradient_along` (g . v) and `noise_along` (v . C v) of its
        direction; `node` (error: its weight in the density); `paper_max` and `paper_min` by power
        iteration (error: residual, index: iterations taken).
    """
    size = len(surface.gradient)
    ends = extremes(
        surface.product, size, effort.eigenvalues, effort.tolerance, effort.restarts, SEED
    )
    rows = [
        ("loss", 0, surface.loss, 0.0),
        ("grad_norm", 0, float(np.linalg.norm(surface.gradient)), 0.0),
        ("n_parameters", 0, float(size), 0.0),
        ("products", 0, float(ends.products), 0.0),
        ("converged", 0, float(ends.converged), 0.0),
    ]
    for index, (value, residual) in enumerate(zip(ends.values, ends.residuals, strict=True)):
        direction = np.ascontiguousarray(ends.vectors[:, index])
        slopes = surface.slopes(direction)
        rows += [
            ("eigenvalue", index, float(value), float(residual)),
            ("gradient_along", index, float(slopes.mean()), float(_se(slopes))),
            ("noise_along", index, float(slopes.var(ddof=1)), 0.0),
        ]
    rows += _probed(surface, effort)
    largest = power_iteration(surface.product, size)
    smallest = power_iteration(surface.product, size, shift=largest.value + 1)
    for name, found in (("paper_max", largest), ("paper_min", smallest)):
        rows.append((name, found.iterations, found.value, found.residual))
    return pd.DataFrame(rows, columns=["quantity", "index", "value", "error"])


def _probed(surface: Surface, effort: Effort) -> list[tuple[str, int, float, float]]:
    """Traces and density, from random vectors of signs."""
    rng = np.random.default_rng(SEED)
    size = len(surface.gradient)
    traces, noises, rows = [], [], []
    for number in range(effort.probes):
        probe = rng.choice([-1.0, 1.0], size)
        nodes, weights = spectral_nodes(surface.product, probe, effort.lanczos)
        traces.append(size * float(nodes @ weights))
        # A random vector of signs: the variance of g_i . v is on average the trace of C.
        noises.append(float(surface.slopes(probe).var(ddof=1)))
        rows += [
            ("node", number, float(node), float(weight) / effort.probes)
            for node, weight in zip(nodes, weights, strict=True)
        ]
    for name, found in (("trace", traces), ("noise_trace", noises)):
        rows.append((name, 0, float(np.mean(found)), float(_se(np.array(found)))))
    return rows


def _se(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5
