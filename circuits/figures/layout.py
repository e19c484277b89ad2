"""Where a node of the circuit graph is drawn: a function of the names of all nodes, nothing else.

Two figures of the same model therefore agree on every position, whatever their effects are, so
that checkpoints can be compared by eye and drawn as frames of one animation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from circuits.errors import InputError

_NAME = re.compile(r"(?:L(?P<layer>\d+)H(?P<head>\d+)|(?P<kind>[AM])(?P<block>\d+))\Z")
PORT_OFFSETS = {"q": -0.24, "k": 0.0, "v": 0.24}
_MLP_GAP = 1.5


@dataclass(frozen=True)
class Place:
    """The centre of a node, and its row counted from the bottom."""

    x: float
    y: float


@dataclass(frozen=True)
class _Parsed:
    """A node name taken apart: its row order and, for a head, its index."""

    name: str
    row: tuple[int, int]
    head: int | None


def node_places(names: Iterable[str]) -> dict[str, Place]:
    """Lays out a model's nodes: embed at the bottom, layers upwards, logits on top.

    Heads stand side by side in the order of their index, MLPs in a column of their own to the
    right and one row above the heads of their layer, which they read.

    Args:
        names: names of all nodes of the graph (`embed`, `L0H3`, `A0`, `M0`, `logits`), in any
            order.

    Returns:
        The place of each node, in units of one node spacing.

    Raises:
        InputError: for a name of another form.
    """
    parsed = [_parse(name) for name in sorted(set(names))]
    rows = {row: height for height, row in enumerate(sorted({node.row for node in parsed}))}
    width = max((node.head + 1 for node in parsed if node.head is not None), default=1)
    return {node.name: Place(_column(node, width), float(rows[node.row])) for node in parsed}


def split_edge(edge: str) -> tuple[str, str, str | None]:
    """Takes `L0H3->L2H1.q` apart into source node, target node and port.

    Raises:
        InputError: if the text is not the name of an edge.
    """
    source, arrow, reader = edge.partition("->")
    target, dot, port = reader.partition(".")
    if not arrow or not source or not target or (dot and port not in PORT_OFFSETS):
        raise InputError(
            f"{edge!r} is not the name of an edge; "
            "edges look like embed->M0, L0H3->L2H1.q (ports q, k, v) or M1->logits"
        )
    return source, target, port if dot else None


def curve(start: Place, end: Place, n_points: int = 16) -> tuple[list[float], list[float]]:
    """Draws a smooth upward curve between two places.

    Both ends are vertical, so that edges leave a node upwards and enter a port from below. An
    edge that stays in its column but skips rows bends aside, else it would run through the nodes
    between.

    Returns:
        The x and the y coordinates of `n_points` points.
    """
    rise = end.y - start.y
    bend = 0.3 * min(rise - 1.0, 4.0) if abs(end.x - start.x) < 0.75 and rise > 1.5 else 0.0
    xs, ys = [], []
    for step in range(n_points):
        t = step / (n_points - 1)
        first, second, third, last = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
        xs.append((first + second) * start.x + (third + last) * end.x + (second + third) * bend)
        ys.append(
            first * start.y
            + second * (start.y + rise / 2)
            + third * (end.y - rise / 2)
            + last * end.y
        )
    return xs, ys


def _parse(name: str) -> _Parsed:
    if name == "embed":
        return _Parsed(name, (-1, 0), None)
    if name == "logits":
        return _Parsed(name, (1_000_000, 0), None)
    match = _NAME.match(name)
    if match is None:
        raise InputError(
            f"{name!r} is not the name of a node; nodes are embed, logits, heads such as L0H3, "
            "MLPs such as M0 and, at layer granularity, attention layers such as A0"
        )
    if match["head"] is not None:
        return _Parsed(name, (int(match["layer"]), 0), int(match["head"]))
    row = (int(match["block"]), 0 if match["kind"] == "A" else 1)
    return _Parsed(name, row, 0 if match["kind"] == "A" else None)


def _column(node: _Parsed, width: int) -> float:
    """Heads are centred on 0; MLPs stand to the right; embed and logits between the two."""
    right = (width - 1) / 2
    if node.head is not None:
        return node.head - right
    if node.row[1] == 1:
        return right + _MLP_GAP
    return _MLP_GAP / 2
