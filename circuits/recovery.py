"""What share of the gap between an empty and a full circuit is recovered, if there is a gap."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

CLEAR = 3.0
"""A gap counts when it is this many standard errors wide."""
ROUNDING = 1e-5
"""A gap below this share of the values themselves is rounding."""


@dataclass(frozen=True)
class Recovered:
    """A share, its 95 % bootstrap interval, and why it is undefined where it is."""

    value: float
    low: float
    high: float
    note: str = ""

    @property
    def defined(self) -> bool:
        """Whether there is a gap to recover."""
        return not self.note


def recovered(
    values: Float[Tensor, " batch"],
    full: Float[Tensor, " batch"],
    empty: Float[Tensor, " batch"],
    seed: int = 0,
    n_resamples: int = 2000,
) -> Recovered:
    """Gives (values - empty) / (full - empty), of means over examples.

    Examples are paired, so the gap's standard error is that of the mean of full - empty. Where the
    gap is not at least three standard errors wide, as at early checkpoints, the share says nothing
    and is undefined: NaN, with a note.

    Args:
        values: the metric on a circuit, one value an example.
        full: on the full circuit.
        empty: with all edges cut.
        seed: of the bootstrap draws.
        n_resamples: of the bootstrap.

    Returns:
        The share; 1 is the full circuit, 0 the empty one, and it may lie outside of both.
    """
    gap, part = (full - empty).double(), (values - empty).double()
    note = gap_note(gap, max(full.abs().max().item(), empty.abs().max().item()))
    if note:
        return Recovered(float("nan"), float("nan"), float("nan"), note)
    generator = torch.Generator().manual_seed(seed)
    n = len(gap)
    drawn = torch.randint(n, (n_resamples, n), generator=generator).to(gap.device)
    shares = part[drawn].mean(1) / gap[drawn].mean(1)
    low, high = shares.quantile(0.025).item(), shares.quantile(0.975).item()
    return Recovered((part.mean() / gap.mean()).item(), low, high)


def gap_note(gap: Float[Tensor, " batch"], size: float) -> str:
    """Says why a gap cannot be divided by; empty when it can.

    Args:
        gap: full - empty, one value an example.
        size: of the values whose difference the gap is.
    """
    if len(gap) < 2:
        return "undefined: one example says nothing about the gap's noise"
    mean = gap.mean().item()
    error = (gap.std() / len(gap) ** 0.5).item()
    if abs(mean) < CLEAR * error or abs(mean) <= ROUNDING * size:
        return f"undefined: full - empty is {mean:.3g} +- {error:.2g}, not clearly above its noise"
    return ""
