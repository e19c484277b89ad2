"""Eigenvalues of a symmetric matrix that is known by its products alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

Vector = Float[np.ndarray, " parameter"]
Product = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Extremes:
    """Eigenpairs of both ends, from the largest to the smallest.

    Attributes:
        values: eigenvalues.
        vectors: `"parameter pair"`, unit columns.
        residuals: |H v - value v|; an eigenvalue of H lies within it of the value.
        converged: whether the solver reached its tolerance; otherwise these are its best pairs.
        products: products taken.
    """

    values: Float[np.ndarray, " pair"]
    vectors: Float[np.ndarray, "parameter pair"]
    residuals: Float[np.ndarray, " pair"]
    converged: bool
    products: int


def extremes(
    product: Product, size: int, n: int, tolerance: float = 1e-4, restarts: int = 30, seed: int = 0
) -> Extremes:
    """What are the largest and the smallest eigenvalues? By scipy's implicitly restarted Lanczos.

    Both ends come from one Krylov space.

    Args:
        product: H v.
        size: length of v.
        n: eigenvalues of each end.
        tolerance: relative to the eigenvalue, as ARPACK has it.
        restarts: of the iteration, after which it is given up.
        seed: of the first vector.
    """
    count = 0

    def counted(v: Vector) -> Vector:
        nonlocal count
        count += 1
        return product(v.ravel())

    start = np.random.default_rng(seed).standard_normal(size)
    # scipy's stubs know neither the keywords of its LinearOperator nor a tolerance below 1.
    operator: Any = LinearOperator((size, size), matvec=counted, dtype=np.float64)  # pyright: ignore
    options: Any = {"tol": tolerance, "maxiter": restarts}
    wanted, ncv = 2 * n, min(size, max(4 * n + 1, 20))
    try:
        values, vectors = eigsh(operator, wanted, which="BE", v0=start, ncv=ncv, **options)
        converged = True
    except ArpackNoConvergence:
        values, vectors = _plain_lanczos(counted, start, ncv, n)
        converged = False
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    images = np.stack([counted(vector) for vector in vectors.T], axis=1)
    residuals = np.linalg.norm(images - vectors * values, axis=0)
    return Extremes(values, vectors, residuals, converged, count)


def _plain_lanczos(
    product: Product, start: Vector, steps: int, n: int
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, "parameter pair"]]:
    """The ends of one unrestarted Krylov space, for a solver that gave up."""
    basis, diagonal, beside = lanczos(product, start, steps)
    values, weights = eigh_tridiagonal(diagonal, beside)
    ends = [*range(n), *range(len(values) - n, len(values))]
    return values[ends], basis @ weights[:, ends]


def lanczos(
    product: Product, start: Vector, steps: int
) -> tuple[
    Float[np.ndarray, "parameter step"], Float[np.ndarray, " step"], Float[np.ndarray, " border"]
]:
    """Gives the Krylov basis and the tridiagonal matrix; every vector is orthogonalised twice."""
    basis, diagonal, beside = [start / np.linalg.norm(start)], [], []
    for _ in range(steps):
        image = product(basis[-1])
        diagonal.append(float(basis[-1] @ image))
        columns = np.stack(basis, axis=1)
        for _ in range(2):
            image = image - columns @ (columns.T @ image)
        norm = float(np.linalg.norm(image))
        if len(basis) == steps or norm < 1e-10 * max(map(abs, diagonal)):
            break
        beside.append(norm)
        basis.append(image / norm)
    return np.stack(basis, axis=1), np.array(diagonal), np.array(beside)


def spectral_nodes(
    product: Product, probe: Vector, steps: int
) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """How are the eigenvalues spread, as one random vector sees it? Stochastic Lanczos quadrature.

    Args:
        product: H v.
        probe: a random vector of signs.
        steps: of the Lanczos iteration.

    Returns:
        Nodes and weights (which add up to 1). Averaged over probes they stand for the density of
        eigenvalues; size times the weighted sum of the nodes is Hutchinson's estimate v . H v of
        the trace, exactly.
    """
    _, diagonal, beside = lanczos(product, probe, steps)
    nodes, vectors = eigh_tridiagonal(diagonal, beside)
    return nodes, vectors[0] ** 2


@dataclass(frozen=True)
class PowerResult:
    """Where a power iteration stopped: its value, its residual, and after how many products."""

    value: float
    residual: float
    iterations: int


def power_iteration(
    product: Product, size: int, shift: float = 0.0, iterations: int = 50, seed: int = 42
) -> PowerResult:
    """The paper's estimate of an eigenvalue: power iteration on H - shift I.

    It stops when two successive vectors have a cosine above 0.9999 after iteration 11. With a bulk
    of eigenvalues near 0, the vectors of the shifted iteration hardly turn from the first step on,
    so this stops at once and gives the bulk rather than the smallest eigenvalue: see the residual.

    Args:
        product: H v.
        size: length of v.
        shift: 0 for the largest eigenvalue, that value + 1 for the smallest.
        iterations: the most to take.
        seed: of the first vector.
    """
    vector = np.random.default_rng(seed).standard_normal(size)
    vector /= np.linalg.norm(vector)
    done = 0
    for done in range(1, iterations + 1):
        image = product(vector) - shift * vector
        # The shifted matrix is negative, so its vectors change sign at every step.
        image *= np.sign(vector @ image) / np.linalg.norm(image)
        turned, vector = float(vector @ image), image
        if done > 11 and turned > 0.9999:
            break
    image = product(vector)
    value = float(vector @ image)
    return PowerResult(value, float(np.linalg.norm(image - value * vector)), done)
