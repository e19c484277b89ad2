"""The loss of the symmetric model over beta and delta: plateau, cliff and valley."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention, losses

BETAS = tuple(np.linspace(-1.0, 6.0, 29).tolist())
DELTAS = tuple(np.linspace(-1.0, 9.0, 41).tolist())


def loss_landscape(
    sample: ChainSample,
    betas: Sequence[float] = BETAS,
    deltas: Sequence[float] = DELTAS,
    alpha: float = 0.0,
    mu: float = 0.0,
) -> pd.DataFrame:
    """How large is the loss at every beta and delta?

    Args:
        sample: the chains; the loss is the mean over them.
        betas: values of beta.
        deltas: values of delta.
        alpha: layer 1's score of equal states.
        mu: share of layer 1's output in the values.

    Returns:
        One row for each pair: `beta`, `delta`, `loss` and `excess` (nats; KL of the model to the
        true row). Costs one forward pass for each: the default grid on 1000 chains of 100 states
        takes about 5 s.

    Raises:
        InputError: an empty grid, or a value out of range.
    """
    if not len(betas) or not len(deltas):
        raise InputError(
            f"the grid has {len(betas)} betas and {len(deltas)} deltas; give at least one of each"
        )
    least = sample.entropy
    rows = []
    for beta in betas:
        for delta in deltas:
            model = SymmetricAttention(float(beta), float(delta), alpha, mu)
            loss = losses(model, sample).mean().item()
            rows.append((model.beta, model.delta, loss, loss - least))
    return pd.DataFrame(rows, columns=pd.Index(["beta", "delta", "loss", "excess"]))
