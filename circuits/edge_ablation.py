"""How much does each edge matter? The exact effect of cutting it, for every edge of a model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation
from circuits.edge_plan import Plan
from circuits.errors import InputError, whole_number
from circuits.graph import Circuit, Edge, Granularity, Graph
from circuits.intervals import mean_interval
from circuits.metrics import Metric
from circuits.prepared import Prepared, prepare
from circuits.source_positions import PositionGroups, source_positions
from circuits.undisturbed import undisturbed


@dataclass(frozen=True)
class EdgeEffects:
    """Effects of cutting edges, one at a time."""

    table: pd.DataFrame
    """Columns `edge, source, reader, effect, low, high`, and `position` where asked for: the mean
    over examples of metric(ablated) - metric(clean) and its 95 % bootstrap interval."""
    per_example: Float[Tensor, "row batch"]
    """The values behind every row of the table, in its order."""
    baseline: Float[Tensor, " batch"]
    """The metric before the edge is cut."""
    graph: Graph
    provenance: dict[str, Any] = field(repr=False)


def edge_effects(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    ablation: Ablation | str = "patch",
    *,
    corrupt: Int[Tensor, "batch pos"] | None = None,
    edges: Iterable[str | Edge] | None = None,
    positions: PositionGroups | None = None,
    scored: Sequence[int] | None = None,
    granularity: Granularity | str = "head",
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    within: Circuit | None = None,
    seed: int = 0,
    memory_budget: int | None = None,
) -> EdgeEffects:
    """Gives, for every edge, how the metric changes when that edge alone is cut.

    Cutting an edge changes what its reader reads and nothing else at first hand: the source's
    output is taken out of the reader's input and replaced; the norm is computed anew on the
    changed input; everything after the reader responds. The numbers are those of one hook-based
    forward pass an edge, to rounding. The cost is 0.1-0.2 plain forward passes an edge (4 layers):
    only what can differ is recomputed, at the positions that can reach a scored one.

    Args:
        model: a HookedTransformer; it is left exactly as found.
        clean: token ids. With the metric "loss" they hold the token after the last scored one.
        metric: "kl", "loss" (both in nats), "logit_diff", or a callable from logits
            `"batch scored d_vocab"` to one value an example `"batch"`; see `metrics.py`.
        ablation: what replaces the output: "patch" its value on `corrupt`, "mean" its mean over
            `clean` at each position, "resample" its value on another example of `clean`, "zero"
            nothing.
        corrupt: for "patch": paired with `clean` row by row.
        edges: names or edges to cut; None for all.
        positions: cut only what the source writes at these positions: a mapping of names to
            positions, or a list of positions (or of tuples of them); one row an edge and group.
        scored: positions whose logits the metric reads, in that order; None for all.
        granularity: "head", or "layer" (a layer's heads merged into `A0`) or "layer-qkv"; that of
            `within` where given.
        attention_mask: 0 at padding, on the left or on the right; for `corrupt` too.
        within: edges outside of this circuit are cut all along; effects are relative to that.
        seed: of the partners under "resample" and of the bootstrap.
        memory_budget: bytes that tensors may take; chunks shrink to fit. None for 2 GiB.

    Returns:
        Effects in the metric's unit: positive where cutting the edge raises the metric.

    Raises:
        InputError: bad input, an unsupported model, a factored run that differs from the model's
            own, a metric with a wrong shape or NaN, or a memory budget that is too small.
    """
    graph = _graph(model, granularity, within)
    if memory_budget is not None:
        whole_number("memory_budget", memory_budget)
    with undisturbed(model):
        prepared = prepare(
            model,
            clean,
            metric,
            graph=graph,
            ablation=ablation,
            corrupt=corrupt,
            scored=scored,
            attention_mask=attention_mask,
            within=within,
            seed=seed,
        )
        chosen = _choose(graph, edges, within)
        groups = source_positions(positions, clean.shape[1])
        per_example = Plan(prepared, chosen, groups, memory_budget).run()
        return _result(prepared, chosen, groups, per_example, seed)


def _graph(model: Any, granularity: Any, within: Any) -> Graph:
    """The graph whose edges are cut: that of the circuit, where there is one."""
    if within is None:
        return Graph.of(model, granularity)
    if not isinstance(within, Circuit):
        raise InputError(f"within is {type(within).__name__}: give a Circuit")
    if granularity not in ("head", within.graph.granularity):
        raise InputError(
            f"granularity={granularity!r} is not that of within=, {within.graph.granularity!r}: "
            "leave it out"
        )
    return within.graph


def _choose(graph: Graph, edges: Any, within: Circuit | None) -> tuple[Edge, ...]:
    """The edges to cut; with a circuit, those that it still has."""
    chosen = graph.select(edges) if within is None or edges is not None else tuple(within)
    if not chosen:
        raise InputError("edges is empty: name at least one edge, or pass None for all")
    for edge in chosen:
        if within is not None and edge not in within:
            raise InputError(f"edges names {edge.name!r}, which within= has cut already")
    return chosen


def _result(
    prepared: Prepared,
    edges: tuple[Edge, ...],
    groups: dict[str, tuple[int, ...]] | None,
    per_example: Tensor,
    seed: int,
) -> EdgeEffects:
    mean, low, high = mean_interval(per_example, seed=seed)
    names = list(groups) if groups is not None else [""]
    rows = [(edge, name) for edge in edges for name in names]
    columns: dict[str, Any] = {
        "edge": [edge.name for edge, _ in rows],
        "source": [edge.source.name for edge, _ in rows],
        "reader": [edge.reader.name for edge, _ in rows],
    }
    if groups is not None:
        columns["position"] = [name for _, name in rows]
    columns |= {"effect": mean.cpu().numpy(), "low": low.cpu().numpy(), "high": high.cpu().numpy()}
    return EdgeEffects(
        table=pd.DataFrame(columns),
        per_example=per_example,
        baseline=prepared.baseline,
        graph=prepared.graph,
        provenance=prepared.provenance
        | {"positions": None if groups is None else {k: list(v) for k, v in groups.items()}},
    )
