"""What would the model say if it stopped at this layer?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError, refuse_other_kinds
from circuits.heads import check_batch, check_model, check_tokens
from circuits.intervals import mean_interval
from circuits.metrics import scored_positions
from circuits.provenance import provenance
from circuits.restart import read_out, record
from circuits.undisturbed import undisturbed

_UNITS = ("probability", "rank", "entropy", "loss")


@dataclass(frozen=True)
class LogitLens:
    """Readings of the residual stream.

    Attributes:
        table: one row a stream, from `embed` over `resid_post 0` to the last layer, with the
            columns `stream`, `layer` (-1 for `embed`) and, for each of `probability` (of the
            target), `rank` (1 is best), `entropy` and `loss` (nats), its mean and interval:
            `probability`, `probability_low`, `probability_high`, and so on.
        per_example: each reading under its name, the mean over scored positions of an example.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: dict[str, Float[Tensor, "streams batch"]]
    provenance: dict[str, Any]


def logit_lens(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, "target_batch scored"] | None = None,
    scored: Sequence[int] | None = None,
) -> LogitLens:
    """At which layer does the residual stream, read out as it is, know the answer?

    The stream before the first layer and after every layer goes through the final norm
    (recomputed on it) and the unembedding, biases included (nostalgebraist, 2020). Costs one
    forward pass and one read-out a layer at the scored positions.

    Args:
        model: a HookedTransformer, left as it was found.
        tokens: the sequences.
        targets: the right token at each scored position; the next token of the sequence if not
            given.
        scored: positions to read; all with a next token if not given.

    Returns:
        The readings; the last row is what the model itself says. Tokens with equal logits share
        the mean of their ranks, so that a stream that says nothing has rank (d_vocab + 1) / 2.

    Raises:
        InputError: for a batch that the model cannot read, a position out of range, or targets
            of another shape or outside the vocabulary.
    """
    check_model(model)
    check_batch("tokens", tokens)
    read = scored_positions("loss" if targets is None else "kl", scored, tokens.shape[1])
    used = max(read) + 1 if model.cfg.attention_dir == "causal" else tokens.shape[1]
    check_tokens(model, tokens, "tokens", used)
    wanted = answer_tokens(model, tokens, targets, read, "targets")
    with undisturbed(model):
        recording = record(model, tokens[:, :used], read, ("resid_pre", "resid_post"))
        streams = (recording["resid_pre"][0], *recording["resid_post"])
        readings = [_reading(read_out(model, x[:, list(read)]), wanted) for x in streams]
    per_example = {name: torch.stack([reading[name] for reading in readings]) for name in _UNITS}
    table = pd.DataFrame(
        {
            "stream": ["embed", *(f"resid_post {n}" for n in range(model.cfg.n_layers))],
            "layer": range(-1, model.cfg.n_layers),
        }
    )
    for name, values in per_example.items():
        mean, low, high = mean_interval(values)
        table[name] = mean.tolist()
        table[f"{name}_low"], table[f"{name}_high"] = low.tolist(), high.tolist()
    facts = provenance(model, tokens, scored=list(read), targets=targets, norm="recomputed")
    return LogitLens(table, per_example, facts)


def answer_tokens(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    given: Int[Tensor, "target_batch scored"] | None,
    read: tuple[int, ...],
    argument: str,
) -> Int[Tensor, "batch scored"]:
    """Gives the right token at each scored position, the next one of the sequence by default.

    Raises:
        InputError: if those given have another shape or are outside the vocabulary.
    """
    if given is None:
        return tokens[:, [position + 1 for position in read]]
    refuse_other_kinds(argument, given, Tensor, "a tensor [batch, scored] of ids")
    if tuple(given.shape) != (tokens.shape[0], len(read)):
        raise InputError(
            f"{argument} has shape {tuple(given.shape)}; with {tokens.shape[0]} examples and "
            f"{len(read)} scored positions it must be ({tokens.shape[0]}, {len(read)})"
        )
    check_tokens(model, given, argument, 1)
    return given


def _reading(
    logits: Float[Tensor, "batch scored d_vocab"], target: Int[Tensor, "batch scored"]
) -> dict[str, Float[Tensor, " batch"]]:
    chosen = logits.gather(-1, target[..., None])
    log_p = logits.log_softmax(-1)
    loss = -log_p.gather(-1, target[..., None])[..., 0]
    above = (logits > chosen).sum(-1)
    equal = (logits == chosen).sum(-1)
    return {
        "probability": (-loss).exp().mean(-1),
        "rank": (above + (equal + 1) / 2).to(logits.dtype).mean(-1),
        "entropy": -(log_p.exp() * log_p).nan_to_num().sum(-1).mean(-1),
        "loss": loss.mean(-1),
    }
