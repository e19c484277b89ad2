"""Which heads look at the previous token, match and copy: induction heads, also statistical ones.

A plain induction head looks at the position after an earlier occurrence of the current token. A
statistical one spreads evenly over *all* such positions, so that what it reads out is the bigram
frequency. A head that pools everything evenly is neither: its match score is 0 and its evenness 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.heads import check_batch, check_tokens, head_names, parse_head
from circuits.intervals import mean_interval
from circuits.matching import attention_scores, query_positions, uniform_pattern
from circuits.model_weights import read_weights
from circuits.provenance import provenance
from circuits.restart import record
from circuits.undisturbed import undisturbed
from circuits.weight_circuits import eigenvalue_copying, identity_cosine, ov_map

SCORES = ("previous_token", "prefix_matching", "match", "matched_uniformity", "evenness")
"""Scores of attention, one value an example; each has a column with its name, `_low`, `_high`."""
WEIGHT_SCORES = ("copying", "readout_cosine", "readout_r2")
"""Scores of the weights, which have no sampling error."""


@dataclass(frozen=True)
class InductionScores:
    """Induction scores of every head.

    Attributes:
        table: one row a head: `head`, `layer`, `index`, each of `SCORES` with `_low` and `_high`,
            and `WEIGHT_SCORES`. `matched_uniformity` is missing where no query has two matches.
        uniform: what a head with uniform attention scores on the same tokens, by score.
        per_example: the values behind each score, `"head example"`; examples without a query that
            the score is defined at are left out.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    uniform: dict[str, float]
    per_example: dict[str, Float[Tensor, "head example"]]
    provenance: dict[str, Any]

    def best(self, score: str, after: str | None = None) -> str:
        """Name of the head with the highest score.

        Args:
            score: a score's name.
            after: only heads in layers after this head's.

        Raises:
            InputError: an unknown score, or no head after that one.
        """
        if score not in (*SCORES, *WEIGHT_SCORES):
            known = ", ".join((*SCORES, *WEIGHT_SCORES))
            raise InputError(f"score={score!r} is not known; choose one of {known}")
        layers = dict(zip(self.table["head"], self.table["layer"], strict=True))
        if after is not None and after not in layers:
            raise InputError(f"{after!r} is not in this table: {', '.join(layers)}")
        first = -1 if after is None else layers[after]
        values = zip(layers, self.table[score].astype(float), strict=True)
        found = [(value, head) for head, value in values if layers[head] > first]
        if not found:
            raise InputError(f"no head lies in a layer after {after}")
        return max(found, key=lambda pair: pair[0])[1]


def induction_scores(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    queries: Sequence[int] | None = None,
    vocabulary: Sequence[int] | None = None,
) -> InductionScores:
    """Which head finds the previous token, which one matches, and which one copies?

    For query positions n (means over them, then over examples):

    - `previous_token`: attention from n to n-1.
    - `prefix_matching`: attention from n to the positions after earlier occurrences of x_n, at
      queries that have any (Olsson et al., 2022).
    - `match`: the same above uniform attention, (mass - uniform) / (1 - uniform): 0 for a head that
      does not match, 1 for one that does nothing else, negative for one that avoids matches.
    - `matched_uniformity`: inside the matched set, entropy of the (renormalised) attention over its
      maximum, at queries with two matches or more: 1 for a statistical induction head, 0 for one
      that picks a single match. It means something only where `match` is high.
    - `evenness`: entropy of the whole attention over its maximum, log(n + 1): 1 for uniform pooling
      (the paper's "2-Mem" attention), low for a sharp head.

    From weights, through embedding and unembedding: `copying` (`eigenvalue_copying` of the OV map),
    `readout_cosine` (`identity_cosine`) and `readout_r2`, its square.

    Args:
        model: a HookedTransformer with any positions: scores come from its actual attention.
        tokens: sequences in which tokens repeat.
        queries: positions to average over; all but the first if not given.
        vocabulary: token ids that the weight scores are about; all if not given.

    Returns:
        The scores, shares between 0 and 1 but for `match`, `copying`, `readout_cosine` (from -1).
        Costs one forward pass and some d_head x d_head products.

    Raises:
        InputError: bad tokens or positions; no token that occurs twice.
    """
    check_batch("tokens", tokens)
    check_tokens(model, tokens, "tokens", tokens.shape[1])
    n_pos = tokens.shape[1]
    chosen = query_positions(queries, n_pos)
    with undisturbed(model):
        patterns = record(model, tokens, (n_pos - 1,), ("pattern",))["pattern"]
    found = [attention_scores(layer, tokens, chosen) for layer in patterns]
    flat = uniform_pattern(n_pos, tokens.device).expand(tokens.shape[0], 1, n_pos, n_pos)
    uniform = attention_scores(flat, tokens, chosen)
    per_example = {score: torch.cat([part[score] for part in found]) for score in SCORES}
    return InductionScores(
        _table(model, per_example, vocabulary),
        {k: float(v.mean()) if v.numel() else float("nan") for k, v in uniform.items()},
        per_example,
        provenance(
            model,
            tokens,
            queries=list(chosen),
            vocabulary="all" if vocabulary is None else [int(token) for token in vocabulary],
        ),
    )


def _table(
    model: Any, per_example: dict[str, Tensor], vocabulary: Sequence[int] | None
) -> pd.DataFrame:
    names = head_names(model)
    heads = [parse_head(model, name) for name in names]
    columns: dict[str, Any] = {
        "head": names,
        "layer": [layer for layer, _ in heads],
        "index": [index for _, index in heads],
    }
    for score, values in per_example.items():
        missing = torch.full((len(names),), float("nan"))
        bounds = mean_interval(values) if values.shape[1] else (missing,) * 3
        for suffix, column in zip(("", "_low", "_high"), bounds, strict=True):
            columns[score + suffix] = column.tolist()
    columns |= {score: [] for score in WEIGHT_SCORES}
    weights = read_weights(model)
    for name in names:
        ov = ov_map(model, name, vocabulary, weights)
        cosine = identity_cosine(ov)
        columns["copying"].append(eigenvalue_copying(ov))
        columns["readout_cosine"].append(cosine)
        columns["readout_r2"].append(cosine**2)
    return pd.DataFrame(columns)
