"""One score an edge, whatever it comes from: effects, gradients, a table, an imported file."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from circuits.errors import InputError
from circuits.graph import Circuit, Graph

EdgeScores = Any
"""`EdgeEffects`, `EdgeGradients`, a frame with `edge` and `effect`, or a mapping name -> score."""


def edge_scores(effects: EdgeScores) -> dict[str, float]:
    """Gives the score of each edge by name, in the order in which they come.

    Args:
        effects: a result with such a `.table`, a frame with the columns `edge` and `effect`, or a
            mapping from edge names to numbers.

    Returns:
        Names and finite scores.

    Raises:
        InputError: nothing of the kind, a repeated edge (for example a table by position), or a
            score that is not finite.
    """
    table = getattr(effects, "table", effects)
    if isinstance(table, pd.DataFrame):
        if not {"edge", "effect"} <= set(table.columns):
            raise InputError(
                f"effects has the columns {list(table.columns)}: 'edge' and 'effect' are needed"
            )
        pairs = list(zip(table["edge"].astype(str), table["effect"].astype(float), strict=True))
    elif isinstance(table, Mapping):
        pairs = [(str(edge), float(score)) for edge, score in table.items()]
    else:
        raise InputError(
            f"effects={type(effects).__name__} is not understood: pass the result of edge_effects "
            "or edge_gradients, its table, or a mapping from edge names to scores"
        )
    scores = dict(pairs)
    if len(scores) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"effects lists {twice!r} more than once: give one score an edge (without positions=)"
        )
    for name, score in pairs:
        if not math.isfinite(score):
            raise InputError(f"effects gives {name!r} the score {score}: scores must be finite")
    return scores


def ranked_edges(effects: EdgeScores, graph: Graph, absolute: bool = True) -> list[str]:
    """Orders the edges of a graph by score, the largest first.

    Args:
        effects: one score for every edge of the graph, as `edge_scores` reads it.
        graph: the graph that the scores belong to.
        absolute: rank by size, so that an edge that hurts the metric counts as much as one that
            helps; else by the signed score.

    Returns:
        Edge names; equal scores stay in causal order.

    Raises:
        InputError: an edge without a score, or a score for an edge that the graph lacks.
    """
    scores = edge_scores(effects)
    for name in scores:
        graph.edge(name)
    missing = [edge.name for edge in graph.edges if edge.name not in scores]
    if missing:
        raise InputError(
            f"effects lacks {len(missing)} of the graph's {len(graph.edges)} edges, for example "
            f"{missing[0]!r}: score all edges"
        )
    names = [edge.name for edge in graph.edges]
    return sorted(names, key=lambda name: -(abs(scores[name]) if absolute else scores[name]))


def top_circuit(
    effects: EdgeScores,
    n: int,
    graph: Graph | None = None,
    absolute: bool = True,
    connected: bool = False,
) -> Circuit:
    """Gives the circuit of the `n` edges with the largest effects.

    Args:
        effects: one score for every edge of the graph.
        n: number of edges, from 0 to all.
        graph: the graph; by default that of `effects`.
        absolute: rank by the size of the effect, else by the signed effect.
        connected: drop edges on no path from `embed` to `logits` afterwards, to a fixed point, so
            that fewer than `n` edges may remain (as EAP-IG's and MIB's top-n does).

    Returns:
        The circuit. Equal effects are taken in causal order.

    Raises:
        InputError: `n` out of range, no graph, or scores that do not fit the graph.
    """
    graph = graph_of(effects) if graph is None else graph
    if not 0 <= n <= len(graph.edges):
        raise InputError(f"n={n} must lie between 0 and the graph's {len(graph.edges)} edges")
    circuit = Circuit.of(graph, ranked_edges(effects, graph, absolute)[:n])
    return circuit.connected() if connected else circuit


def graph_of(effects: EdgeScores) -> Graph:
    """The graph that a result carries.

    Raises:
        InputError: it carries none; pass `graph=`.
    """
    graph = getattr(effects, "graph", None)
    if not isinstance(graph, Graph):
        raise InputError(
            f"effects={type(effects).__name__} does not say which graph it belongs to: pass graph="
        )
    return graph
