"""The weights of a model as one long vector, and which parts of it belong to what."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import InputError

_HEAD_MATRIX = re.compile(r"blocks\.(\d+)\.attn\.(W_[QKVO])")
_BLOCK = re.compile(r"blocks\.(\d+)\.(\w+)\.")

MODEL = "model"
"""Name of the group of all weights."""


@dataclass(frozen=True)
class FlatLayout:
    """Where every tensor lies in the vector, and the groups that its pieces belong to.

    Attributes:
        shapes: the tensors by name, in the order in which they are laid out.
        segments: consecutive pieces of the vector: one tensor, or one head's slice of
            W_Q, W_K, W_V or W_O.
        groups: names: `model`; layers `L0`; components `embed`, `A0`, `M0`, `L0.ln1`; heads
            `L0H3` (their four slices; biases count to `A0` only) and slices `L0H3.W_Q`.
        kinds: for each group `model`, `layer`, `component`, `head` or `slice`.
        membership: `"segment group"`, 1 where the piece belongs to the group.
    """

    shapes: dict[str, torch.Size]
    segments: tuple[slice, ...]
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    membership: Float[np.ndarray, "segment group"]

    @classmethod
    def of(cls, weights: Mapping[str, Tensor]) -> "FlatLayout":
        """Lays out weights that are named as TransformerLens names them."""
        shapes, segments = {name: tensor.shape for name, tensor in weights.items()}, []
        kinds: dict[str, str] = {}
        owners: list[tuple[str, ...]] = []
        start = 0
        for name, shape in shapes.items():
            pieces = _pieces(name, shape)
            size = shape.numel() // len(pieces)
            for belongs in pieces:
                segments.append(slice(start, start + size))
                owners.append(tuple(belongs))
                kinds |= {group: kinds.get(group, kind) for group, kind in belongs.items()}
                start += size
        rank = {kind: at for at, kind in enumerate(("model", "layer", "component", "head"))}
        groups = sorted(kinds, key=lambda group: rank.get(kinds[group], len(rank)))
        membership = np.array([[float(g in owner) for g in groups] for owner in owners])
        return cls(
            shapes, tuple(segments), tuple(groups), tuple(kinds[g] for g in groups), membership
        )

    @property
    def size(self) -> int:
        """Length of the vector: parameters of the model."""
        return self.segments[-1].stop

    @property
    def sizes(self) -> Float[np.ndarray, " group"]:
        """Parameters of each group."""
        lengths = np.array([float(part.stop - part.start) for part in self.segments])
        return lengths @ self.membership

    def flatten(self, weights: Mapping[str, Tensor], where: str) -> Float[np.ndarray, " parameter"]:
        """Copies weights into one float32 vector.

        Args:
            weights: tensors by name; each is read once.
            where: what they are, for the error.

        Raises:
            InputError: other tensors than those laid out, or values that are not finite.
        """
        if {name: weights[name].shape for name in weights} != self.shapes:
            raise InputError(
                f"{where} holds other tensors than the first checkpoint does; all checkpoints "
                "have to be of one model"
            )
        flat = torch.cat([weights[name].flatten().float() for name in self.shapes]).numpy()
        if not np.isfinite(flat).all():
            raise InputError(f"{where} holds NaN or infinite values; this checkpoint is unusable")
        return flat

    def by_group(self, sums: Float[np.ndarray, " segment"]) -> Float[np.ndarray, " group"]:
        """Adds up what was summed piece by piece."""
        return sums @ self.membership


def _pieces(name: str, shape: torch.Size) -> list[dict[str, str]]:
    """The groups of each piece of a tensor, with their kinds."""
    matrix, block = _HEAD_MATRIX.fullmatch(name), _BLOCK.match(name)
    if matrix and len(shape) == 3:
        layer, which = matrix.groups()
        common = {MODEL: "model", f"L{layer}": "layer", f"A{layer}": "component"}
        heads = [f"L{layer}H{head}" for head in range(shape[0])]
        return [{**common, head: "head", f"{head}.{which}": "slice"} for head in heads]
    if block:
        layer, part = block.groups()
        component = {"attn": f"A{layer}", "mlp": f"M{layer}"}.get(part, f"L{layer}.{part}")
        return [{MODEL: "model", f"L{layer}": "layer", component: "component"}]
    return [{MODEL: "model", name.partition(".")[0]: "component"}]
