"""Models whose circuit is known because every weight was set by hand.

The residual stream is divided into named slots, one-hot each. A part of the model reads and writes
chosen slots only; everything else is a decoy that computes something and writes it where nobody
reads. So the edges that matter can be listed, and `edges[ablation]` lists them.

What matters depends on the ablation: heads that look at fixed positions need their queries and
keys under "zero", but not under "mean", "resample" or "patch", which keep the position.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

SHARP = 60.0
"""Attention scores this far apart put all attention on the larger, to within 1e-26."""

VARYING = ("mean", "resample", "patch")


@dataclass(frozen=True)
class KnownCircuit:
    """A model, batches for it, and the edges that it uses under each ablation."""

    model: HookedTransformer
    clean: Int[Tensor, "batch pos"]
    corrupt: Int[Tensor, "batch pos"]
    scored: tuple[int, ...]
    edges: dict[str, tuple[str, ...]]


class Slots:
    """Names consecutive parts of the residual stream."""

    def __init__(self, **sizes: int) -> None:
        self.size = 0
        self.of: dict[str, slice] = {}
        for name, size in sizes.items():
            self.of[name] = slice(self.size, self.size + size)
            self.size += size

    def __getitem__(self, name: str) -> slice:
        return self.of[name]


def induction_head(batch: int = 24, seed: int = 0) -> KnownCircuit:
    """`... a b ... a` is continued by `b`: a previous-token head, then an induction head.

    Six tokens in random order, then one of them again; L0H0 writes each position's previous token,
    L1H0 looks for the position whose previous token is the current one, and copies its token.
    """
    n_vocab, n_ctx = 6, 8
    slots = Slots(token=n_vocab, pos=n_ctx, prev=n_vocab, out=n_vocab, junk=3)
    model = _blank(slots, n_vocab, n_ctx, d_head=8, attn_only=True)
    _embed(model, slots)
    _look(model, 0, 0, slots["pos"], slots["pos"], torch.eye(n_ctx).roll(-1, 1))
    _copy(model, 0, 0, slots["token"], slots["prev"], n_vocab)
    _look(model, 1, 0, slots["token"], slots["prev"], torch.eye(n_vocab))
    _copy(model, 1, 0, slots["token"], slots["out"], n_vocab)
    model.W_U[slots["out"]] = 10 * torch.eye(n_vocab)
    _decoys(model, slots, heads=[(0, 1), (1, 1)], mlps=[], seed=seed)

    generator = torch.Generator().manual_seed(seed)
    varying = ("embed->L0H0.v", "embed->L1H0.q", "L0H0->L1H0.k", "embed->L1H0.v", "L1H0->logits")
    fixed = ("embed->L0H0.q", "embed->L0H0.k")
    return KnownCircuit(
        model,
        _repeats(batch, n_vocab, generator),
        _repeats(batch, n_vocab, generator),
        scored=(6,),
        edges={"zero": fixed + varying} | dict.fromkeys(VARYING, varying),
    )


KNOTS = (0.0, 0.1, 0.25, 0.5, 1.0)
FLOOR = 0.02
"""The MLP of `bigram_head` interpolates log(f + FLOOR) between these values of f."""


def bigram_head(batch: int = 24, seed: int = 0) -> KnownCircuit:
    """Predicts the next state of a Markov chain by the bigram counts of its context.

    A statistical induction head: L0H0 writes the previous state, L1H0 attends evenly to all
    positions whose previous state is the current one, so that it reads out bigram frequencies,
    and M1 takes their logarithm.
    """
    n_states, n_ctx = 4, 16
    n_vocab = n_states + 1  # the last token opens every sequence
    slots = Slots(token=n_vocab, pos=n_ctx, prev=n_vocab, share=n_vocab, log=n_states, junk=3)
    model = _blank(slots, n_vocab, n_ctx, d_head=16, d_mlp=len(KNOTS) * n_states)
    _embed(model, slots)
    _look(model, 0, 0, slots["pos"], slots["pos"], torch.eye(n_ctx).roll(-1, 1))
    _copy(model, 0, 0, slots["token"], slots["prev"], n_vocab)
    _look(model, 1, 0, slots["token"], slots["prev"], torch.eye(n_vocab))
    _copy(model, 1, 0, slots["token"], slots["share"], n_vocab)
    _logarithm(model, 1, slots["share"].start, slots["log"].start, n_states)
    model.W_U[slots["log"], :n_states] = torch.eye(n_states)
    model.unembed.b_U[n_states] = -20.0  # the opening token never comes again
    _decoys(model, slots, heads=[(0, 1), (1, 1)], mlps=[0], seed=seed)

    generator = torch.Generator().manual_seed(seed)
    varying = (
        "embed->L0H0.v",
        "embed->L1H0.q",
        "L0H0->L1H0.k",
        "embed->L1H0.v",
        "L1H0->M1",
        "M1->logits",
    )
    fixed = ("embed->L0H0.q", "embed->L0H0.k")
    return KnownCircuit(
        model,
        _chains(batch, n_states, n_ctx, generator),
        _chains(batch, n_states, n_ctx, generator),
        scored=(10, 12, 14),
        edges={"zero": fixed + varying} | dict.fromkeys(VARYING, varying),
    )


def selector_lookup(batch: int = 24, seed: int = 0) -> KnownCircuit:
    """Looks up the answer to a pair (B, z): one head fetches z, one fetches B, an MLP knows all.

    Sequences are SEP B SEP z SEP A with 4 values of B, 3 of z and one answer a pair. The corrupt
    batch keeps B and changes z, so that under "patch" only the selector's path matters.
    """
    n_b, n_z, n_ctx = 4, 3, 6
    sep, first_answer = n_b + n_z, n_b + n_z + 1
    n_answers, n_vocab = n_b * n_z, first_answer + n_b * n_z
    slots = Slots(token=n_vocab, pos=n_ctx, z=n_z, b=n_b, out=n_answers, junk=3)
    model = _blank(slots, n_vocab, n_ctx, d_head=8, d_mlp=n_answers)
    _embed(model, slots)
    for head, seen in ((0, 3), (1, 1)):  # z stands at position 3, B at 1, both read from 4
        pattern = torch.zeros(n_ctx, n_ctx)
        pattern[4, seen] = 1
        _look(model, 0, head, slots["pos"], slots["pos"], pattern)
    _copy(model, 0, 0, slice(n_b, n_b + n_z), slots["z"], n_z)
    _copy(model, 0, 1, slice(0, n_b), slots["b"], n_b)
    mlp = model.blocks[1].mlp
    for pair in range(n_answers):
        mlp.W_in[slots["b"].start + pair // n_z, pair] = 1
        mlp.W_in[slots["z"].start + pair % n_z, pair] = 1
        mlp.b_in[pair] = -1  # fires when both are there
        mlp.W_out[pair, slots["out"].start + pair] = 12
    model.W_U[slots["out"], first_answer:] = torch.eye(n_answers)
    _decoys(model, slots, heads=[(1, 0), (1, 1)], mlps=[0], seed=seed)

    generator = torch.Generator().manual_seed(seed)
    b = torch.arange(batch) % n_b
    z = torch.arange(batch) // n_b % n_z
    other = (z + torch.randint(1, n_z, (batch,), generator=generator)) % n_z
    z_path = ("embed->L0H0.v", "L0H0->M1", "M1->logits")
    varying = ("embed->L0H1.v", "L0H1->M1", *z_path)
    fixed = ("embed->L0H0.q", "embed->L0H0.k", "embed->L0H1.q", "embed->L0H1.k")

    def sequences(selector: Tensor) -> Tensor:
        mark = torch.full_like(b, sep)
        answer = first_answer + b * n_z + selector
        return torch.stack([mark, b, mark, n_b + selector, mark, answer], dim=1)

    return KnownCircuit(
        model,
        sequences(z),
        sequences(other),
        scored=(4,),
        edges={"zero": fixed + varying, "mean": varying, "resample": varying, "patch": z_path},
    )


KNOWN = {
    "induction head": induction_head,
    "bigram head": bigram_head,
    "selector lookup": selector_lookup,
}


def _blank(
    slots: Slots, n_vocab: int, n_ctx: int, d_head: int, d_mlp: int = 1, attn_only: bool = False
) -> HookedTransformer:
    """Two layers of two heads, no norm, relu; every parameter zero and not trained."""
    cfg = HookedTransformerConfig(
        n_layers=2,
        d_model=slots.size,
        n_ctx=n_ctx,
        d_head=max(d_head, n_ctx),
        n_heads=2,
        d_mlp=d_mlp,
        d_vocab=n_vocab,
        act_fn="relu",
        normalization_type=None,
        attn_only=attn_only,
        init_weights=False,
        device="cpu",
    )
    model = HookedTransformer(cfg)
    for parameter in model.parameters():
        parameter.data.zero_()
        parameter.requires_grad_(False)
    return model


def _embed(model: HookedTransformer, slots: Slots) -> None:
    model.W_E[:, slots["token"]] = torch.eye(model.cfg.d_vocab)
    model.W_pos[:, slots["pos"]] = torch.eye(model.cfg.n_ctx)


def _look(
    model: HookedTransformer, layer: int, head: int, query: slice, key: slice, wanted: Tensor
) -> None:
    """Makes query value i attend where the key slots hold j, for wanted[i, j] = 1."""
    attn = model.blocks[layer].attn
    attn.W_Q[head, query, : wanted.shape[1]] = SHARP * model.cfg.attn_scale * wanted
    attn.W_K[head, key, : wanted.shape[1]] = torch.eye(wanted.shape[1])


def _copy(
    model: HookedTransformer, layer: int, head: int, source: slice, target: slice, n: int
) -> None:
    """Makes a head write what its attended positions hold in `source` into `target`."""
    attn = model.blocks[layer].attn
    attn.W_V[head, source, :n] = torch.eye(n)
    attn.W_O[head, :n, target] = torch.eye(n)


def _logarithm(model: HookedTransformer, layer: int, source: int, target: int, n: int) -> None:
    """Makes an MLP write log(f + FLOOR), interpolated between KNOTS, for n values f."""
    mlp = model.blocks[layer].mlp
    knots = torch.tensor(KNOTS)
    slopes = (knots + FLOOR).log().diff() / knots.diff()
    bends = torch.cat([slopes[:1], slopes.diff()])
    for i in range(n):
        for j, (knot, bend) in enumerate(zip(KNOTS[:-1], bends.tolist(), strict=True)):
            neuron = i * len(KNOTS) + j
            mlp.W_in[source + i, neuron] = 1
            mlp.b_in[neuron] = -knot
            mlp.W_out[neuron, target + i] = bend
        mlp.b_out[target + i] = float(torch.tensor(FLOOR).log())


def _decoys(
    model: HookedTransformer,
    slots: Slots,
    heads: list[tuple[int, int]],
    mlps: list[int],
    seed: int,
) -> None:
    """Gives heads and MLPs random weights, and lets them write where nobody reads."""
    generator = torch.Generator().manual_seed(seed + 1)

    def fill(weight: Tensor) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator))

    for layer, head in heads:
        attn = model.blocks[layer].attn
        for weight in (attn.W_Q[head], attn.W_K[head], attn.W_V[head]):
            fill(weight)
        fill(attn.W_O[head, :, slots["junk"]])
    for layer in mlps:
        mlp = model.blocks[layer].mlp
        fill(mlp.W_in)
        fill(mlp.W_out[:, slots["junk"]])


def _repeats(batch: int, n_vocab: int, generator: torch.Generator) -> Tensor:
    """All tokens in random order, then one that stood at position 1 to 4, then its follower."""
    order = torch.rand(batch, n_vocab, generator=generator).argsort(-1)
    place = torch.randint(1, 5, (batch, 1), generator=generator)
    return torch.cat([order, order.gather(1, place), order.gather(1, place + 1)], dim=1)


def _chains(batch: int, n_states: int, n_ctx: int, generator: torch.Generator) -> Tensor:
    """An opening token, then a Markov chain with one transition matrix an example."""
    logits = 2.5 * torch.randn(batch, n_states, n_states, generator=generator)
    transitions = logits.softmax(-1)
    states = [torch.randint(n_states, (batch,), generator=generator)]
    for _ in range(n_ctx - 2):
        row = transitions[torch.arange(batch), states[-1]]
        states.append(torch.multinomial(row, 1, generator=generator)[:, 0])
    opening = torch.full((batch,), n_states)
    return torch.stack([opening, *states], dim=1)
