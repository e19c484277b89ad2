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
        cls, losses: Sequence[Callable[[], Float[Tensor, " part"]]], parameters: Sequence[Tensor]
    ) -> "Surface":
        """Takes the gradient once and keeps its graph.

        Args:
            losses: each gives the loss of every example of one part of the batch, differentiable
                in `parameters`; small parts stay in the processor's cache.
            parameters: what the loss depends on; their order is that of the vectors.
        """
        values = [part() for part in losses]
        n_examples = sum(len(part) for part in values)
        # The share of every example is a variable too: the derivative of g . v in it is g_i . v,
        # so per-example slopes need no per-example gradients.
        shares = [torch.full_like(part, 1 / n_examples).requires_grad_() for part in values]
        gradients = [
            _flat(torch.autograd.grad(
                part, parameters, share, create_graph=True, materialize_grads=True
            ))
            for part, share in zip(values, shares, strict=True)
        ]  # fmt: skip

        def along(v: Vector, of: Sequence[Sequence[Tensor]]) -> list[np.ndarray]:
            seed = torch.as_tensor(v, dtype=gradients[0].dtype)
            found = (
                torch.autograd.grad(part, own, seed, retain_graph=True, materialize_grads=True)
                for part, own in zip(gradients, of, strict=True)
            )
            return [_flat(each).double().numpy() for each in found]

        return cls(
            float(torch.cat(values).detach().mean()),
            np.sum([part.detach().double().numpy() for part in gradients], axis=0),
            lambda v: np.sum(along(v, [parameters] * len(gradients)), axis=0),
            lambda v: np.concatenate(along(v, [[share] for share in shares])),
        )


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])
