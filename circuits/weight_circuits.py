"""What do a head's weights say, read through the embedding and the unembedding?

All maps are kept as a product `left @ right` through the narrow d_head, so that nothing of size
d_vocab x d_vocab is ever made: the definitions are those of Elhage et al. (2021), "A mathematical
framework for transformer circuits", and of the statistical induction head (arXiv 2604.12151).

Norms: their gain (and the centring of LN) is part of the map, their division by a scale is not.
Positions are left out; with rotary positions a QK map is the one at offset 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError, whole_numbers
from circuits.heads import parse_head
from circuits.model_weights import ModelWeights, Norm, read_weights

_Q, _K, _V = range(3)


@dataclass(frozen=True)
class FactoredMap:
    """A map of low rank between tokens (or residual streams), `left @ right`.

    Attributes:
        left: from what indexes the rows.
        right: to what indexes the columns.
    """

    left: Float[Tensor, "row rank"]
    right: Float[Tensor, "rank column"]

    def full(self) -> Float[Tensor, "row column"]:
        """The map as one matrix."""
        return self.left @ self.right

    def norm(self) -> float:
        """Frobenius norm, from matrices of the size of the rank."""
        squared = ((self.left.T @ self.left) * (self.right @ self.right.T)).sum()
        return max(float(squared), 0.0) ** 0.5

    def centred(self) -> "FactoredMap":
        """The map without the means of its rows and columns."""
        return FactoredMap(
            self.left - self.left.mean(0, keepdim=True),
            self.right - self.right.mean(1, keepdim=True),
        )


def ov_map(
    model: Any, head: str, tokens: Sequence[int] | None = None, weights: ModelWeights | None = None
) -> FactoredMap:
    """What does a head add to the logits of each token (columns) when it looks at one (rows)?

    Embedding, W_V, W_O, unembedding: the direct path alone, as if the head read the embedding.

    Args:
        model: a HookedTransformer.
        head: for example "L1H0".
        tokens: vocabulary ids to keep in rows and columns; all of them if None.
        weights: the model's weights, if they were read already.

    Returns:
        The map in float64, in logits before the final norm's division.

    Raises:
        InputError: no such head, or a token outside the vocabulary.
    """
    layer, index = parse_head(model, head)
    weights, ids = weights or read_weights(model), _ids(model, tokens)
    attention = weights.attention[layer]
    seen = _through(attention.norm, _embedded(model, ids))
    write = _through(weights.final_norm, attention.W_O[index].double())
    return FactoredMap(
        seen @ attention.W_qkv[:, _V, index].double(), write @ weights.W_U[:, ids].double()
    )


def qk_map(
    model: Any,
    head: str,
    source: str | None = None,
    tokens: Sequence[int] | None = None,
    weights: ModelWeights | None = None,
) -> FactoredMap:
    """How much does a query token (rows) raise the score of a key token (columns)?

    Args:
        model: a HookedTransformer.
        head: whose scores, for example "L1H0".
        source: an earlier head whose output is the key: the columns are then the tokens that
            *that* head looked at, which for a previous-token head are the tokens before the key.
            None for the embedding itself.
        tokens: vocabulary ids to keep; all of them if None.
        weights: the model's weights, if they were read already.

    Returns:
        The map in float64, in units of the attention scores.

    Raises:
        InputError: no such head, a source that is not in an earlier layer, or a bad token.
    """
    layer, index = parse_head(model, head)
    weights, ids = weights or read_weights(model), _ids(model, tokens)
    attention, embedded = weights.attention[layer], _embedded(model, ids)
    key = embedded if source is None else _written(model, weights, source, layer, embedded)
    query = _through(attention.norm, embedded) @ attention.W_qkv[:, _Q, index].double()
    key = _through(attention.norm, key) @ attention.W_qkv[:, _K, index].double()
    return FactoredMap(query / attention.scale, key.T)


def eigenvalue_copying(square: FactoredMap) -> float:
    """Does a square map favour copying? Sum of its eigenvalues over the sum of their sizes.

    1 when every eigenvalue is positive (each token raises itself), -1 when all are negative, near
    0 on average for random weights (Elhage et al., 2021). The eigenvalues are those of the small
    product `right @ left`; 0 for a map that is 0.
    """
    values = torch.linalg.eigvals(square.right @ square.left)
    size = float(values.abs().sum())
    return float(values.real.sum()) / size if size > 0 else 0.0


def identity_cosine(square: FactoredMap) -> float:
    """How much is a square map, its rows and columns centred, like the identity?

    The cosine between the two matrices; its square is the R^2 of explaining the centred map by a
    multiple of the (centred) identity. Its size is about 1/n for random n x n maps; 0 for a map
    that is constant along rows or columns.
    """
    centred = square.centred()
    n, norm = centred.left.shape[0], centred.norm()
    if n < 2 or norm <= 1e-12 * max(square.norm(), 1e-300):
        return 0.0
    trace = float((centred.left * centred.right.T).sum())
    return trace / (norm * (n - 1) ** 0.5)


def k_composition_ratio(
    model: Any, source: str, head: str, weights: ModelWeights | None = None
) -> float:
    """How much of what one head writes can move the keys of a later one, by weights alone?

    ||W_OV W_K W_Q^T|| / (||W_OV|| ||W_QK||), Frobenius norms (Elhage et al., 2021). Between 0 and
    1, and about 1/sqrt(d_model) for random weights. Weights do not know what the model does with
    them: `k_composition` measures the edge beside it.

    Raises:
        InputError: no such head, or the source is not in an earlier layer.
    """
    (layer, index), (later, reader) = parse_head(model, source), parse_head(model, head)
    _refuse_same_layer(source, layer, head, later)
    weights = weights or read_weights(model)
    written, reading = weights.attention[layer], weights.attention[later]
    value, out = written.W_qkv[:, _V, index].double(), written.W_O[index].double()
    query, key = (reading.W_qkv[:, x, reader].double() for x in (_Q, _K))
    joint = FactoredMap(value, out @ key @ query.T).norm()
    alone = FactoredMap(value, out).norm() * FactoredMap(query, key.T).norm()
    return joint / alone if alone > 0 else 0.0


def _written(
    model: Any, weights: ModelWeights, source: str, later: int, embedded: Tensor
) -> Float[Tensor, "token d_model"]:
    """What an earlier head writes when it looks at one token alone."""
    layer, index = parse_head(model, source)
    _refuse_same_layer(source, layer, f"L{later}", later)
    attention = weights.attention[layer]
    value = _through(attention.norm, embedded) @ attention.W_qkv[:, _V, index].double()
    return value @ attention.W_O[index].double()


def _refuse_same_layer(source: str, layer: int, head: str, later: int) -> None:
    if layer >= later:
        raise InputError(
            f"{source} is not in an earlier layer than {head}: only earlier heads feed its keys"
        )


def _embedded(model: Any, ids: list[int]) -> Float[Tensor, "token d_model"]:
    return model.W_E.detach().double()[ids]


def _ids(model: Any, tokens: Sequence[int] | None) -> list[int]:
    n_vocab = model.cfg.d_vocab
    ids = list(range(n_vocab)) if tokens is None else list(whole_numbers("vocabulary", tokens))
    if not ids or len(set(ids)) < len(ids) or any(not 0 <= token < n_vocab for token in ids):
        raise InputError(
            f"tokens={ids[:8]} must name different tokens of the vocabulary, 0 to {n_vocab - 1}"
        )
    return ids


def _through(norm: Norm, rows: Tensor) -> Tensor:
    """The linear part of a norm, on rows of `d_model`."""
    if norm.kind == "layer":
        rows = rows - rows.mean(-1, keepdim=True)
    return rows if norm.w is None else rows * norm.w.double()
