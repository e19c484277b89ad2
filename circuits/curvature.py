"""What would cutting each edge cost, to second order? Slope and Fisher information, from draws.

KL(p_full || p) is least at the full model, where its slope is zero. Its second derivative by the
logits, like the cross-entropy's, is the Fisher information of the model's own prediction p, which
is the mean of s s^T over draws y ~ p, with s = onehot(y) - p the score. So one backward pass from a
drawn score gives, for all edges at once, a first-order product whose square is an unbiased estimate
of the curvature along each edge's change (draws of different positions are independent and have
mean zero, so cross terms vanish on average).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit_measure import CircuitMeasure
from circuits.circuit_model import CircuitModel, CircuitRun
from circuits.circuit_run import run_circuit
from circuits.gradient_products import gradient_products, logit_gradient, slabs


def curvature_costs(
    measure: CircuitMeasure,
    run: CircuitRun,
    n_draws: int,
    seed: int = 0,
    memory_budget: int | None = None,
) -> Float[Tensor, "edge batch"]:
    """Estimates how much cutting each edge alone adds to a named metric, "kl" or "loss".

    The change of what the reader reads is taken through the rest of the model to first order, and
    the metric to second order in the logits. It costs a recorded pass (about 8 plain forward passes
    with the slope) and 2 for every draw. Rank correlation with exact KL effects was 0.99 with 8
    draws on a 479-edge model whose edges' effects spread over many orders of magnitude.

    Args:
        measure: the checked input.
        run: of any circuit, relative to which edges are cut.
        n_draws: draws of y for every example and position.
        seed: of the draws; global random state is not touched.
        memory_budget: bytes; None for 2 GiB.

    Returns:
        Estimates in nats for every edge of the graph; meaningless for edges that the run has cut.
    """
    prepared, model = measure.prepared, measure.model
    slope = logit_gradient(prepared, run.logits)
    generator = torch.Generator().manual_seed(seed)
    found = [
        _slab_costs(model.rows(slab), run.kept, slope[slab], n_draws, generator)
        for slab in slabs(prepared, memory_budget)
    ]
    return torch.cat(found, dim=-1)


def _slab_costs(
    part: CircuitModel, kept: Tensor, slope: Tensor, n_draws: int, generator: torch.Generator
) -> Float[Tensor, "edge batch"]:
    with torch.enable_grad():
        run = run_circuit(part, kept, record=True)
    inputs = list(run.inputs.values())

    def products(direction: Tensor, more: bool) -> Tensor:
        found = torch.autograd.grad(
            run.logits, inputs, direction, retain_graph=more, materialize_grads=True
        )
        gradients = dict(zip(run.inputs, found, strict=True))
        return part.wiring.gather(gradient_products(part, run, gradients))

    first = products(slope, True)
    probability = run.logits.detach().softmax(-1)
    weight = _weights(part).to(probability)
    squares = torch.zeros_like(first)
    for draw in range(n_draws):
        score = _drawn(probability, generator) - probability
        squares += products(score * weight.sqrt(), draw < n_draws - 1).square()
    return first + squares / (2 * n_draws)


def _drawn(probability: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot draws, the same on every device."""
    rows = probability.flatten(0, 1).cpu()
    drawn = torch.multinomial(rows, 1, generator=generator).view(probability.shape[:2])
    return torch.nn.functional.one_hot(drawn, probability.shape[-1]).to(probability)


def _weights(part: CircuitModel) -> Tensor:
    """Of each scored position in its example's mean, `"batch scored 1"`."""
    real, n = part.batch.placement.real, len(part.scored)
    if real is None:
        return torch.full((1, n, 1), 1 / n)
    seen = real[:, list(part.scored)].double()
    return (seen / seen.sum(1, keepdim=True).clamp_min(1))[..., None]
