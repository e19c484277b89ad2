"""A model with heads taken away, as a function of tokens: anything can be measured on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError, whole_number
from circuits.head_replacement import HeadAblation, check_head_ablation, replacement
from circuits.heads import check_tokens, parse_head_sets, parse_positions, set_name
from circuits.provenance import provenance
from circuits.restart import record
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class AblatedModel:
    """Tokens to logits, with some heads replaced. The model itself carries no hook between calls.

    Attributes:
        model: the model that is run.
        heads: name of the ablated heads, `L0H3` or `L0H1+L1H2`.
        members: for each layer with ablated heads, their indices.
        swaps: for each such layer, what its heads carry; broadcasts against z.
        positions: where heads are ablated; None for everywhere.
        provenance: the ablation, its reference batch, the model and versions.
    """

    model: Any
    heads: str
    members: dict[int, list[int]]
    swaps: dict[int, Tensor]
    positions: tuple[int, ...] | None
    provenance: dict[str, Any]

    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Gives the logits under the ablation.

        Args:
            tokens: any batch, unless the replacement is tied to examples ("patch": as many as the
                corrupt batch) or to positions (at most as many as the reference batch).

        Raises:
            InputError: if the batch does not fit the replacement.
        """
        check_tokens(self.model, tokens, "tokens", tokens.shape[1])
        for swap in self.swaps.values():
            _check_fits(tokens, swap)
        parse_positions(self.positions, tokens.shape[1])
        hooks = [(f"blocks.{layer}.attn.hook_z", self._hook(layer)) for layer in self.swaps]
        with undisturbed(self.model):
            return self.model.run_with_hooks(tokens, fwd_hooks=hooks)

    def _hook(self, layer: int) -> Any:
        heads, swap, positions = self.members[layer], self.swaps[layer], self.positions

        def replace(z: Tensor, hook: Any) -> Tensor:
            changed = z.clone()
            given = swap[:, : z.shape[1]].expand(z.shape)
            where = list(parse_positions(positions, z.shape[1]))
            for head in heads:
                changed[:, where, head] = given[:, where, head]
            return changed

        return replace


def ablated(
    model: Any,
    heads: Iterable[str] | str,
    ablation: HeadAblation | str = "zero",
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"] | None = None,
    positions: Sequence[int] | None = None,
    seed: int = 0,
) -> AblatedModel:
    """What would any measurement say of this model without these heads?

    The result is a function from tokens to logits. Task diagnostics, which take such a function,
    can be computed under the ablation; a diagnostic of the whole model says nothing about it.
    Costs one forward pass of the reference batch, unless the ablation is "zero".

    Args:
        model: a HookedTransformer; no hook stays on it.
        heads: one head, or heads to ablate together.
        ablation: as in `head_effects`.
        reference: the batch that the means of "mean" and "mean-all", or the partners of
            "resample", come from; never taken from the batch at hand, which may be one that the
            diagnostic has shuffled. Give the tokens that the model reads.
        corrupt: the paired batch of "patch".
        positions: where heads are ablated; everywhere if not given.
        seed: of the partners of "resample".

    Returns:
        The ablated model.

    Raises:
        InputError: for an unknown head or ablation, a missing or unneeded batch, or a position
            that is out of range.
    """
    check_head_ablation(ablation)
    whole_number("seed", seed)
    chosen = parse_head_sets(model, [[heads] if isinstance(heads, str) else heads])[0]
    source = _source(ablation, reference, corrupt)
    z: tuple[Tensor, ...] | None = None
    if source is not None:
        check_tokens(
            model, source, "corrupt" if ablation == "patch" else "reference", source.shape[1]
        )
        with undisturbed(model):
            z = record(model, source, (0,), ("z",))["z"]
    members: dict[int, list[int]] = {}
    for layer, head in chosen:
        members.setdefault(layer, []).append(head)
    swaps = {layer: _swap(model, layer, ablation, z, seed) for layer in members}
    parse_positions(positions, model.cfg.n_ctx if source is None else source.shape[1])
    where = None if positions is None else tuple(positions)
    told = torch.zeros(0, 0, dtype=torch.long) if source is None else source
    facts = provenance(model, told, heads=set_name(chosen), ablation=ablation, seed=seed)
    return AblatedModel(model, set_name(chosen), members, swaps, where, facts)


def _source(ablation: str, reference: Tensor | None, corrupt: Tensor | None) -> Tensor | None:
    """Picks the batch of the replacement; a batch without use is a mistake, not a detail."""
    needed = {"zero": None, "patch": "corrupt"}.get(ablation, "reference")
    given = {"reference": reference, "corrupt": corrupt}
    for name, batch in given.items():
        if name == needed and batch is None:
            raise InputError(
                f"ablation={ablation!r} needs {name}=, the batch that its replacement comes from"
            )
        if name != needed and batch is not None:
            raise InputError(f"{name}= is not used by ablation={ablation!r}; leave it out")
    return None if needed is None else given[needed]


def _swap(
    model: Any, layer: int, ablation: str, z: tuple[Tensor, ...] | None, seed: int
) -> Float[Tensor, "rows places head_index d_head"]:
    if z is not None:
        return replacement(ablation, z[layer], seed)
    weight = model.blocks[layer].attn.W_O
    return weight.new_zeros(1, 1, model.cfg.n_heads, model.cfg.d_head)


def _check_fits(tokens: Tensor, swap: Tensor) -> None:
    rows, places = swap.shape[:2]
    if rows not in (1, tokens.shape[0]):
        raise InputError(
            f"the replacement was made of {rows} examples but tokens has {tokens.shape[0]}; "
            "give as many examples as the batch it was made of"
        )
    if places != 1 and places < tokens.shape[1]:
        raise InputError(
            f"the replacement knows {places} positions but tokens has {tokens.shape[1]}; "
            "make it of sequences that are at least as long"
        )
