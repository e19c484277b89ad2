"""Noise added to the gradient: the question whether noise holds training back, made a setting."""

import torch
from transformer_lens import HookedTransformer


def add_noise(model: HookedTransformer, ratio: float, seed: int, step: int) -> None:
    """Adds isotropic Gaussian noise to every gradient, in proportion to the whole gradient's norm.

    The noise depends on the seed and the step alone, so a resumed run draws the same.

    Args:
        model: with gradients in place; they are changed.
        ratio: expected norm of the noise over the norm of the gradient.
        seed: of the run's data.
        step: updates made so far.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    scale = ratio * norm / sum(g.numel() for g in gradients) ** 0.5
    generator = torch.Generator().manual_seed(hash((seed, step)) % 2**63)
    for gradient in gradients:
        noise = torch.randn(gradient.shape, generator=generator)
        gradient += scale * noise.to(gradient.device)
