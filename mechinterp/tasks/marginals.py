"""The marginals task (paper 1): look A up under B and a selector z in a random table."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.tasks.base import Detail, LogitsOf, Measure, Pairs, fork
from mechinterp.tasks.epochs import epoch_stream
from mechinterp.tasks.marginals_checks import N_CHARACTERS, check_config
from mechinterp.tasks.marginals_layout import Layout, all_sequences, other_slot, with_string_of
from mechinterp.tasks.marginals_table import FIRST_CHARACTER, MarginalsTable, marginals_table

_EPOCHS, _NOISE, _RANDOM_Z = range(3)
"""Streams forked from the generator of the training batches."""
_EVALUATION, _GROUPS = range(3, 5)
"""Streams forked from the mapping seed, after the three of the table."""


@dataclass(frozen=True)
class Marginals:
    """Sequences `BOS B SEP z SEP A EOS` (or another variant) over a random table.

    Example `i * k + j` is B number i with its slot j. All examples are training data: no rule
    connects them, so there is nothing to generalise to.

    Corrupted partners differ in what decides the answer: in `bz_to_a` the same B with another
    selector of its fibre, and so with another answer. In the other variants no selector decides,
    so the partner is the sequence of another B in the same slot.

    Raises:
        InputError: the configuration cannot be built. Nothing is made before this check.
    """

    config: MarginalsConfig

    def __post_init__(self) -> None:
        check_config(self.config)

    @property
    def d_vocab(self) -> int:
        """36 characters and PAD, BOS, EOS, SEP."""
        return FIRST_CHARACTER + N_CHARACTERS

    @property
    def layout(self) -> Layout:
        """Where the strings stand."""
        return Layout.of(self.config)

    @property
    def table(self) -> MarginalsTable:
        """The strings of the task; the same for all variants."""
        return marginals_table(self.config)

    @property
    def n_examples(self) -> int:
        """Sequences in the table (the paper's D): k for each B."""
        return self.config.k * self.config.n_b

    @property
    def n_tokens(self) -> int:
        """Tokens in a full sequence, EOS included."""
        return self.layout.n_tokens

    @property
    def scored(self) -> tuple[int, ...]:
        """Positions that predict the characters of the answer and EOS."""
        return self.layout.scored

    @property
    def positions(self) -> dict[str, tuple[int, ...]]:
        """Named groups of the positions that a model reads; see `Layout.positions`."""
        return self.layout.positions

    def batch(self, step: int, size: int, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
        """Gives training batch `step`: `size` examples of a stream of shuffled epochs.

        Every epoch holds every example once; a batch may span two epochs. Label noise and the
        random selectors before `random_z_until` are drawn anew for every batch.

        Args:
            step: number of the batch, from 0.
            size: examples in the batch; the same at all steps of a run.
            generator: only its initial seed is read.

        Cost: about 0.1 ms for 128 examples; a new permutation for every epoch.

        Raises:
            InputError: a negative step or an empty batch.
        """
        if step < 0 or size < 1:
            raise InputError(f"step={step}, batch size={size}: use a step >= 0 and a size >= 1")
        config = self.config
        examples = epoch_stream(fork(generator, _EPOCHS), self.n_examples, step * size, size)
        tokens = all_sequences(config)[examples]
        if config.label_noise > 0:
            noise = fork(generator, _NOISE, step)
            wrong = torch.rand(size, generator=noise) < config.label_noise
            answers = torch.where(wrong, other_slot(examples, config.k, noise), examples)
            tokens = with_string_of(config, tokens, "A", answers)
        if step < config.random_z_until:
            draw = fork(generator, _RANDOM_Z, step)
            slots = torch.randint(config.k, (size,), generator=draw)
            tokens = with_string_of(config, tokens, "z", examples - examples % config.k + slots)
        return tokens

    def evaluation(self, n: int) -> Int[Tensor, "batch pos"]:
        """Gives the first `n` examples of one fixed order, with true answers and selectors.

        Raises:
            InputError: `n` is not between 1 and the number of examples.
        """
        self._check_count(n, self.n_examples, "evaluation sequences")
        order = torch.randperm(self.n_examples, generator=self._fixed(_EVALUATION))
        return all_sequences(self.config)[order[:n]]

    def groups(self, n: int) -> Int[Tensor, "group k pos"]:
        """Gives all k examples of the first `n` B strings of one fixed order.

        Raises:
            InputError: `n` is not between 1 and n_b.
        """
        self._check_count(n, self.config.n_b, "groups")
        order = torch.randperm(self.config.n_b, generator=self._fixed(_GROUPS))
        by_b = all_sequences(self.config).unflatten(0, (self.config.n_b, self.config.k))
        return by_b[order[:n]]

    def pairs(self, n: int, generator: torch.Generator) -> Pairs:
        """Gives `n` different clean sequences and the partner of each; see the class for which.

        Args:
            n: sequences.
            generator: is advanced.

        Raises:
            InputError: too many sequences, or no other selector (or B) to corrupt with.
        """
        self._check_count(n, self.n_examples, "pairs")
        config = self.config
        field = "k" if config.variant == "bz_to_a" else "n_b"
        if getattr(config, field) < 2:
            need = "selector of the same B" if field == "k" else "B"
            raise InputError(f"{field}=1: a corrupted partner needs another {need}; use {field}>=2")
        clean = torch.randperm(self.n_examples, generator=generator)[:n]
        if field == "k":
            corrupt = other_slot(clean, config.k, generator)
        else:
            shift = torch.randint(1, config.n_b, (n,), generator=generator)
            corrupt = (clean + shift * config.k) % self.n_examples
        sequences = all_sequences(config)
        return Pairs(clean=sequences[clean], corrupt=sequences[corrupt])

    def diagnostics(self, model: LogitsOf, n: int, detail: Detail = "quick") -> dict[str, Measure]:
        """Measures a model on `n` evaluation examples; see `marginals_diagnostics.diagnostics`."""
        # Imported here because that file is written in terms of this class.
        from mechinterp.tasks.marginals_diagnostics import diagnostics

        return diagnostics(model, self, n, detail)

    def reference_lines(self) -> dict[str, float]:
        """Gives the levels that tell what a model knows; see `marginals_reference`."""
        from mechinterp.tasks.marginals_reference import reference_lines

        return reference_lines(self)

    def compared(self) -> dict[str, tuple[str, ...]]:
        """Which reference lines each diagnostic is to be read against; those that exist here."""
        from mechinterp.tasks.marginals_reference import COMPARED

        known = self.reference_lines()
        return {
            name: tuple(line for line in lines if line in known) for name, lines in COMPARED.items()
        }

    def _fixed(self, stream: int) -> torch.Generator:
        return fork(torch.Generator().manual_seed(self.config.mapping_seed), stream)

    def _check_count(self, n: int, most: int, what: str) -> None:
        if not 1 <= n <= most:
            raise InputError(
                f"{n} {what} asked for, but k={self.config.k} and n_b={self.config.n_b} give "
                f"{most}: choose from 1 to {most}"
            )
