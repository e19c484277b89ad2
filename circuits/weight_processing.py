"""Folded or centred weights on request: a copy, held against the model it came from."""

import copy
from typing import Any

from jaxtyping import Int
from torch import Tensor

from circuits.errors import InputError
from circuits.undisturbed import undisturbed

LARGEST_GAP = 1e-4
"""Largest difference of log-probabilities, in nats, between a processed model and the raw one."""


def processed_copy(model: Any, tokens: Int[Tensor, "batch pos"], **options: bool) -> Any:
    """Gives a copy of a model with TransformerLens's weight processing, if that changes nothing.

    Processing moves zero-ablation effects by tenths, so nothing in this package does it unasked.
    With an output soft cap or shortformer positions it changes the model's predictions too; such a
    copy is refused. The copy costs the model's memory and two forward passes.

    Args:
        model: a HookedTransformer; left as found.
        tokens: the batch on which the two are compared.
        options: as for `HookedTransformer.process_weights_`: `fold_ln`, `center_writing_weights`,
            `center_unembed`, `refactor_factored_attn_matrices`.

    Returns:
        The processed copy.

    Raises:
        InputError: log-probabilities differ by more than 1e-4 somewhere on the batch.
    """
    with undisturbed(model):
        other = copy.deepcopy(model)
        other.process_weights_(**options)
        gap = (_log_probs(model, tokens) - _log_probs(other, tokens)).abs().max().item()
    if not gap <= LARGEST_GAP:
        asked = ", ".join(f"{k}={v}" for k, v in options.items()) or "defaults"
        raise InputError(
            f"process_weights_ ({asked}) changes this model: log-probabilities move by up to "
            f"{gap:.1e}, more than {LARGEST_GAP:.0e}; use the weights as they are"
        )
    return other


def _log_probs(model: Any, tokens: Tensor) -> Tensor:
    return model(tokens).double().log_softmax(-1)
