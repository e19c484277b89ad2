"""How many tokens can be worked on at once within a memory budget?"""

from dataclasses import dataclass

from circuits.errors import InputError
from circuits.prepared import Prepared
from circuits.side_by_side import workers_on

TOKENS_AT_ONCE = 4096
"""Tokens (edges x examples x positions) in one chunk: what runs fastest on CPU caches."""
MEMORY_BUDGET = 2 * 2**30
"""Bytes, when none are given."""


@dataclass(frozen=True)
class Share:
    """How the work is cut up: this many chunks at once, of this many tokens each."""

    workers: int
    tokens: int


def share_memory(prepared: Prepared, memory_budget: int | None) -> Share:
    """Gives the number of tokens (edges x examples x positions) in a chunk, and of chunks at once.

    On a CPU there are as many workers as torch has threads, where the memory holds a whole chunk
    for each: several small chunks side by side use the cores better than one chunk on all of them.

    Args:
        prepared: the runs that are held in memory all along.
        memory_budget: bytes for weights, streams and chunks; None for 2 GiB.

    Returns:
        Tokens, enough for one example at least.

    Raises:
        InputError: the budget does not hold the streams and one example's chunk.
    """
    budget = MEMORY_BUDGET if memory_budget is None else memory_budget
    n_examples, n_pos = prepared.base.batch.tokens.shape
    each, held = _bytes_per_token(prepared), _held_bytes(prepared)
    room = (budget - held) // each
    if room < n_pos:
        raise InputError(
            f"memory_budget={budget} bytes is too small: the streams of {n_examples} examples take "
            f"{held} and one example's chunk {each * n_pos}; give at least {held + each * n_pos} "
            "or fewer examples"
        )
    workers = max(1, min(workers_on(prepared.baseline.device), room // TOKENS_AT_ONCE))
    return Share(workers, min(TOKENS_AT_ONCE, int(room) // workers))


def _bytes_per_token(prepared: Prepared) -> int:
    """Working memory of a chunk for each token in it."""
    weights, size = prepared.weights, prepared.baseline.element_size()
    n_pos = prepared.base.batch.tokens.shape[1]
    heads, d_head, d_model = weights.attention[0].W_O.shape
    d_pre = weights.mlps[0].W_in.shape[1] if weights.mlps else 0
    numbers = 8 * d_model + 3 * d_pre + 8 * heads * d_head + 3 * heads * n_pos
    return size * (numbers + 3 * weights.W_U.shape[1])


def _held_bytes(prepared: Prepared) -> int:
    """Memory of weights, streams, replacements and finished logits."""
    n_examples, n_pos = prepared.base.batch.tokens.shape
    weights, size = prepared.weights, prepared.baseline.element_size()
    heads, d_head, d_model = weights.attention[0].W_O.shape
    d_vocab = weights.W_U.shape[1]
    runs = 1 + (prepared.replacements.corrupt is not None) + (prepared.base is not prepared.clean)
    layer = 4 * heads * d_head + 3 * d_model + heads * n_pos
    numbers = runs * (layer * weights.n_layers + 2 * d_model + d_vocab)
    if prepared.replacements.ablation in ("patch", "resample"):  # One a node, whole batches.
        numbers += d_model * (1 + weights.n_layers * (heads + bool(weights.mlps)))
    numbers += d_model + heads * d_head  # Of one source: what it loses, and what heads lose by it.
    outcome = n_examples * len(prepared.scored) * d_vocab
    return size * (n_examples * n_pos * numbers + weights.numel + 2 * outcome)
