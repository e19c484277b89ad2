"""How much memory does a trace take? Worked out from shapes alone, before anything is loaded."""

from dataclasses import dataclass
from typing import Any

from circuits.memory_plan import TOKENS_AT_ONCE
from mechinterp.trace_parts import PRUNED_ON, Options

BYTES = 4
"""Of a number: models are traced in float32."""
SLACK = 1.25
"""What allocators and temporaries add to the tensors that are counted."""
DRAWING = 32 * 2**20
"""Bytes of tables, figures and the page."""
FIRST_USE = 64 * 2**20
"""Bytes that libraries set up when they are first used."""
FIRST_TESTS = 96 * 2**20
"""Bytes of the same, of the task's diagnostics and mechanism tests."""
HEAD_ROWS = 256
"""Sequences that head ablation works on at once."""
CHUNK = 64 * 2**20
"""Bytes of the smallest chunk of cut edges that is worth working with: small ones are slow."""
FEWEST_TOKENS = 128
"""Tokens in it, at least."""


@dataclass(frozen=True)
class Shape:
    """What decides how much memory a trace takes.

    Attributes:
        n_layers, n_heads, d_head, d_model, d_mlp, d_vocab, n_ctx: of the model; d_mlp is 0 without
            MLPs.
        gated: whether its MLPs are.
        n_pos: positions that are computed.
        n_scored: positions whose logits are kept.
        copies: how often the weights are in memory while they are loaded.
        tested_on: examples of the task's mechanism tests, at most.
    """

    n_layers: int
    n_heads: int
    d_head: int
    d_model: int
    d_mlp: int
    d_vocab: int
    n_ctx: int
    gated: bool
    n_pos: int
    n_scored: int
    copies: int
    tested_on: int = 0

    @classmethod
    def of(cls, cfg: Any, n_pos: int, n_scored: int, copies: int, tested_on: int = 0) -> "Shape":
        """From a HookedTransformerConfig."""
        return cls(
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            d_head=cfg.d_head,
            d_model=cfg.d_model,
            d_mlp=0 if cfg.attn_only else cfg.d_mlp,
            d_vocab=cfg.d_vocab,
            n_ctx=cfg.n_ctx,
            gated=bool(cfg.gated_mlp),
            n_pos=n_pos,
            n_scored=n_scored,
            copies=copies,
            tested_on=tested_on,
        )

    @property
    def weights(self) -> int:
        """Bytes of the parameters and the attention masks, of a model as it is loaded."""
        attention = 4 * self.d_model * self.n_heads * self.d_head
        mlp = (2 + self.gated) * self.d_model * self.d_mlp
        small = 8 * self.d_model + 4 * self.n_heads * self.d_head + self.d_mlp
        embeddings = self.d_model * (2 * self.d_vocab + self.n_ctx)
        masks = self.n_layers * self.n_ctx**2
        return BYTES * (self.n_layers * (attention + mlp + small) + embeddings) + masks

    @property
    def plain(self) -> int:
        """Bytes of the weights that `circuits` lays out anew."""
        attention = 4 * self.d_model * self.n_heads * self.d_head
        mlp = 2 * self.d_model * self.d_mlp if self.gated else 0
        return BYTES * self.n_layers * (attention + mlp)

    @property
    def written(self) -> int:
        """Bytes of what one example's nodes write, each kept by itself."""
        nodes = 1 + self.n_layers * (self.n_heads + bool(self.d_mlp))
        return BYTES * nodes * self.n_pos * self.d_model

    @property
    def streams(self) -> int:
        """Bytes of one example's factored run."""
        layer = 4 * self.n_heads * self.d_head + 3 * self.d_model + self.n_heads * self.n_pos
        return BYTES * self.n_pos * (self.n_layers * layer + 2 * self.d_model + self.d_vocab)

    @property
    def passing(self) -> int:
        """Bytes that one example's plain forward pass holds at a time, logits included."""
        heads = 5 * self.n_heads * self.d_head + 4 * self.n_heads * self.n_pos
        block = 8 * self.d_model + 3 * self.d_mlp + heads
        return BYTES * self.n_pos * max(block + self.d_vocab, 3 * self.d_vocab)

    @property
    def measuring(self) -> int:
        """Bytes of one example's logits at the scored positions while the metric reads them."""
        return 6 * BYTES * self.n_scored * self.d_vocab

    @property
    def chunk(self) -> int:
        """Bytes of the smallest chunk of cut edges."""
        d_pre = self.d_mlp * (1 + self.gated)
        heads = 8 * self.n_heads * self.d_head + 3 * self.n_heads * self.n_pos
        token = 8 * self.d_model + 3 * d_pre + heads + 3 * self.d_vocab
        worth = min(TOKENS_AT_ONCE, max(FEWEST_TOKENS, CHUNK // (BYTES * token)))
        return BYTES * token * max(worth, self.n_pos)


def needs(shape: Shape, options: Options, held_out: int = 0) -> dict[str, int]:
    """Bytes that each part of a trace takes at its peak, beyond what the process has before.

    Args:
        shape: of the model and the sequences.
        options: ablation and number of examples.
        held_out: examples that the pruned circuit is tried on.

    Returns:
        Bytes by part, with the smallest chunks that will do.
    """
    swapped = options.ablation in ("patch", "resample")
    few = min(options.examples, PRUNED_ON)
    parts = {
        "loading the weights": shape.weights * (shape.copies - 1),
        "the heads": heads(shape, options.examples, swapped),
        "the edges": edges(shape, options.examples, swapped) + shape.chunk,
        "pruning": circuits(shape, few, swapped, 3) + shape.streams * few + shape.chunk,
    }
    if shape.tested_on:
        tested = min(options.examples, shape.tested_on)
        parts["the mechanisms"] = tested * (2 * shape.written + 2 * shape.streams + shape.passing)
    if held_out:
        parts["trying the circuit"] = circuits(shape, held_out, swapped, 1)
    fixed = shape.weights + shape.plain
    besides = DRAWING + FIRST_USE + (FIRST_TESTS if shape.tested_on else 0)
    return {name: int(SLACK * (fixed + size)) + besides for name, size in parts.items()}


def heads(shape: Shape, examples: int, swapped: bool) -> int:
    """Bytes of ablating heads: recorded streams, and a chunk of sequences on its way on."""
    width = shape.n_heads * shape.d_head
    recorded = shape.n_layers * (shape.d_model + (1 + swapped) * width)
    moving = 6 * shape.d_model + 6 * width + 3 * shape.n_heads * shape.n_pos
    rows = min(HEAD_ROWS, examples * shape.n_heads) * (
        shape.n_pos * moving + 2 * shape.n_scored * shape.d_vocab
    )
    each = BYTES * shape.n_pos * recorded + shape.passing + shape.measuring
    return examples * each + BYTES * rows


def edges(shape: Shape, examples: int, swapped: bool) -> int:
    """Bytes of the runs that edges are cut in, without the chunks."""
    runs = (1 + swapped) * shape.streams
    return examples * (runs + max(shape.passing, swapped * shape.written) + shape.measuring)


def circuits(shape: Shape, examples: int, swapped: bool, kept: int) -> int:
    """Bytes of running circuits: what nodes write, of the runs kept and of the one under way."""
    around = BYTES * shape.n_pos * shape.d_model * (3 * shape.n_heads + 2 * shape.n_layers)
    held = (kept + 1) * shape.written + around
    return edges(shape, examples, swapped) + examples * held
