"""Everything that effects are computed from: checked runs, replacements and the metric."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.ablation import Ablation, check_ablation, partners, replacement
from circuits.attention_math import At
from circuits.checked_run import check_length, check_mask, check_tokens, checked_streams
from circuits.errors import InputError, whole_number
from circuits.graph import Circuit, Graph, Node
from circuits.metrics import MetricCallable, resolve_metric, scored_positions
from circuits.model_weights import ModelWeights, read_weights
from circuits.native_bridge import refuse_padding
from circuits.provenance import provenance
from circuits.streams import Cuts, Streams, cuts_of, run_streams


class Replacements:
    """What replaces each node's output on a cut edge; computed once a node.

    Args:
        ablation: its kind.
        clean: the uncut run on the clean batch.
        corrupt: the uncut run on the corrupt batch, for "patch".
        partner: of each example, for "resample".
    """

    def __init__(
        self,
        ablation: Ablation,
        clean: Streams,
        corrupt: Streams | None = None,
        partner: Int[Tensor, " batch"] | None = None,
    ) -> None:
        self.ablation: Ablation = ablation
        self.clean, self.corrupt, self.partner = clean, corrupt, partner
        self.real = clean.batch.placement.real
        self.unchanged_before = self._unchanged_before()
        self._kept: dict[Node, Tensor] = {}

    def value(self, node: Node) -> Tensor:
        """The replacement of a node's output, `"batch pos d_model"` or broadcastable to it."""
        if node not in self._kept:
            corrupt = self.corrupt
            self._kept[node] = replacement(
                self.ablation,
                lambda: self.clean.output(node),
                None if corrupt is None else lambda: corrupt.output(node),
                self.partner,
                self.real,
            )
        return self._kept[node]

    def _unchanged_before(self) -> int:
        """First position at which any replacement can differ from the output it replaces.

        Tokens that are the same in both runs, from the start on, give the same outputs: for
        "patch" where clean and corrupt agree, for "mean" and "resample" where all examples do.
        """
        tokens = self.clean.batch.tokens
        if self.ablation == "zero" or self.real is not None:
            return 0
        other = tokens[:1] if self.corrupt is None else self.corrupt.batch.tokens
        differs = (tokens != other).any(0)
        return int(differs.nonzero()[0]) if bool(differs.any()) else tokens.shape[1]


@dataclass(frozen=True)
class Prepared:
    """Checked runs of a model, and the metric, ready for edges to be cut."""

    weights: ModelWeights
    graph: Graph
    clean: Streams
    """The uncut run."""
    base: Streams
    """The run that effects are relative to: the uncut one, or that of the circuit `within`."""
    replacements: Replacements
    scored: tuple[int, ...]
    metric: MetricCallable
    baseline: Float[Tensor, " batch"]
    """The metric on the base run."""
    provenance: dict[str, Any]

    @property
    def wanted(self) -> At:
        """The scored positions in ascending order."""
        return tuple(sorted(self.scored))

    def at_scored(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Tensor:
        """Logits at the scored positions, in the order asked for."""
        return logits[:, list(self.scored)]

    def cut(self, cuts: Cuts) -> Streams:
        """The run in which a whole set of edges is cut."""
        return run_streams(self.weights, self.clean.batch, cuts, self.replacements.value)

    def measure(self, circuit: Circuit) -> Float[Tensor, " batch"]:
        """The metric, one value an example, with every edge outside of a circuit cut."""
        streams = self.cut(cuts_of((~circuit).edges, self.weights.n_heads))
        return self.metric(self.at_scored(streams.logits))


def prepare(
    model: Any,
    clean: Any,
    metric: Any,
    *,
    graph: Graph | None = None,
    ablation: Any = "patch",
    corrupt: Any = None,
    scored: Any = None,
    attention_mask: Any = None,
    within: Any = None,
    seed: Any = 0,
) -> Prepared:
    """Checks the input, runs the model once in factored form, and resolves the metric.

    Positions after the last scored one are dropped: nothing they do can reach it. They stay where
    rows are padded and replacements come from other rows, whose tokens there can be earlier ones.
    Call it inside `undisturbed(model)`. Arguments and errors are those of `edge_effects`.

    Returns:
        What `Plan`, pruning and faithfulness compute from.
    """
    weights = read_weights(model)
    graph = graph or Graph.of(model)
    _check(model, clean, corrupt, attention_mask, ablation, metric)
    whole_number("seed", seed)
    if within is not None and Graph.of(model, within.graph.granularity) != within.graph:
        raise InputError(
            f"within is a circuit of another graph, {within.graph.to_json()}: make it with "
            "Graph.of(model)"
        )
    reads = scored_positions(metric, scored, clean.shape[1])
    n_pos = _positions_used(ablation, attention_mask, clean, max(reads) + 1)
    check_length(model, n_pos)
    mask = None if attention_mask is None else attention_mask[:, :n_pos]
    streams, own = checked_streams(model, weights, clean[:, :n_pos], mask)
    corrupt_streams = None
    if ablation == "patch" and corrupt is not None:
        if torch.equal(clean[:, :n_pos], corrupt[:, :n_pos]):
            raise InputError(
                f"corrupt equals clean in the {n_pos} positions that matter: patching would change "
                "nothing; give a corrupt batch that differs"
            )
        corrupt_streams, _ = checked_streams(model, weights, corrupt[:, :n_pos], mask)
    partner = None
    if ablation == "resample":
        partner = partners(len(clean), seed, streams.batch.placement.real)
    replacements = Replacements(cast(Ablation, ablation), streams, corrupt_streams, partner)
    resolved = _metric(metric, streams, clean, corrupt, attention_mask, reads)
    base = streams
    if within is not None:
        cuts = cuts_of((~within).edges, weights.n_heads)
        base = run_streams(weights, streams.batch, cuts, replacements.value)
    baseline = resolved(base.logits[:, list(reads)])
    facts = _facts(metric, ablation, graph, reads, seed, corrupt, attention_mask, within)
    if weights.dtype != model.cfg.dtype:
        gap = resolved(own[:, list(reads)].to(weights.dtype)) - resolved(
            streams.logits[:, list(reads)]
        )
        facts["noise_floor"] = gap.abs().max().item()
    return Prepared(
        weights=weights,
        graph=graph,
        clean=streams,
        base=base,
        replacements=replacements,
        scored=reads,
        metric=resolved,
        baseline=baseline,
        provenance=provenance(model, clean, **facts),
    )


def _check(
    model: Any, clean: Any, corrupt: Any, attention_mask: Any, ablation: Any, metric: Any
) -> None:
    check_tokens(model, "clean", clean)
    check_ablation(ablation, corrupt)
    if corrupt is not None and ablation != "patch" and metric != "logit_diff":
        raise InputError(
            f"corrupt is given but ablation={ablation!r} does not read it: use ablation='patch' or "
            "leave corrupt out"
        )
    if corrupt is not None:
        check_tokens(model, "corrupt", corrupt, like=clean)
    if attention_mask is not None:
        check_mask(attention_mask, clean)
        refuse_padding(model)


def _positions_used(ablation: str, mask: Tensor | None, clean: Tensor, scored: int) -> int:
    """As many as can matter: means and partners of padded rows must not depend on the side."""
    padded = mask is not None and not bool(mask.all())
    return clean.shape[1] if padded and ablation in ("mean", "resample") else scored


def _metric(
    metric: Any,
    streams: Streams,
    clean: Tensor,
    corrupt: Tensor | None,
    mask: Tensor | None,
    reads: tuple[int, ...],
) -> MetricCallable:
    real = None
    if mask is not None and not callable(metric):
        index = torch.tensor(reads, device=mask.device)
        real = mask.bool()[:, index]
        if metric != "kl":  # The next token has to be a token too.
            real = real & mask.bool()[:, index + 1]
    return resolve_metric(metric, streams.logits[:, list(reads)], clean, reads, corrupt, real)


def _facts(
    metric: Any,
    ablation: str,
    graph: Graph,
    reads: tuple[int, ...],
    seed: int,
    corrupt: Tensor | None,
    mask: Tensor | None,
    within: Circuit | None,
) -> dict[str, Any]:
    """What was asked for, as plain values."""
    name = metric if isinstance(metric, str) else getattr(metric, "__qualname__", repr(metric))
    return {
        "ablation": ablation,
        "metric": name,
        "scored": list(reads),
        "granularity": graph.granularity,
        "seed": seed,
        "corrupt_sha256": corrupt if ablation == "patch" else None,
        "attention_mask_sha256": mask,
        "within": None if within is None else within.names,
    }
