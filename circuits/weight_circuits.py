"""What do a head's weights say, read through the embedding and the unembedding?

All maps are kept as a product `left @ right` through the narrow d_head, so that nothing of size
d_vocab x d_vocab is ever made: the definitions are those of Elhage et al. (2021), "A mathematical
framework for transformer circuits", and of the statistical induction head in the paper notes.

Norms: their gain (and the centring of LN) is part of the map, their division by a scale is not.
Positions are left out; with rotary positions a QK map is the one at offset 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError
from circuits.head_names import head_of


@dataclass(frozen=True)
class FactoredMap:
    """A map between tokens, `left @ right`, of low rank.

    Attributes:
        left: from the tokens that index the rows.
        right: to the tokens that index the columns.
    """

    left: Float[Tensor, "row rank"]
    right: Float[Tensor, "rank column"]

    def full(self) -> Float[Tensor, "row column"]:
        """The map as one matrix."""
        return self.left @ self.right

    def norm(self) -> float:
        """Frobenius norm, from matrices of the size of the rank."""
        squared = ((self.left.T @ self.left) * (self.right @ self.right.T).T).sum()
        return max(float(squared), 0.0) ** 0.5

    def centred(self) -> "FactoredMap":
        """The map without the means of its rows and columns."""
        return FactoredMap(
            self.left - self.left.mean(0, keepdim=True),
            self.right - self.right.mean(1, keepdim=True),
        )


def ov_map(model: Any, head: str, tokens: Sequence[int] | None = None) -> FactoredMap:
    """What does a head add to the logits of each token (columns) when it looks at one (rows)?

    Embedding, W_V, W_O, unembedding: the direct path alone, as if the head read the embedding.

    Args:
        model: a HookedTransformer.
        head: for example "L1H0".
        tokens: vocabulary ids to keep in rows and columns; all of them if None.

    Returns:
        The map, in logits before the final norm's division.

    Raises:
        InputError: no such head, or a token outside the vocabulary.
    """
    layer, index = head_of(model, head)
    attn, ids = model.blocks[layer].attn, _ids(model, tokens)
    read = _through(model.blocks[layer].ln1, _double(model.W_E)[ids])
    final = getattr(model, "ln_final", None)
    write = _double(model.W_U)[:, ids].T
    left = read @ _double(attn.W_V)[index]
    right = _through_transposed(final, write) @ _double(attn.W_O)[index].T
    return FactoredMap(left, right.T)


def qk_map(
    model: Any, head: str, source: str | None = None, tokens: Sequence[int] | None = None
) -> FactoredMap:
    """How much does a query token (rows) score a key token (columns)?

    Args:
        model: a HookedTransformer.
        head: whose scores, for example "L1H0".
        source: an earlier head whose output is the key: the columns are then the tokens that
            *that* head looked at, which for a previous-token head are the tokens before the key.
            None for the embedding itself.
        tokens: vocabulary ids to keep; all of them if None.

    Returns:
        The map, in units of the scores (divided by `attn_scale`).

    Raises:
        InputError: no such head, a source that is not in an earlier layer, or a bad token.
    """
    layer, index = head_of(model, head)
    block, ids = model.blocks[layer], _ids(model, tokens)
    embedded = _double(model.W_E)[ids]
    key = embedded
    if source is not None:
        from_layer, from_index = head_of(model, source)
        if from_layer >= layer:
            raise InputError(
                f"source={source!r} is not in an earlier layer than head={head!r}: "
                "only earlier heads feed its keys"
            )
        earlier = model.blocks[from_layer]
        key = _through(earlier.ln1, embedded) @ _double(earlier.attn.W_V)[from_index]
        key = key @ _double(earlier.attn.W_O)[from_index]
    left = _through(block.ln1, embedded) @ _double(block.attn.W_Q)[index]
    right = _through(block.ln1, key) @ _double(block.attn.W_K)[index]
    scale = float(block.attn.attn_scale) if model.cfg.use_attn_scale else 1.0
    return FactoredMap(left / scale, right.T)


def eigenvalue_copying(square: FactoredMap) -> float:
    """Does a square map favour copying? Sum of its eigenvalues over the sum of their sizes.

    1 when every eigenvalue is positive (each token raises itself), -1 when all are negative, near
    0 for random weights (Elhage et al., 2021). The eigenvalues are those of the small product
    `right @ left`; 0 for a map that is 0.
    """
    values = torch.linalg.eigvals(square.right @ square.left)
    size = float(values.abs().sum())
    return float(values.real.sum()) / size if size > 0 else 0.0


def identity_cosine(square: FactoredMap) -> float:
    """How much is a square map, its rows and columns centred, like the identity?

    The cosine between the two matrices; its square is the R^2 of explaining the centred map by a
    multiple of the (centred) identity. About 1/n in size for random n x n maps; 0 for a map that
    is constant along rows or columns.
    """
    centred = square.centred()
    n = centred.left.shape[0]
    norm = centred.norm()
    if n < 2 or norm <= 1e-12 * max(square.norm(), 1e-300):
        return 0.0
    trace = float((centred.left * centred.right.T).sum())
    return trace / (norm * (n - 1) ** 0.5)


def k_composition_ratio(model: Any, source: str, head: str) -> float:
    """How much of what one head writes can move the keys of a later one, by weights alone?

    ||W_OV W_K W_Q^T|| / (||W_OV|| ||W_QK||), Frobenius norms (Elhage et al., 2021). Between 0 and
    1, and about 1/sqrt(d_model) for random weights. The weights do not know what the model does
    with them: measure the edge beside it (`induction_head.k_composition`).

    Raises:
        InputError: no such head.
    """
    (layer, index), (later, reader) = head_of(model, source), head_of(model, head)
    attn, to = model.blocks[layer].attn, model.blocks[later].attn
    value, out = _double(attn.W_V)[index], _double(attn.W_O)[index]
    query, key = _double(to.W_Q)[reader], _double(to.W_K)[reader]
    joint = FactoredMap(value, out @ key @ query.T).norm()
    alone = FactoredMap(value, out).norm() * FactoredMap(query, key.T).norm()
    return joint / alone if alone > 0 else 0.0


def _double(weight: Tensor) -> Tensor:
    return weight.detach().double()


def _ids(model: Any, tokens: Sequence[int] | None) -> list[int]:
    ids = list(range(model.cfg.d_vocab)) if tokens is None else [int(token) for token in tokens]
    bad = [token for token in ids if not 0 <= token < model.cfg.d_vocab]
    if bad or not ids or len(set(ids)) < len(ids):
        raise InputError(
            f"tokens={ids[:8]} must name different tokens of the vocabulary, "
            f"0 to {model.cfg.d_vocab - 1}"
        )
    return ids


def _through(norm: Any, rows: Tensor) -> Tensor:
    """The linear part of a norm, applied to rows of `d_model`."""
    if _centres(norm):
        rows = rows - rows.mean(-1, keepdim=True)
    gain = getattr(norm, "w", None)
    return rows if gain is None else rows * _double(gain)


def _through_transposed(norm: Any, rows: Tensor) -> Tensor:
    gain = getattr(norm, "w", None)
    rows = rows if gain is None else rows * _double(gain)
    return rows - rows.mean(-1, keepdim=True) if _centres(norm) else rows


def _centres(norm: Any) -> bool:
    return type(norm).__name__ in ("LayerNorm", "LayerNormPre")
