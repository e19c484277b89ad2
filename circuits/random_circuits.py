"""Random circuits of equal size: what a circuit has to beat."""

from collections.abc import Sequence

import torch

from circuits.errors import InputError, whole_number
from circuits.graph import Circuit, Edge


def random_circuits(
    circuit: Circuit, n: int, seed: int = 0, same_layers: bool = False
) -> list[Circuit]:
    """Draws circuits with as many edges as a given one.

    Args:
        circuit: the one to match.
        n: how many to draw.
        seed: of the draw; global random state is not touched.
        same_layers: also match how many edges go into each kind of reader (q, k, v, MLP, logits) of
            each layer, so that only the choice within a layer is random.

    Returns:
        The circuits, edges drawn without replacement; the same for the same seed.

    Raises:
        InputError: a negative number of circuits.
    """
    if whole_number("n_random", n) < 0:
        raise InputError(f"n={n} random circuits cannot be drawn: give 0 or more")
    generator = torch.Generator().manual_seed(seed)
    groups: dict[object, list[Edge]] = {}
    for edge in circuit.graph.edges:
        reader = edge.reader
        key = (reader.kind, reader.layer, reader.input) if same_layers else None
        groups.setdefault(key, []).append(edge)
    return [
        Circuit(
            circuit.graph,
            frozenset(e for group in groups.values() for e in _draw(group, circuit, generator)),
        )
        for _ in range(n)
    ]


def _draw(group: Sequence[Edge], circuit: Circuit, generator: torch.Generator) -> list[Edge]:
    """As many edges of a group as the circuit has."""
    wanted = sum(edge in circuit.edges for edge in group)
    order = torch.randperm(len(group), generator=generator).tolist()
    return [group[i] for i in order[:wanted]]
