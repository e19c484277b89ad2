"""What every task offers: batches, an evaluation set, clean/corrupt pairs, its diagnostics."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

LogitsOf = Callable[[Tensor], Tensor]
"""Any model: tokens `"batch pos"` in, logits `"batch pos d_vocab"` out."""

Detail = Literal["quick", "full"]


class Measure(NamedTuple):
    """A measured mean and its standard error, in the unit of the quantity (nats or a share)."""

    value: float
    se: float


@dataclass(frozen=True)
class Pairs:
    """Clean sequences and, row by row, their corrupted partners; both `"batch pos"`."""

    clean: Int[Tensor, "batch pos"]
    corrupt: Int[Tensor, "batch pos"]


@runtime_checkable
class Task(Protocol):
    """A frozen, seeded source of sequences whose optimal answers are known."""

    @property
    def d_vocab(self) -> int:
        """Number of token ids."""
        ...

    @property
    def n_tokens(self) -> int:
        """Tokens in a full sequence, the last target included; the model reads one fewer."""
        ...

    @property
    def scored(self) -> tuple[int, ...]:
        """Positions whose logits are scored; position p predicts token p + 1."""
        ...

    @property
    def positions(self) -> dict[str, tuple[int, ...]]:
        """Named groups of token positions."""
        ...

    def batch(self, step: int, size: int, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
        """Training batch number `step`: a pure function of the generator's seed and `step`."""
        ...

    def evaluation(self, n: int) -> Int[Tensor, "batch pos"]:
        """The first `n` sequences of the fixed evaluation set."""
        ...

    def pairs(self, n: int, generator: torch.Generator) -> Pairs:
        """`n` clean sequences with corrupted partners; the generator is advanced."""
        ...

    def diagnostics(self, model: LogitsOf, n: int, detail: Detail = "quick") -> dict[str, Measure]:
        """The task's own measurements of a model on `n` evaluation sequences."""
        ...

    def reference_lines(self) -> dict[str, float]:
        """Values to read the diagnostics against, by name."""
        ...

    def compared(self) -> dict[str, tuple[str, ...]]:
        """Which reference lines each diagnostic is to be read against."""
        ...


def fork(generator: torch.Generator, *index: int) -> torch.Generator:
    """Gives the generator that belongs to an index, without advancing its parent.

    Data drawn from `fork(generator, step)` depend on the parent's seed and on `step` alone, so a
    resumed run sees what an uninterrupted one would have seen, with no state to store.

    Args:
        generator: the parent; only its initial seed is read.
        index: any integers, for example a step or an epoch.

    Returns:
        A fresh CPU generator.
    """
    key = repr((generator.initial_seed(), *index)).encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
    return torch.Generator().manual_seed(seed)


def measure(per_example: Float[Tensor, " batch"]) -> Measure:
    """Gives the mean over examples with its standard error (0 for a single example)."""
    values = per_example.double()
    se = values.std().item() / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Measure(values.mean().item(), se)
