"""Predict the next state of a Markov chain that was, or was not, among the training chains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.nearest_predictor import Phase, late_positions, nearest_phase
from mechinterp.predictors import MEMORISING, PREDICTORS
from mechinterp.tasks import chain_measures, chain_sequences
from mechinterp.tasks.base import Detail, LogitsOf, Measure, Pairs
from mechinterp.tasks.chain_sequences import ChainSequences, draw_sequences


@dataclass(frozen=True)
class MarkovChains:
    """K frozen random chains, or a fresh one for every sequence; tokens are states, no BOS.

    Each sequence starts from its chain's stationary distribution. Equal configurations are the
    same task. Chains and evaluation sequences are made once and kept: treat them as read-only.
    """

    config: MarkovChainsConfig

    def __post_init__(self) -> None:
        """Refuses a configuration out of range."""
        _refuse_bad_config(self.config)

    @property
    def d_vocab(self) -> int:
        """Number of states."""
        return self.config.n_states

    @property
    def n_tokens(self) -> int:
        """States in a sequence; the model reads all but the last."""
        return self.config.length

    @property
    def scored(self) -> tuple[int, ...]:
        """Every position that has a next state."""
        return tuple(range(self.config.length - 1))

    @property
    def positions(self) -> dict[str, tuple[int, ...]]:
        """Scored positions: first, last, and those before and after a quarter of the sequence."""
        late = late_positions(self.config.length)
        groups = {
            "first": (0,),
            "early": tuple(range(late.start)),
            "late": tuple(late),
            "last": (self.config.length - 2,),
        }
        return {name: group for name, group in groups.items() if group}

    @property
    def predictors(self) -> tuple[str, ...]:
        """Bayes predictors that exist for this task; the memorising ones need frozen chains."""
        return tuple(p for p in PREDICTORS if self.config.k != "inf" or p not in MEMORISING)

    @property
    def chains(self) -> Float[Tensor, "chain state next"] | None:
        """The training chains, float64; None when every sequence has a fresh one.

        Those of a smaller K are the first ones of a larger K with the same chain seed.
        """
        return chain_sequences.training_chains(self.config)

    @property
    def held_out_chains(self) -> Float[Tensor, "chain state next"]:
        """New chains of the same ensemble, float64: neither K nor the chain seed matters."""
        return chain_sequences.held_out_chains(self.config)

    def batch(self, step: int, size: int, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
        """Gives training batch number `step`, from chains drawn uniformly.

        Args:
            step: training step, from 0.
            size: sequences.
            generator: only its initial seed is read.

        Returns:
            States: a pure function of the generator's seed, `step` and `size`. Sixteen steps are
            drawn together, so that sampling is cheap beside training.

        Raises:
            InputError: a negative step or an empty batch.
        """
        return chain_sequences.training_batch(self.config, generator.initial_seed(), step, size)

    def evaluation(self, n: int) -> Int[Tensor, "batch pos"]:
        """Gives the first `n` sequences of the fixed evaluation set on the training chains."""
        return self.evaluation_set(n).tokens

    def evaluation_new(self, n: int) -> Int[Tensor, "batch pos"]:
        """Gives the first `n` sequences of the fixed evaluation set on the held-out chains."""
        return self.evaluation_new_set(n).tokens

    def evaluation_set(self, n: int) -> ChainSequences:
        """Gives the first `n` evaluation sequences with their chains, which take turns.

        They depend on the chain seed and not on the seed of the training data.
        """
        return chain_sequences.evaluation_sequences(self.config, n)

    def evaluation_new_set(self, n: int) -> ChainSequences:
        """Gives the first `n` evaluation sequences on held-out chains: the same for every run."""
        return chain_sequences.evaluation_sequences(self.config, n, new=True)

    def pairs(self, n: int, generator: torch.Generator) -> Pairs:
        """Draws `n` sequences, each with a partner of the same length from another chain.

        Args:
            n: pairs.
            generator: is advanced.

        Raises:
            InputError: there is only one training chain, or n is below 1.
        """
        clean, corrupt = self.chain_pairs(n, generator)
        return Pairs(clean.tokens, corrupt.tokens)

    def chain_pairs(
        self, n: int, generator: torch.Generator
    ) -> tuple[ChainSequences, ChainSequences]:
        """Draws what `pairs` draws, and says which chains the sequences are from."""
        if n < 1:
            raise InputError(f"n is {n}; ask for at least 1 pair")
        k = 2 if self.config.k == "inf" else self.config.k
        if k == 1:
            raise InputError(
                "k is 1: there is no other chain to take a corrupt sequence from; use a task with "
                "k of at least 2, or an ablation other than patch"
            )
        own = torch.randint(k, (n,), generator=generator)
        other = (own + torch.randint(1, k, (n,), generator=generator)) % k
        clean = draw_sequences(self.config, own, generator)
        return clean, draw_sequences(self.config, other, generator)

    def diagnostics(self, model: LogitsOf, n: int, detail: Detail = "quick") -> dict[str, Measure]:
        """How good is a model, and which Bayes predictor does it compute?

        `loss` is the next-state cross-entropy over all scored positions, `kl_truth` is
        KL(true row || model) and `kl_<predictor>` KL(predictor || model), the KLs over the
        positions that have seen a quarter of the sequence; each on training chains and, with
        `_new` at the end, on held-out chains. "full" adds `loss_early`, `loss_late`, `loss_last`.

        Args:
            model: tokens to logits.
            n: sequences of each of the two sets.
            detail: how much to measure.

        Returns:
            Means in nats, with standard errors over sequences. Costs two forward passes of n
            sequences; the predictors' answers are kept from one call to the next.
        """
        return chain_measures.model_measures(self.config, model, n, detail)

    def phase(self, measures: Mapping[str, Measure | float]) -> Phase:
        """Which phase do these diagnostics show? See `nearest_phase` for the rule."""
        value = {k: m.value if isinstance(m, Measure) else m for k, m in measures.items()}
        return nearest_phase(
            {name: value[f"kl_{name}"] for name in self.predictors},
            {name: value[f"kl_{name}_new"] for name in self.predictors},
        )

    def reference_lines(self) -> dict[str, float]:
        """Losses (nats) to read the diagnostics against.

        `ln_c` is the loss of a uniform guess, `entropy_rate` the expected loss of somebody who
        knows the chain, `loss_<predictor>` what a Bayes predictor attains on the first 256
        evaluation sequences; all but the first also on held-out chains, with `_new` at the end.
        Computed once: well under a second for K = 64, half a minute for K = 8192.
        """
        lines = {"ln_c": math.log(self.d_vocab)}
        return lines | chain_measures.reference_losses(self.config)

    def compared(self) -> dict[str, tuple[str, ...]]:
        """Which reference lines each diagnostic is to be read against."""
        lines = ("entropy_rate", *(f"loss_{name}" for name in self.predictors))
        new = tuple(f"{line}_new" for line in lines)
        return {"loss": (*lines, "ln_c"), "loss_new": (*new, "ln_c")}

    def predictor_gaps(self, n: int = 1024) -> dict[str, float]:
        """How far from the truth is each Bayes predictor?

        KL(true row || predictor) in nats, at positions that have seen a quarter of the sequence.
        Where `one_mem_transition` crosses `two_gen` as
        K grows lies the static rival of K1*.

        Args:
            n: sequences of each of the two sets.

        Returns:
            Means by predictor, on held-out chains with `_new` at the end.
        """
        return chain_measures.predictor_gaps(self.config, n)


def _refuse_bad_config(c: MarkovChainsConfig) -> None:
    for name, value, low in (
        ("n_states", c.n_states, 2),
        ("length", c.length, 2),
        ("held_out", c.held_out, 1),
        ("k", 1 if c.k == "inf" else c.k, 1),
    ):
        if value < low:
            also = ", or inf for a fresh chain for every sequence" if name == "k" else ""
            raise InputError(f"{name} is {value}; it has to be at least {low}{also}")
    # Bounds on memory, so that a damaged configuration is refused before anything is allocated.
    n_chains = max(c.held_out, 0 if c.k == "inf" else c.k)
    for name, value, high in (
        ("n_states", c.n_states, 4096),
        ("length", c.length, 2**20),
        ("n_states^2 times the chains", c.n_states**2 * n_chains, 2**27),
    ):
        if value > high:
            raise InputError(f"{name} is {value}; it has to be at most {high}")
    if not 1e-3 <= c.dirichlet <= 1e6:
        raise InputError(
            f"dirichlet is {c.dirichlet:g}; it has to be positive, from 0.001 to 1e6 "
            "(1 makes every row equally likely)"
        )
