"""Where the strings of the marginals task stand in a sequence, for every variant."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from mechinterp.config import MarginalsConfig
from mechinterp.tasks.marginals_checks import A_LENGTH, B_LENGTH
from mechinterp.tasks.marginals_table import FIRST_CHARACTER, marginals_table

PAD, BOS, EOS, SEP = range(FIRST_CHARACTER)

_STRINGS = {
    "bz_to_a": ("B", "z", "A"),
    "az_to_b": ("A", "z", "B"),
    "b_to_a": ("B", "A"),
    "a_to_b": ("A", "B"),
}


@dataclass(frozen=True)
class Layout:
    """Positions of the strings; BOS, a SEP after every string but the last, and EOS surround them.

    Attributes:
        spans: positions of every string shown, in order; the last string is asked for.
    """

    spans: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, config: MarginalsConfig) -> "Layout":
        """Lays out a variant."""
        lengths = {"A": A_LENGTH, "B": B_LENGTH, "z": config.z_length}
        spans, start = {}, 1
        for name in _STRINGS[config.variant]:
            spans[name] = tuple(range(start, start + lengths[name]))
            start += lengths[name] + 1
        return cls(spans)

    @property
    def target(self) -> str:
        """Name of the string that is asked for: "A" or "B"."""
        return list(self.spans)[-1]

    @property
    def n_tokens(self) -> int:
        """Tokens in a full sequence, EOS included."""
        return self.spans[self.target][-1] + 2

    @property
    def decide(self) -> int:
        """The position that predicts the first character of the answer."""
        return self.spans[self.target][0] - 1

    @property
    def scored(self) -> tuple[int, ...]:
        """Positions that predict the characters of the answer and EOS."""
        return tuple(range(self.decide, self.n_tokens - 1))

    @property
    def positions(self) -> dict[str, tuple[int, ...]]:
        """Groups of the positions that a model reads: BOS, the strings, SEP, and two of the SEPs.

        "first_sep" ends the first string, "decide" is the last SEP; they coincide without z. EOS is
        only ever a target and belongs to no group.
        """
        seps = tuple(span[-1] + 1 for span in self.spans.values())[:-1]
        named = {"SEP": seps, "first_sep": seps[:1], "decide": (self.decide,)}
        return {"BOS": (0,), **self.spans, **named}


@lru_cache(maxsize=4)
def all_sequences(config: MarginalsConfig) -> Int[Tensor, "example pos"]:
    """Lays every example out, once; batches are rows of this. Treat it as read-only.

    Example `i * k + j` is B number i with its slot j.
    """
    table, layout = marginals_table(config), Layout.of(config)
    tokens = torch.full((config.n_b * config.k, layout.n_tokens), SEP)
    tokens[:, 0], tokens[:, -1] = BOS, EOS
    strings = {
        "B": table.b.repeat_interleave(config.k, 0),
        "z": table.z.flatten(0, 1),
        "A": table.a.flatten(0, 1),
    }
    for name, span in layout.spans.items():
        tokens[:, list(span)] = strings[name]
    return tokens


def with_string_of(
    config: MarginalsConfig,
    tokens: Int[Tensor, "batch pos"],
    name: str,
    examples: Int[Tensor, " batch"],
) -> Int[Tensor, "batch pos"]:
    """Gives the sequences with their string `name` taken from other examples."""
    span = Layout.of(config).spans[name]
    columns = slice(span[0], span[-1] + 1)
    mixed = tokens.clone()
    mixed[:, columns] = all_sequences(config)[:, columns][examples]
    return mixed


def other_slot(
    examples: Int[Tensor, " batch"], k: int, generator: torch.Generator
) -> Int[Tensor, " batch"]:
    """Draws, for every example, another one of the same B, uniformly; k is at least 2."""
    slot = examples % k
    shift = torch.randint(1, k, examples.shape, generator=generator)
    return examples - slot + (slot + shift) % k
