"""The weak biases c_beta and c_delta that start the way from 1-Gen to 2-Gen.

Near beta = delta = 0 the loss is L_1-Gen - c_beta beta - c_delta delta - c_cross beta delta - ...
Gradient descent therefore moves beta at the constant rate c_beta first. The paper (arXiv
2604.12151) states the expansion and that both are positive; their values were not found, and those
here are of our version of the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError
from mechinterp.chains import draw_chains, stationary
from mechinterp.minimal_models.chain_sample import ChainSample
from mechinterp.minimal_models.symmetric_attention import (
    SymmetricAttention,
    losses,
    piece_loss,
    slopes,
)
from mechinterp.tasks.base import Measure, measure


@dataclass(frozen=True)
class Biases:
    """What pulls beta and delta away from 0, in nats, with standard errors over chains."""

    c_beta: Measure
    """-dL/dbeta at 0."""
    c_delta: Measure
    """-dL/ddelta at 0."""
    cross: Measure
    """-d2L/(dbeta ddelta) at 0: how much beta helps delta grow, and the other way round."""


def biases(sample: ChainSample, mu: float = 0.0, alpha: float = 0.0) -> Biases:
    """How strongly are beta and delta pulled away from 0?

    Exact derivatives of the loss on this sample, by automatic differentiation.

    Args:
        sample: chains with their sequences.
        mu: share of layer 1's output in the values; with 0, c_delta is exactly 0.
        alpha: layer 1's score of equal states.

    Returns:
        The biases in nats. Costs about five forward passes.
    """
    found: list[tuple[Tensor, ...]] = []
    for part in sample.pieces(sample.n_states if alpha else 1):
        zero = torch.zeros(len(part), dtype=torch.float64)
        with torch.enable_grad():
            beta, delta = zero.clone().requires_grad_(), zero.clone().requires_grad_()
            loss = piece_loss(part, beta, delta, alpha, mu)
            first = torch.autograd.grad(loss.sum(), (beta, delta), create_graph=True)
            (cross,) = torch.autograd.grad(first[0].sum(), delta)
        found.append((-first[0].detach(), -first[1].detach(), -cross))
    return Biases(*(measure(torch.cat(column)) for column in zip(*found, strict=True)))


def finite_differences(
    sample: ChainSample, mu: float = 0.0, alpha: float = 0.0, step: float = 1e-3
) -> Biases:
    """Gives `biases` by central differences of the loss: a second route to the same numbers.

    Args:
        sample: chains with their sequences.
        mu: share of layer 1's output in the values.
        alpha: layer 1's score of equal states.
        step: how far beta and delta are moved; the error is of the order of its square.

    Returns:
        The biases in nats. Costs eight forward passes.
    """
    origin = SymmetricAttention(alpha=alpha, mu=mu)

    def at(beta: float, delta: float) -> Float[Tensor, " chain"]:
        return losses(replace(origin, beta=beta * step, delta=delta * step), sample)

    mixed = at(1.0, 1.0) - at(1.0, -1.0) - at(-1.0, 1.0) + at(-1.0, -1.0)
    return Biases(
        measure((at(-1.0, 0.0) - at(1.0, 0.0)) / (2 * step)),
        measure((at(0.0, -1.0) - at(0.0, 1.0)) / (2 * step)),
        measure(-mixed / (4 * step**2)),
    )


def closed_form_c_beta(n_states: int, length: int) -> float:
    """What does the closed form give for c_beta?

    ((C - 1) / (C (C + 1))) ln N / N, for Dirichlet(1) rows and mu = alpha = 0. It keeps the
    previous state alone, and of its share the leading logarithm. What it leaves out is of order
    1 / N, hence smaller by no more than ln N: with 5 or 10 states measured values are about half of
    it at N = 100 and 0.6 to 0.7 of it at N = 800, so at any practical length it is an upper bound
    and not an estimate. What settles sooner, from N of about 200, is the growth of N c_beta with
    ln N: compare `log_growth` with `log_coefficient`.

    Args:
        n_states: C.
        length: N.

    Returns:
        c_beta in nats.
    """
    return (n_states - 1) / (n_states * (n_states + 1)) * math.log(length) / length


def log_coefficient(
    n: int, n_states: int, generator: torch.Generator, dirichlet: float = 1.0
) -> Measure:
    """At which rate does N c_beta grow with ln N in the end (mu = alpha = 0)?

    At position m the state l places back carries 1 / m of layer 1's attention, and it tells about
    the state at m by T^l, so that the harmonic sum over m has the coefficient
    sum_a pi_a^2 sum_s (T_as / pi_s) sum_l ((T^l)_as - pi_s), with l from 0 on. The sum over l is
    the chain's fundamental matrix, (I - T + 1 pi)^-1 - 1 pi. Every lag counts here; the closed form
    keeps l = 1 and takes pi as uniform.

    Args:
        n: chains to average over.
        n_states: C.
        generator: is advanced.
        dirichlet: concentration of the rows.

    Returns:
        Mean and standard error over chains, in nats.
    """
    chains = draw_chains(n, n_states, dirichlet, generator)
    share = stationary(chains)
    forgotten = share[:, None, :].expand_as(chains)
    later = torch.linalg.inv(torch.eye(n_states, dtype=torch.float64) - chains + forgotten)
    told = (chains / forgotten * (later - forgotten)).sum(-1)
    return measure((share**2 * told).sum(-1))


def log_growth(sample: ChainSample, short: int, long: int) -> Measure:
    """How fast does N c_beta grow with ln N between two lengths (mu = alpha = 0)?

    Both lengths are measured on the same chains, and the difference is taken chain by chain.

    Args:
        sample: sequences of at least the longer length.
        short: the shorter length.
        long: the longer one.

    Returns:
        (long c_beta(long) - short c_beta(short)) / ln(long / short), in nats.

    Raises:
        InputError: the lengths are not in order, or the sequences are too short.
    """
    if short >= long:
        raise InputError(f"lengths are {short} and {long}; the first has to be the shorter one")
    origin = SymmetricAttention()
    pull = [-n * slopes(origin, sample.last(n)).beta for n in (short, long)]
    return measure((pull[1] - pull[0]) / math.log(long / short))


def bias_table(
    sample: ChainSample, lengths: Sequence[int], mus: Sequence[float] = (0.0, 0.5)
) -> pd.DataFrame:
    """How do the biases fall with the length of the context?

    Args:
        sample: sequences of at least the largest length; each length uses their last states.
        lengths: N, of 2 and more.
        mus: shares of layer 1's output in the values.

    Returns:
        One row for each `mu` and `length`: `n_states`, `length`, `mu`, and in nats `c_beta`,
        `c_delta` and `cross` with `_se` beside each; `scaled`, c_beta N / ln N; `closed_form`, the
        notes' c_beta (for mu = 0), and `ratio`, measured over closed form.

    Raises:
        InputError: the sequences are shorter than a length.
    """
    rows = []
    for mu in mus:
        for length in lengths:
            found = biases(sample.last(length), mu)
            row: dict[str, float] = {"n_states": sample.n_states, "length": length, "mu": mu}
            for name in ("c_beta", "c_delta", "cross"):
                row[name], row[f"{name}_se"] = getattr(found, name)
            row["scaled"] = row["c_beta"] * length / math.log(length)
            row["closed_form"] = closed_form_c_beta(sample.n_states, length)
            row["ratio"] = row["c_beta"] / row["closed_form"]
            rows.append(row)
    return pd.DataFrame(rows)
