"""How much does each edge matter, approximately? One forward and backward pass a step for all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation
from circuits.circuit_measure import CircuitMeasure
from circuits.circuit_model import CircuitRun
from circuits.circuit_run import run_circuit
from circuits.curvature import curvature_costs
from circuits.errors import InputError, near_matches, whole_number
from circuits.gradient_products import gradient_products, logit_gradient, slabs
from circuits.graph import Granularity, Graph, Node
from circuits.intervals import mean_interval
from circuits.metrics import Metric
from circuits.prepared import Prepared, prepare
from circuits.undisturbed import undisturbed

Method = Literal["eap", "eap-ig-inputs", "eap-ig-activations", "curvature"]
METHODS: tuple[Method, ...] = ("eap", "eap-ig-inputs", "eap-ig-activations", "curvature")


@dataclass(frozen=True)
class EdgeGradients:
    """Approximate effects of cutting edges, one at a time."""

    table: pd.DataFrame
    """Columns `edge, source, reader, effect, low, high`, as of `edge_effects`: an estimate of
    metric(ablated) - metric(clean), its mean over examples and 95 % bootstrap interval. The
    interval tells of the examples, not of the error of the method: see `agreement`."""
    per_example: Float[Tensor, "row batch"]
    """The values behind every row of the table, in its order."""
    baseline: Float[Tensor, " batch"]
    """The metric before any edge is cut."""
    graph: Graph
    provenance: dict[str, Any] = field(repr=False)


def edge_gradients(
    model: Any,
    clean: Int[Tensor, "batch pos"],
    metric: Metric,
    *,
    corrupt: Int[Tensor, "batch pos"] | None = None,
    method: Method | str = "eap-ig-inputs",
    steps: int = 30,
    ablation: Ablation = "patch",
    scored: Sequence[int] | None = None,
    granularity: Granularity = "head",
    attention_mask: Int[Tensor, "batch pos"] | None = None,
    seed: int = 0,
    memory_budget: int | None = None,
) -> EdgeGradients:
    """Estimates every edge's effect from gradients, at the cost of a few passes for all of them.

    The effect of an edge is estimated as the product of the gradient of the metric with respect to
    what the reader reads, and the change (replacement minus output) that cutting the edge makes
    there, summed over positions. The sign is that of `edge_effects`. The methods differ in where
    the gradient is taken:

    - "eap" (Syed et al. 2023): at the clean run. One step. Exact where the metric is linear in the
      change.
    - "eap-ig-inputs" (Hanna et al. 2024): the mean over `steps` runs with embeddings between the
      clean and the replaced ones.
    - "eap-ig-activations": the mean over `steps` runs in which all edges at once are cut by a share
      between 0 and 1, each product taken with the change in that run. The estimates of all edges
      then add up to the effect of cutting all of them. (EAP-IG's own variant moves one layer's
      nodes at a time, at as many times the passes.)
    - "curvature": for "kl" and "loss" only: the first-order change plus half the Fisher
      information along the change, from `steps` random draws; see `curvature.py`. It sees what
      "eap" cannot: the KL's slope at the clean run is zero, its curvature is not.

    Steps are taken at the middles of equal parts of the path, which converges faster than EAP-IG's
    right ends towards the same integral. A step costs about 8 plain forward passes; a draw of
    "curvature" about 2, after a start of 8.

    Args:
        model: a HookedTransformer; it is left exactly as found.
        clean: token ids, as for `edge_effects`.
        metric: as for `edge_effects`; a callable has to be differentiable.
        corrupt: for `ablation="patch"`: paired with `clean` row by row.
        method: one of the above.
        steps: points on the path, or draws; "eap" takes one whatever this says.
        ablation: what replaces the output; every kind is allowed.
        scored: positions whose logits the metric reads, in that order; None for all.
        granularity: "head", "layer" or "layer-qkv"; merged edges are sums of their parts, which is
            what cutting the parts together amounts to at first order.
        attention_mask: 0 at padding.
        seed: of the partners under "resample" and of the bootstrap.
        memory_budget: bytes that recorded passes may take; larger batches are passed in parts (at
            one more forward pass a step). None for 2 GiB.

    Returns:
        Estimates in the metric's unit, with the same columns as `edge_effects`.

    Raises:
        InputError: as `edge_effects`; an unknown method, fewer than one step, "kl" with "eap"
            (whose gradient is zero at the clean run), another metric than "kl" and "loss" with
            "curvature", or a metric without a gradient.
    """
    _check(method, steps, metric, memory_budget)
    graph = Graph.of(model, granularity)
    # Leaving inference mode, should the caller be in it: nothing has gradients there.
    with torch.inference_mode(False), undisturbed(model):
        prepared = prepare(
            model,
            clean,
            metric,
            graph=graph,
            ablation=ablation,
            corrupt=corrupt,
            scored=scored,
            attention_mask=attention_mask,
            seed=seed,
        )
        steps = 1 if method == "eap" else steps
        if method == "curvature":
            measure = CircuitMeasure.of(prepared)
            uncut = measure.run(graph.edges)
            per_example = curvature_costs(measure, uncut, steps, seed, memory_budget)
        else:
            per_example = _Attribution(prepared, method, steps, memory_budget).run()
        return _result(prepared, per_example, method, steps, seed)


def _check(method: Any, steps: Any, metric: Any, memory_budget: Any) -> None:
    if method not in METHODS:
        raise InputError(
            f"method={method!r} is not known; near matches: {near_matches(method, METHODS)}"
        )
    if memory_budget is not None:
        whole_number("memory_budget", memory_budget)
    if whole_number("steps", steps) < 1:
        raise InputError(f"steps={steps} must be at least 1")
    if method == "eap" and metric == "kl":
        raise InputError(
            "metric='kl' has no slope at the clean run, so method='eap' would score every edge 0: "
            " use method='curvature' or 'eap-ig-inputs', or metric='loss'"
        )
    if method == "curvature" and metric not in ("kl", "loss"):
        given = repr(metric) if isinstance(metric, str) else "a callable"
        raise InputError(
            f"method='curvature' needs metric='kl' or 'loss', not {given}: use another method"
        )


def _result(
    prepared: Prepared, per_example: Tensor, method: str, steps: int, seed: int
) -> EdgeGradients:
    mean, low, high = mean_interval(per_example, seed=seed)
    edges = prepared.graph.edges
    table = pd.DataFrame(
        {
            "edge": [edge.name for edge in edges],
            "source": [edge.source.name for edge in edges],
            "reader": [edge.reader.name for edge in edges],
            "effect": mean.cpu().numpy(),
            "low": low.cpu().numpy(),
            "high": high.cpu().numpy(),
        }
    )
    facts = prepared.provenance | {"method": method, "steps": steps}
    return EdgeGradients(table, per_example, prepared.baseline, prepared.graph, facts)


class _Attribution:
    """The sum over steps of gradient times change, for all edges."""

    def __init__(
        self, prepared: Prepared, method: str, steps: int, memory_budget: int | None
    ) -> None:
        self.prepared, self.method, self.steps = prepared, method, steps
        whole = CircuitMeasure.of(prepared).model
        self.wiring = whole.wiring
        self.slabs = slabs(prepared, memory_budget)
        self.parts = [whole.rows(slab) for slab in self.slabs]
        self.uncut = self.wiring.kept(prepared.graph.edges)
        self.clean = [run_circuit(part, self.uncut) for part in self.parts]

    def run(self) -> Float[Tensor, "edge batch"]:
        """Estimates, one an edge and example."""
        totals = [torch.zeros(()) for _ in self.parts]
        for step in range(self.steps):
            share = 0.0 if self.method == "eap" else (step + 0.5) / self.steps
            for i, products in enumerate(self._step(share)):
                totals[i] = totals[i] + products
        return torch.cat(totals, dim=-1) / self.steps

    def _step(self, share: float) -> Iterator[Tensor]:
        """The products of one point of the path, for each part of the batch."""
        single = len(self.parts) == 1
        runs = [self._at(i, share, record=single) for i in range(len(self.parts))]
        slope = logit_gradient(self.prepared, torch.cat([run.logits for run in runs]))
        for i, (part, slab) in enumerate(zip(self.parts, self.slabs, strict=True)):
            run = runs[i] if single else self._at(i, share, record=True)
            found = torch.autograd.grad(
                run.logits, list(run.inputs.values()), slope[slab], materialize_grads=True
            )
            gradients = dict(zip(run.inputs, found, strict=True))
            change = run if self.method == "eap-ig-activations" else self.clean[i]
            yield self.wiring.gather(gradient_products(part, change, gradients))

    def _at(self, i: int, share: float, record: bool) -> CircuitRun:
        """One part's run at a point of the path; `share` 0 is the clean end."""
        part = self.parts[i]
        with torch.set_grad_enabled(record):
            if self.method == "eap-ig-activations":
                return run_circuit(part, self.uncut * (1 - share), record=record)
            replaced = part.value(Node("embed", -1))
            embed = part.batch.embed + share * (replaced - part.batch.embed)
            return run_circuit(part, self.uncut, embed=embed, record=record)
