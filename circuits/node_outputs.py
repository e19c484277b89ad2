"""What one node writes: read by name, and replaced for all or some of those who read it."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.checked_run import check_length, check_tokens, checked_streams
from circuits.errors import InputError, near_matches, refuse_other_kinds
from circuits.graph import Edge, Graph, Node, Reader
from circuits.model_weights import read_weights
from circuits.streams import Streams, run_streams, simple_edges
from circuits.undisturbed import undisturbed


def node_output(
    model: Any, tokens: Int[Tensor, "batch pos"], node: str
) -> Float[Tensor, "batch pos d_model"]:
    """What does a node write into the residual stream?

    Args:
        model: a HookedTransformer, which is left as it was found.
        tokens: the sequences.
        node: as in `task_vectors`.

    Returns:
        Its output; of a head or a layer's attention z W_O, without the constant b_O.

    Raises:
        InputError: an unknown node or bad tokens.
    """
    found = parse_node(model, node)
    check_tokens(model, "tokens", tokens)
    check_length(model, tokens.shape[1])
    with undisturbed(model):
        streams, _ = checked_streams(model, read_weights(model), tokens, None)
        return streams.output(found)


def parse_node(model: Any, name: str) -> Node:
    """Reads a node's name: heads apart (`L1H0`) or a layer's heads together (`A1`).

    Raises:
        InputError: no such node; the message lists near matches.
    """
    refuse_other_kinds("node", name, str, "a name such as 'M0'")
    apart, merged = Graph.of(model), Graph.of(model, "layer")
    nodes = {node.name: node for graph in (apart, merged) for node in graph.nodes}
    if name in nodes:
        return nodes[name]
    if apart.attn_only and name.startswith("M") and name[1:].isdigit():
        raise InputError(
            f"node={name!r} is an MLP but the model is attention-only: "
            f"its nodes are {near_matches(name, nodes, n=len(nodes))}"
        )
    raise InputError(
        f"node={name!r} is not in this model; near matches: {near_matches(name, nodes, n=8)}"
    )


def patched_run(
    base: Streams,
    node: Node,
    readers: Sequence[Reader] | None,
    new: Float[Tensor, "rows places d_model"],
    at: Sequence[int],
) -> Streams:
    """Runs the model with a node's output replaced, for some of its readers, at some positions.

    Args:
        base: the clean run.
        node: whose output is replaced.
        readers: who sees the replacement; None for everyone.
        new: the replacement at the positions `at`, or broadcastable to it.
        at: positions.

    Returns:
        The run.
    """
    output = base.output(node)
    change = torch.zeros_like(output)
    change[:, list(at)] = new.to(output.dtype) - output[:, list(at)]
    if readers is not None:
        return run_streams(base.weights, base.batch, offsets=dict.fromkeys(readers, change))
    first = Node("head", node.layer, 0) if node.kind == "attn" else node
    # The heads of a layer are summed, so that the sum is replaced through any one of them.
    outputs = {first: base.output(first) + change}
    return run_streams(base.weights, base.batch, outputs=outputs)


def parse_readers(model: Any, node: Node, name: str) -> list[Reader] | None:
    """Reads the name of a reader of a node, with heads, q, k and v apart; None for "all".

    Raises:
        InputError: no such reader, or one that the node does not feed; lists those that it does.
    """
    refuse_other_kinds("reader", name, str, "a name such as 'M1', or 'all'")
    if name == "all":
        return None
    graph = Graph.of(model)
    known = {r.name: r for g in ("layer-qkv", "layer", "head") for r in Graph.of(model, g).readers}
    whole = {f"L{r.layer}H{r.index}": r for r in graph.readers if r.kind == "head"}
    edges = {edge.name for edge in graph.edges}
    fed: dict[str, list[Reader]] = {}
    for title, reader in (known | whole).items():
        pairs = simple_edges(Edge(node, reader), graph.n_heads)
        if title in whole:
            inputs = [r for r in graph.readers if r.node == title]
            pairs = [(s, r) for r in inputs for s, _ in simple_edges(Edge(node, r), graph.n_heads)]
        if all(f"{source}->{r}" in edges for source, r in pairs):
            fed[title] = list(dict.fromkeys(r for _, r in pairs))
    if name not in fed:
        raise InputError(
            f"reader={name!r} does not read {node}; near matches among those that do: "
            f"all, {near_matches(name, fed, n=8)}"
        )
    return fed[name]
