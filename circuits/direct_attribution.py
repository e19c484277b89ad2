"""Which head or MLP writes the answer into the logits, directly?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.heads import check_batch, check_model, check_tokens
from circuits.intervals import mean_interval
from circuits.lens import answer_tokens
from circuits.metrics import scored_positions
from circuits.provenance import provenance
from circuits.restart import Recording, read_out, record
from circuits.undisturbed import undisturbed

BIAS = "bias"
_SMALL = 1e-4


@dataclass(frozen=True)
class LogitAttribution:
    """Shares of a logit difference.

    Attributes:
        table: one row a source (`bias`, `embed`, `L0H0`, ..., `M0`, ...) with `source`,
            `contribution`, `low`, `high`, in logits.
        per_example: the values behind it, the mean over scored positions of an example.
        total: the logit difference of the model, the sum of all contributions.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: Float[Tensor, "sources batch"]
    total: Float[Tensor, " batch"]
    provenance: dict[str, Any]


def logit_attribution(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    answers: Int[Tensor, "answer_batch scored"] | None = None,
    contrasts: Int[Tensor, "contrast_batch scored"] | None = None,
    scored: Sequence[int] | None = None,
    norm: Literal["frozen", "recomputed"] | str = "frozen",
) -> LogitAttribution:
    """How much does each source add to the logit of the answer over that of the contrast?

    The final residual stream is the sum of what the embedding, each head and each MLP wrote, and
    constant biases. With norm="frozen" each term is divided by the scale that the final norm had
    on the whole stream (Elhage et al., 2021), so the read-out is linear and the order of terms
    does not matter. With norm="recomputed" the terms are added up in causal order, the norm is
    computed anew after each, and a source's contribution is by how much its arrival moved the
    reading. Either way the contributions sum to the model's logit difference, which is checked.

    Args:
        model: a HookedTransformer, left as it was found.
        tokens: the sequences.
        answers: the token whose logit counts for, at each scored position; the next token of the
            sequence if not given.
        contrasts: the token whose logit counts against; the mean over the vocabulary if not given.
        scored: positions to read; all with a next token if not given.
        norm: what happens to the final norm.

    Returns:
        The contributions. `bias` holds every b_O, the bias of the final norm and b_U.

    Raises:
        InputError: for a batch that the model cannot read; for norm="frozen" on a model with an
            output soft cap, whose logits no linear read-out gives; for norms after attention,
            which mix the heads; or if the contributions do not sum to the logit difference.
    """
    check_batch("tokens", tokens)
    _check(model, norm)
    name = "loss" if answers is None else "kl"
    read = scored_positions(name, scored, tokens.shape[1])
    used = max(read) + 1 if model.cfg.attention_dir == "causal" else tokens.shape[1]
    check_tokens(model, tokens, "tokens", used)
    right = answer_tokens(model, tokens, answers, read, "answers")
    wrong = None
    if contrasts is not None:
        wrong = answer_tokens(model, tokens, contrasts, read, "contrasts")
    with undisturbed(model):
        names, writes, recording = _writes(model, tokens[:, :used], read)
        total = _difference(recording.logits, right, wrong)
        split = _frozen if norm == "frozen" else _recomputed
        shares = split(model, writes, right, wrong)
    _check_sum(shares, total)
    per_example = shares.mean(-1)
    columns = dict(zip(("contribution", "low", "high"), mean_interval(per_example), strict=True))
    table = pd.DataFrame({"source": names} | {k: v.tolist() for k, v in columns.items()})
    facts = provenance(
        model, tokens, norm=norm, scored=list(read), answers=answers, contrasts=contrasts
    )
    return LogitAttribution(table, per_example, total.mean(-1), facts)


def _check(model: Any, norm: str) -> None:
    check_model(model)
    if norm not in ("frozen", "recomputed"):
        raise InputError(f"norm={norm!r} is unknown; choose 'frozen' or 'recomputed'")
    if model.cfg.use_normalization_before_and_after:
        raise InputError(
            "this model normalises what attention wrote (use_normalization_before_and_after), so "
            "its heads do not add up in the residual stream; use logit_lens by layer instead"
        )
    if norm == "frozen" and model.cfg.output_logits_soft_cap > 0:
        raise InputError(
            f"the model caps its logits (output_logits_soft_cap="
            f"{model.cfg.output_logits_soft_cap}), so they are not linear in the stream; "
            "use norm='recomputed'"
        )


def _writes(
    model: Any, tokens: Int[Tensor, "batch pos"], read: tuple[int, ...]
) -> tuple[list[str], Float[Tensor, "sources batch scored d_model"], Recording]:
    """What every source wrote at the scored positions, constants first, in causal order."""
    streams = ["resid_pre", "z"] + ([] if model.cfg.attn_only else ["mlp_out"])
    recording = record(model, tokens, read, streams)
    where = list(read)
    embed = recording["resid_pre"][0][:, where]
    constant = torch.stack([block.attn.b_O for block in model.blocks]).sum(0)
    names = [BIAS, "embed"]
    writes = [constant.to(embed.dtype).expand_as(embed), embed]
    for layer, block in enumerate(model.blocks):
        z = recording["z"][layer][:, where]
        names += [f"L{layer}H{head}" for head in range(model.cfg.n_heads)]
        writes += list(torch.einsum("bphd,hdm->hbpm", z, block.attn.W_O))
        if not model.cfg.attn_only:
            names.append(f"M{layer}")
            writes.append(recording["mlp_out"][layer][:, where])
    return names, torch.stack(writes), recording


def _difference(
    logits: Float[Tensor, "*sources batch scored d_vocab"],
    right: Int[Tensor, "batch scored"],
    wrong: Int[Tensor, "batch scored"] | None,
) -> Float[Tensor, "*sources batch scored"]:
    """The answer's logit minus the contrast's, or minus the mean logit."""
    lead = logits.shape[:-1]
    chosen = logits.gather(-1, right.expand(lead)[..., None])[..., 0]
    if wrong is None:
        return chosen - logits.mean(-1)
    return chosen - logits.gather(-1, wrong.expand(lead)[..., None])[..., 0]


def _frozen(
    model: Any,
    writes: Float[Tensor, "sources batch scored d_model"],
    right: Int[Tensor, "batch scored"],
    wrong: Int[Tensor, "batch scored"] | None,
) -> Float[Tensor, "sources batch scored"]:
    kind = model.cfg.normalization_type
    weight_out, bias_out = model.unembed.W_U, model.unembed.b_U
    constant = torch.zeros_like(writes[0])
    if kind is not None:
        norm = model.ln_final
        if kind.startswith("LN") and not model.cfg.final_rms:
            writes = writes - writes.mean(-1, keepdim=True)
        scale = (writes.sum(0).pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
        writes = writes / scale * getattr(norm, "w", 1.0)
        constant = constant + getattr(norm, "b", 0.0)
    shares = torch.stack([_difference(write @ weight_out, right, wrong) for write in writes])
    shares[0] += _difference(constant @ weight_out + bias_out, right, wrong)
    return shares


def _recomputed(
    model: Any,
    writes: Float[Tensor, "sources batch scored d_model"],
    right: Int[Tensor, "batch scored"],
    wrong: Int[Tensor, "batch scored"] | None,
) -> Float[Tensor, "sources batch scored"]:
    sums = writes.cumsum(0)
    readings = torch.stack([_difference(read_out(model, x), right, wrong) for x in sums])
    return torch.cat([readings[:1], readings.diff(dim=0)])


def _check_sum(
    shares: Float[Tensor, "sources batch scored"], total: Float[Tensor, "batch scored"]
) -> None:
    low = shares.dtype in (torch.bfloat16, torch.float16)
    size = max(1.0, float(shares.abs().sum(0).max()))
    error = float((shares.sum(0) - total).abs().max())
    if not error <= (5e-2 if low else _SMALL) * size:
        raise InputError(
            f"the contributions miss the model's logit difference by {error:.2g}: this model adds "
            "something to its residual stream, or reads it, in a way that is not supported"
        )
