"""The loss around a point: its gradient, products with its Hessian, and slopes of every example."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer

Vector = Float[np.ndarray, " parameter"]


def example_losses(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], scored: Sequence[int]
) -> Float[Tensor, " batch"]:
    """Gives each example's mean next-token cross-entropy (nats) over the scored positions.

    Its mean over the batch is the loss that a run is trained on.
    """
    positions = torch.tensor(scored)
    logits = model(tokens[:, : int(positions[-1]) + 1])[:, positions]
    targets = tokens[:, positions + 1]
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none"
    )
    return losses.unflatten(0, targets.shape).mean(1)


@dataclass(frozen=True)
class Surface:
    """The mean loss of a fixed batch as a function of all weights, to second order.

    Attributes:
        loss: mean over the examples, nats.
        gradient: of the mean loss.
        product: gives H v for a vector v, by a backward pass through the gradient's own graph;
            costs about two backward passes, and is exact but for rounding.
        slopes: gives, for a vector v, every example's directional derivative g_i . v.
    """

    loss: float
    gradient: Vector
    product: Callable[[Vector], Vector]
    slopes: Callable[[Vector], Float[np.ndarray, " batch"]]

    @classmethod
    def of(
        cls, losses: Callable[[], Float[Tensor, " batch"]], parameters: Sequence[Tensor]
    ) -> "Surface":
        """Takes the gradient once and keeps its graph.

        Args:
            losses: gives the loss of every example, differentiable in `parameters`.
            parameters: what the loss depends on; their order is that of the vectors.
        """
        values = losses()
        # The share of every example is a variable too: the derivative of g . v in it is g_i . v,
        # so per-example slopes need no per-example gradients.
        shares = torch.full_like(values, 1 / len(values)).requires_grad_()
        flat = _flat(torch.autograd.grad(
            values, parameters, shares, create_graph=True, materialize_grads=True
        ))  # fmt: skip

        def along(v: Vector, of: Sequence[Tensor]) -> Tensor:
            seed = torch.as_tensor(v, dtype=flat.dtype)
            found = torch.autograd.grad(flat, of, seed, retain_graph=True, materialize_grads=True)
            return _flat(found)

        return cls(
            float(values.detach().mean()),
            flat.detach().double().numpy(),
            lambda v: along(v, parameters).double().numpy(),
            lambda v: along(v, [shares]).double().numpy(),
        )


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])
