"""Circuits to and from other tools: networkx, and the JSON that EAP-IG and MIB exchange.

`Circuit.to_json` and `Circuit.from_json` are this package's own form.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circuits.edge_scores import EdgeScores, edge_scores
from circuits.errors import InputError
from circuits.graph import Circuit, Edge, Graph, Node, Reader, bounded


@dataclass(frozen=True)
class ImportedCircuit:
    """A circuit and the edge scores that came with it.

    Attributes:
        circuit: the edges marked as in the circuit.
        scores: a score for every edge that had one.
    """

    circuit: Circuit
    scores: dict[str, float]


def to_networkx(circuit: Circuit, effects: EdgeScores | None = None) -> Any:
    """Gives a circuit as a networkx graph.

    Args:
        circuit: its edges become the graph's; all nodes appear, unused ones too.
        effects: scores to write on the edges as `effect`.

    Returns:
        A `networkx.MultiDiGraph` (a head reads a source up to three times, as q, k and v). Nodes
        are named as here, with `kind`, `layer` and `index`; edges have their name as key, and
        `reader` and `input`.

    Raises:
        InputError: networkx is not installed, or the effects lack an edge of the circuit.
    """
    nx = _networkx()
    scores = None if effects is None else edge_scores(effects)
    out = nx.MultiDiGraph(graph=json.dumps(circuit.graph.to_json()))
    for node in circuit.graph.nodes:
        out.add_node(node.name, kind=node.kind, layer=node.layer, index=node.index)
    out.add_node("logits", kind="logits", layer=circuit.graph.n_layers, index=None)
    for edge in circuit:
        values: dict[str, Any] = {"reader": edge.reader.name, "input": edge.reader.input}
        if scores is not None:
            values["effect"] = _score(scores, edge.name)
        out.add_edge(edge.source.name, edge.reader.node or "logits", key=edge.name, **values)
    return out


def from_networkx(graph: Any) -> ImportedCircuit:
    """Reads a circuit from a networkx graph that `to_networkx` made, edited or not.

    Raises:
        InputError: it does not carry its graph, or it has an edge of another name.
    """
    try:
        shape = Graph.from_json(json.loads(graph.graph["graph"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            "graph carries no description of its circuit graph: pass one made by to_networkx"
        ) from error
    edges = list(graph.edges(keys=True, data=True))
    scores = {key: float(values["effect"]) for *_, key, values in edges if "effect" in values}
    return ImportedCircuit(Circuit.of(shape, [key for *_, key, _ in edges]), scores)


def to_eap_json(circuit: Circuit, d_model: int, effects: EdgeScores | None = None) -> str:
    """Gives a circuit in the JSON that EAP-IG writes and the MIB benchmark takes.

    Nodes are "input", "a0.h1", "m0" and "logits"; edges "a0.h1->a2.h3<q>". Scores have the same
    sign in both tools: metric(ablated) - metric(clean). Two differences remain. Their "input" is
    the token embedding alone, while `embed` here holds the position too. And they give a model
    without MLPs MLP nodes all the same; none are written here, and `cfg.attn_only` says so.

    Args:
        circuit: at head granularity.
        d_model: width of the model's residual stream, which their format asks for.
        effects: scores, one an edge of the whole graph; 0 for every edge when not given.

    Returns:
        JSON text with `cfg`, `nodes` and `edges`; every edge of the graph is there.

    Raises:
        InputError: another granularity, or the effects lack an edge.
    """
    graph = circuit.graph
    if graph.granularity != "head":
        raise InputError(
            f"granularity={graph.granularity!r} has no counterpart in EAP-IG's format: "
            "use a circuit of Graph.of(model, granularity='head')"
        )
    scores = None if effects is None else edge_scores(effects)
    cfg = {
        "n_layers": graph.n_layers,
        "n_heads": graph.n_heads,
        "parallel_attn_mlp": graph.parallel,
        "d_model": d_model,
        "attn_only": graph.attn_only,
    }
    used = {edge.source.name for edge in circuit} | {edge.reader.node for edge in circuit}
    nodes = {_eap_node(node): {"in_graph": node.name in used} for node in graph.nodes}
    edges = {
        _eap_edge(edge): {
            "score": 0.0 if scores is None else _score(scores, edge.name),
            "in_graph": edge in circuit.edges,
        }
        for edge in graph.edges
    }
    return json.dumps({"cfg": cfg, "nodes": nodes | {"logits": {"in_graph": True}}, "edges": edges})


def from_eap_json(text: str) -> ImportedCircuit:
    """Reads the JSON that EAP-IG writes; only edges decide what is in the circuit.

    Raises:
        InputError: not such a file, it names an edge that its own model lacks, or it chooses
            neurons within nodes, which edges cannot say.
    """
    try:
        graph, listed, partial = _eap_parts(json.loads(text))
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError(
            "EAP-IG JSON must be an object with 'cfg' (n_layers, n_heads, parallel_attn_mlp), "
            "'nodes' and 'edges' (each with in_graph and a score, a number or null)"
        ) from None
    if partial:
        raise InputError(
            f"EAP-IG JSON leaves out neurons of {partial[0]!r}: "
            "only circuits of whole nodes are read"
        )
    known = {_eap_edge(edge): edge.name for edge in graph.edges}
    names = {name: known.get(name) or graph.edge(_own_name(name)).name for name in listed}
    circuit = Circuit.of(graph, [names[name] for name, (inside, _) in listed.items() if inside])
    return ImportedCircuit(circuit, {names[n]: s for n, (_, s) in listed.items() if s is not None})


def _eap_parts(values: Any) -> tuple[Graph, dict[str, tuple[bool, float | None]], list[str]]:
    """The graph, each edge's place and score, and the nodes of which only a part is kept."""
    cfg, nodes, edges = values["cfg"], values["nodes"], values["edges"]
    graph = Graph(
        n_layers=int(cfg["n_layers"]),
        n_heads=int(cfg["n_heads"]),
        attn_only=bool(cfg.get("attn_only", "m0" not in nodes)),
        parallel=bool(cfg["parallel_attn_mlp"]),
    )
    scores = {name: edge.get("score") for name, edge in edges.items()}
    listed = {
        name: (bool(edge["in_graph"]), None if scores[name] is None else float(scores[name]))
        for name, edge in edges.items()
    }
    partial = [
        n for n, v in nodes.items() if isinstance(v, Mapping) and not all(v.get("neurons", ()))
    ]
    return bounded(graph), listed, partial


def _eap_node(node: Node | Reader) -> str:
    if node.kind == "head":
        return f"a{node.layer}.h{node.index}"
    return {"embed": "input", "mlp": f"m{node.layer}", "logits": "logits"}[node.kind]


def _eap_edge(edge: Edge) -> str:
    which = f"<{edge.reader.input}>" if edge.reader.input else ""
    return f"{_eap_node(edge.source)}->{_eap_node(edge.reader)}{which}"


def _own_name(name: str) -> str:
    """An EAP-IG edge name in the words used here, for the error message about it."""
    name = re.sub(r"a(\d+)\.h(\d+)", r"L\1H\2", name)
    name = re.sub(r"<([qkv])>$", r".\1", name)
    return re.sub(r"\bm(\d+)", r"M\1", name).replace("input", "embed")


def _score(scores: dict[str, float], name: str) -> float:
    if name not in scores:
        raise InputError(f"effects lacks {name!r}: score every edge that is written")
    return scores[name]


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise InputError(
            "networkx is not installed: `pip install networkx`, or use Circuit.to_json"
        ) from error
    return networkx
