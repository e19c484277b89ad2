import copy
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from analyses import curvature
from analyses.catalogue import Curvature
from analyses.curvature import verdict
from analyses.hessian.eigenvalues import extremes, lanczos, power_iteration, spectral_nodes
from analyses.hessian.surface import Surface, example_losses
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, ModelConfig
from mechinterp.model import build_model
from mechinterp.runs import Run
from mechinterp.tasks import make_task
from mechinterp.training_loop import scored_loss


def planted(values, seed=0):
    """A symmetric matrix with these eigenvalues, and its product."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    matrix = (basis * values) @ basis.T
    return matrix, basis, lambda v: matrix @ v


BULK = np.concatenate([[5.0, 3.0], np.random.default_rng(1).normal(0, 0.01, 196), [-0.5, -2.0]])


@pytest.fixture(scope="module")
def tiny():
    """A model of some hundred weights in double precision, its batch, and its surface."""
    config = ModelConfig(n_layers=1, n_heads=1, d_model=4, d_mlp=4, n_ctx=16)
    task = make_task(MarginalsConfig(k=2, n_b=6))
    model = build_model(config, task.d_vocab, dtype=torch.float64)
    tokens = task.evaluation(6)
    parts = [partial(example_losses, model, some, task.scored) for some in tokens.split(4)]
    surface = Surface.of(parts, list(model.parameters()))
    return model, tokens, torch.tensor(task.scored), surface


def shifted(model, tokens, scored, vector):
    """Gradient and per-example losses after a step along a vector, in a copy of the model."""
    moved = copy.deepcopy(model)
    parameters = list(moved.parameters())
    flat = torch.nn.utils.parameters_to_vector(parameters).detach() + torch.as_tensor(vector)
    torch.nn.utils.vector_to_parameters(flat, parameters)
    loss = scored_loss(moved, tokens, scored)
    grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
    each = example_losses(moved, tokens, tuple(scored.tolist())).detach()
    return torch.cat([g.flatten() for g in grads]).numpy(), each.numpy()


def test_the_loss_is_the_one_trained_on_and_its_gradient_the_usual_one(tiny):
    model, tokens, scored, surface = tiny
    assert surface.loss == pytest.approx(scored_loss(model, tokens, scored).item(), rel=1e-12)
    gradient, _ = shifted(model, tokens, scored, np.zeros(len(surface.gradient)))
    assert surface.gradient == pytest.approx(gradient, abs=1e-12)


def test_products_and_slopes_by_finite_differences(tiny):
    model, tokens, scored, surface = tiny
    v = np.random.default_rng(0).standard_normal(len(surface.gradient))
    up, each_up = shifted(model, tokens, scored, 1e-5 * v)
    down, each_down = shifted(model, tokens, scored, -1e-5 * v)
    product = surface.product(v)
    assert product == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-5)
    assert np.abs(product).max() > 1e-2
    assert surface.slopes(v) == pytest.approx((each_up - each_down) / 2e-5, abs=1e-7)
    assert surface.slopes(v).mean() == pytest.approx(surface.gradient @ v, abs=1e-12)


def test_the_dense_hessian_of_a_tiny_model(tiny):
    surface = tiny[-1]
    size = len(surface.gradient)
    dense = np.stack([surface.product(row) for row in np.eye(size)])
    assert np.abs(dense - dense.T).max() < 1e-12
    values = np.linalg.eigvalsh(dense)
    found = extremes(surface.product, size, 2, tolerance=1e-8)
    assert found.converged
    assert found.values == pytest.approx([values[-1], values[-2], values[1], values[0]], abs=1e-8)
    assert found.residuals.max() < 1e-7
    vector = found.vectors[:, 0]
    assert dense @ vector == pytest.approx(values[-1] * vector, abs=1e-7)
    rng = np.random.default_rng(0)
    probes = rng.choice([-1.0, 1.0], (400, size))
    traces = ((probes @ dense) * probes).sum(1)
    nodes, weights = spectral_nodes(surface.product, probes[0], 12)
    assert size * (nodes @ weights) == pytest.approx(traces[0], abs=1e-9)
    assert traces.mean() == pytest.approx(
        np.trace(dense), abs=4 * traces.std() / len(traces) ** 0.5
    )


def test_planted_eigenvalues_are_found_at_both_ends():
    _, basis, product = planted(BULK)
    found = extremes(product, len(BULK), 2)
    assert found.converged
    assert found.values == pytest.approx([5.0, 3.0, -0.5, -2.0], abs=1e-6)
    for at, column in enumerate((0, 1, -2, -1)):
        assert abs(found.vectors[:, at] @ basis[:, column]) == pytest.approx(1.0, abs=1e-5)
    assert found.products > 4


def test_a_solver_that_is_given_no_time_says_so_and_its_residual_covers_the_error():
    values = np.linspace(-1, 1, 300)
    _, _, product = planted(values)
    found = extremes(product, 300, 2, tolerance=1e-12, restarts=1)
    assert not found.converged
    assert found.residuals.max() > 1e-6
    for value, residual in zip(found.values, found.residuals, strict=True):
        assert np.abs(values - value).min() <= residual * (1 + 1e-6)


def test_the_papers_power_iteration_stops_in_the_bulk_where_lanczos_does_not():
    # A weak escape direction among many near 0: shifted by 6, they are -6 and -6.5.
    values = np.concatenate([[5.0], np.random.default_rng(1).normal(0, 1e-3, 4998), [-0.5]])
    basis = np.eye(5000)
    product = lambda v: values * v  # noqa: E731
    largest = power_iteration(product, 5000)
    assert largest.value == pytest.approx(5.0, abs=1e-6)
    assert largest.residual < 1e-6
    smallest = power_iteration(product, 5000, shift=largest.value + 1)
    assert smallest.iterations == 12
    assert smallest.value > -0.05
    assert abs(smallest.value + 0.5) > 0.4
    found = extremes(product, 5000, 1)
    assert found.values[-1] == pytest.approx(-0.5, abs=1e-6)
    assert abs(found.vectors[:, -1] @ basis[-1]) == pytest.approx(1.0, abs=1e-4)
    # The control: without the bulk it has nothing to stop at.
    two = np.array([5.0, -0.5])
    easy = power_iteration(lambda v: two * v, 2, shift=6.0)
    assert easy.value == pytest.approx(two[1], abs=0.01)


def test_spectral_nodes_of_a_planted_spectrum():
    values = np.repeat([4.0, 0.0, -1.0], [10, 250, 40])
    _, _, product = planted(values)
    rng = np.random.default_rng(0)
    drawn = [spectral_nodes(product, rng.choice([-1.0, 1.0], 300), 8) for _ in range(30)]
    for value, count in ((4.0, 10), (0.0, 250), (-1.0, 40)):
        share = [w[np.abs(n - value) < 1e-6].sum() for n, w in drawn]
        assert np.mean(share) == pytest.approx(count / 300, abs=4 * np.std(share) / 30**0.5)
    # Three eigenvalues span three dimensions: the iteration ends there, and is exact.
    assert all(len(nodes) == 3 for nodes, _ in drawn)


def test_the_krylov_basis_is_orthonormal_and_makes_the_matrix_tridiagonal():
    matrix, _, product = planted(BULK)
    basis, diagonal, beside = lanczos(product, np.ones(len(BULK)), 30)
    assert basis.T @ basis == pytest.approx(np.eye(30), abs=1e-10)
    tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    assert basis.T @ matrix @ basis == pytest.approx(tridiagonal, abs=1e-8)


@pytest.fixture(scope="module")
def reference_answer(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECHINTERP_CACHE", str(tmp_path_factory.mktemp("cache")))
        root = Path(__file__).parents[2] / "checkpoints" / "reference"
        request = Curvature(
            run="marginals-k20", root=root, steps=(2000,), examples=4, eigenvalues=1, probes=2,
            lanczos=4,
        )  # fmt: skip
        first = curvature.answer(request)
        patch.setattr(Run, "model", None)  # the second time, no model is built
        second = curvature.answer(request)
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, second.tables[name])
    return first


def test_the_reference_run(reference_answer):
    point = reference_answer.tables["points"].iloc[0]
    assert point["n_parameters"] == 807720
    assert point["lambda_max"] > point["lambda_max_residual"] > 0
    assert point["lambda_max"] > point["lambda_min"]
    assert point["products"] > 2
    assert point["grad_norm"] > 0.01
    assert reference_answer.tables["density"].groupby("step")["weight"].sum().item() == (
        pytest.approx(1.0)
    )
    assert "paper" in reference_answer.summary[1]
    assert len(reference_answer.figures) == 3
    assert all(figure.data for figure in reference_answer.figures.values())


def test_noise_by_per_example_gradients(tiny_runs):
    request = Curvature(
        run="lookup-6", root=tiny_runs, steps=(40,), examples=5, eigenvalues=1, probes=40, lanczos=3
    )
    answer = curvature.answer(request)
    run = Run.open("lookup-6", tiny_runs)
    model, tokens = run.model(40), run.task().evaluation(5)
    scored = torch.tensor(run.task().scored)
    each = []
    for row in tokens:
        grads = torch.autograd.grad(
            scored_loss(model, row[None], scored), list(model.parameters()), materialize_grads=True
        )
        each.append(torch.cat([g.flatten() for g in grads]).double())
    gradients = torch.stack(each)
    point = answer.tables["points"].iloc[0]
    total = gradients.var(dim=0).sum().item()
    assert point["noise_trace"] == pytest.approx(total, abs=5 * point["noise_trace_se"])
    assert point["grad_norm"] == pytest.approx(gradients.mean(0).norm().item(), rel=1e-4)
    unseen = 1 - 5 / run.task().n_examples
    noise = (point["noise_trace"] * unseen / 5) ** 0.5
    assert point["grad_norm_of_noise"] == pytest.approx(noise)
    rows = answer.tables["directions"]
    assert (rows["gradient_cosine"] <= 1).all()
    average = point["noise_trace"] / point["n_parameters"]
    assert rows["noise_ratio"].to_numpy() == pytest.approx(rows["noise_along"] / average)
    assert rows["noise_along"].max() < total


def test_sampling_noise_from_a_finite_table():
    """How far do mean gradients of distinct members of a table scatter around that of them all?"""
    table = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    subsets = torch.combinations(torch.arange(12), 5)
    scatter = (table[subsets].mean(1) - table.mean(0)).square().sum(-1).mean().item()
    rows = curvature_rows_of_noise(table.var(dim=0).sum().item())
    found = curvature.curvature_tables(rows, 5, 5 / 12)["points"]["grad_norm_of_noise"]
    assert found.tolist() == pytest.approx([scatter**0.5])
    forever_new = curvature.curvature_tables(rows, 5, 0.0)["points"]["grad_norm_of_noise"]
    assert forever_new[0] > 1.2 * scatter**0.5
    everything = curvature.curvature_tables(rows, 12, 1.0)["points"]["grad_norm_of_noise"]
    assert everything.tolist() == [0.0]


def curvature_rows_of_noise(noise_trace: float) -> pd.DataFrame:
    """Rows of one step of which only the noise counts."""
    names = ("loss", "grad_norm", "n_parameters", "products", "converged", "trace", "noise_trace")
    names += ("eigenvalue", "gradient_along", "noise_along", "node", "paper_max", "paper_min")
    values = {name: noise_trace if name == "noise_trace" else 1.0 for name in names}
    return pd.DataFrame(
        [
            {"step": 0, "quantity": name, "index": 0, "value": value, "error": 0.0}
            for name, value in values.items()
        ]
    )


@pytest.mark.parametrize(
    ("gradient", "smallest", "residual", "words"),
    [
        (0.4, -1.0, 0.01, "no critical point"),
        (0.01, -1.0, 0.01, "a saddle"),
        (0.01, 1e-4, 1e-6, "a minimum"),
        (0.01, -1e-4, 1e-3, "not settled"),
    ],
)
def test_verdicts(gradient, smallest, residual, words):
    point = pd.Series(
        {"grad_norm": gradient, "lambda_min": smallest, "lambda_min_residual": residual}
    )
    assert words in verdict(point)


def test_what_is_refused(tiny_runs):
    def refused(match, **options):
        with pytest.raises(InputError, match=match):
            curvature.answer(Curvature(root=tiny_runs, **options))

    refused(r"short has 2 checkpoints; curvature needs at least 3: .*--save-every", run="short")
    refused(r"no checkpoint at step 7; the nearest are", run="lookup-6", steps=(7,))
    refused(r"examples is 1; it has to be at least 2", run="lookup-6", examples=1)
    refused(r"eigenvalues is 0", run="lookup-6", eigenvalues=0)
    run = Run.open("lookup-6", tiny_runs)
    assert curvature.choose_steps(run, Curvature(checkpoints=3)) == [0, 64, 120]
