"""What a Markov-chain configuration stands for: its chains, training batches, evaluation sets."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from mechinterp.chains import ChainSampler, draw_chains
from mechinterp.config import MarkovChainsConfig
from mechinterp.tasks.base import fork

STEPS_AT_ONCE = 16
"""Training batches drawn together: the loop over positions then costs little for each."""

EVALUATION_AT_ONCE = 64
"""Evaluation sequences drawn together, so that the first n of them do not depend on n."""

HELD_OUT_SEED = 0
"""Seed of the held-out chains and of their sequences, for every run."""

TRAINING_CHAINS, HELD_OUT_CHAINS, TRAINING, EVALUATION = 1, 2, 3, 4
"""What each kind of draw forks from its seed, so that equal seeds give unrelated numbers."""


@dataclass(frozen=True)
class ChainSequences:
    """Sequences, and the chain of each."""

    tokens: Int[Tensor, "batch pos"]
    chain: Int[Tensor, " batch"]
    """Index of each sequence's chain."""
    chains: Float[Tensor, "chain state next"]
    """The transition matrices that the index points into."""

    def truth(self) -> Float[Tensor, "batch pos state"]:
        """Gives the true log-probabilities of the next state at every position."""
        return self.chains[self.chain[:, None], self.tokens].log()


@lru_cache(maxsize=8)
def training_chains(config: MarkovChainsConfig) -> Float[Tensor, "chain state next"] | None:
    """Gives the frozen training chains; None when every sequence has a fresh one.

    Those of a smaller K are the first ones of a larger K with the same chain seed.
    """
    return None if config.k == "inf" else _draw(config, config.k, config.chain_seed)


@lru_cache(maxsize=8)
def held_out_chains(config: MarkovChainsConfig) -> Float[Tensor, "chain state next"]:
    """Gives new chains of the same ensemble, whatever K and the chain seed are."""
    return _draw(config, config.held_out, HELD_OUT_SEED, HELD_OUT_CHAINS)


def draw_sequences(
    config: MarkovChainsConfig,
    chain: Int[Tensor, " batch"],
    generator: torch.Generator,
    new: bool = False,
) -> ChainSequences:
    """Draws one sequence for each listed chain.

    Args:
        config: the task.
        chain: which chain each sequence is from; only how many counts when chains are fresh.
        generator: is advanced.
        new: from the held-out chains; else from the training chains, fresh ones for k = inf.

    Returns:
        The sequences with their chains.
    """
    if config.k == "inf" and not new:
        fresh = draw_chains(len(chain), config.n_states, config.dirichlet, generator)
        chain, sampler = torch.arange(len(chain)), ChainSampler.of(fresh)
    else:
        sampler = _sampler(config, new)
    uniform = torch.rand(len(chain), config.length, generator=generator, dtype=torch.float64)
    return ChainSequences(sampler.sample(chain, uniform), chain, sampler.chains)


def training_batch(
    config: MarkovChainsConfig, seed: int, step: int, size: int
) -> Int[Tensor, "batch pos"]:
    """Gives the training batch of a step, from chains drawn uniformly.

    Args:
        config: the task.
        seed: seed of the training data.
        step: training step, from 0.
        size: sequences.

    Returns:
        A fresh tensor: a pure function of the arguments.

    Raises:
        InputError: a negative step or an empty batch.
    """
    if step < 0 or size < 1:
        raise InputError(f"step is {step} and size {size}; step starts at 0 and size at 1")
    block, within = divmod(step, STEPS_AT_ONCE)
    return _training_block(config, seed, block, size)[within].clone()


def evaluation_sequences(config: MarkovChainsConfig, n: int, new: bool = False) -> ChainSequences:
    """Gives the first `n` sequences of a fixed evaluation set.

    The chains take turns, so that each is seen equally often.

    Args:
        config: the task.
        n: sequences.
        new: from the held-out chains, the same for every run of this size; else from the training
            chains (fresh ones for k = inf), which depends on the chain seed.

    Returns:
        The sequences with their chains.

    Raises:
        InputError: n is below 1.
    """
    if n < 1:
        raise InputError(f"n is {n}; ask for at least 1 evaluation sequence")
    pieces = [_evaluation_block(config, b, new) for b in range(-(-n // EVALUATION_AT_ONCE))]
    tokens = torch.cat([piece.tokens for piece in pieces])[:n]
    chain = torch.cat([piece.chain for piece in pieces])[:n]
    if not new and config.k == "inf":
        chains = torch.cat([piece.chains for piece in pieces])[:n]
        return ChainSequences(tokens, torch.arange(n), chains)
    return ChainSequences(tokens, chain, pieces[0].chains)


@torch.inference_mode(False)  # what is kept must stay usable where gradients flow
def _draw(config: MarkovChainsConfig, n: int, seed: int, kind: int = TRAINING_CHAINS) -> Tensor:
    generator = fork(torch.Generator().manual_seed(seed), kind)
    return draw_chains(n, config.n_states, config.dirichlet, generator)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _sampler(config: MarkovChainsConfig, new: bool) -> ChainSampler:
    chains = held_out_chains(config) if new else training_chains(config)
    if chains is None:
        raise InputError("k is inf: there are no frozen chains; draw fresh ones")
    return ChainSampler.of(chains)


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _training_block(config: MarkovChainsConfig, seed: int, block: int, size: int) -> Tensor:
    """Batches `"step batch pos"` of consecutive steps."""
    generator = fork(torch.Generator().manual_seed(seed), TRAINING, block, size)
    n_chains = 1 if config.k == "inf" else config.k
    chain = torch.randint(n_chains, (STEPS_AT_ONCE * size,), generator=generator)
    tokens = draw_sequences(config, chain, generator).tokens
    return tokens.unflatten(0, (STEPS_AT_ONCE, size))


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _evaluation_block(config: MarkovChainsConfig, block: int, new: bool) -> ChainSequences:
    seed = HELD_OUT_SEED if new else config.chain_seed
    generator = fork(torch.Generator().manual_seed(seed), EVALUATION, int(new), block)
    index = torch.arange(block * EVALUATION_AT_ONCE, (block + 1) * EVALUATION_AT_ONCE)
    n_chains = config.held_out if new else config.k
    turn = index if n_chains == "inf" else index % n_chains
    return draw_sequences(config, turn, generator, new)
