"""Exact circuits in any TransformerLens model: edges, their effects, and the circuits they form.

Model, tokens and a metric in; tables out. Names are loaded when first used, so that importing the
package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from circuits.errors import InputError

if TYPE_CHECKING:
    from circuits.ablated_model import ablated
    from circuits.activation_patching import patch_effects
    from circuits.attention_by_group import attention_patterns
    from circuits.attention_knockout import knocked_out, knockout_effects
    from circuits.circuit_faithfulness import faithfulness
    from circuits.direct_attribution import logit_attribution
    from circuits.edge_ablation import EdgeEffects, edge_effects
    from circuits.edge_attribution import edge_gradients
    from circuits.graph import Circuit, Edge, Graph, Node, Reader
    from circuits.head_ablation import head_effects, lone_head_effects, pair_effects
    from circuits.induction_head import induction_scores
    from circuits.key_composition import k_composition
    from circuits.lens import logit_lens
    from circuits.node_outputs import node_output
    from circuits.onset import onsets, selector_series
    from circuits.pruning import prune
    from circuits.selector_head import selector_evidence
    from circuits.task_vector import task_vectors
    from circuits.task_vector_patch import patch_task_vector
    from circuits.task_vector_probe import probe_task_vectors
    from circuits.task_vector_rank import rank_curve
    from circuits.variance_components import variance_shares

__all__ = [
    "Circuit",
    "Edge",
    "EdgeEffects",
    "Graph",
    "InputError",
    "Node",
    "Reader",
    "ablated",
    "attention_patterns",
    "edge_effects",
    "edge_gradients",
    "faithfulness",
    "head_effects",
    "induction_scores",
    "k_composition",
    "knocked_out",
    "knockout_effects",
    "logit_attribution",
    "logit_lens",
    "lone_head_effects",
    "node_output",
    "onsets",
    "pair_effects",
    "patch_effects",
    "patch_task_vector",
    "probe_task_vectors",
    "prune",
    "rank_curve",
    "selector_evidence",
    "selector_series",
    "task_vectors",
    "variance_shares",
]

_HOME = {
    "Circuit": "graph",
    "Edge": "graph",
    "EdgeEffects": "edge_ablation",
    "Graph": "graph",
    "Node": "graph",
    "Reader": "graph",
    "ablated": "ablated_model",
    "attention_patterns": "attention_by_group",
    "edge_effects": "edge_ablation",
    "edge_gradients": "edge_attribution",
    "faithfulness": "circuit_faithfulness",
    "head_effects": "head_ablation",
    "induction_scores": "induction_head",
    "k_composition": "key_composition",
    "knocked_out": "attention_knockout",
    "knockout_effects": "attention_knockout",
    "logit_attribution": "direct_attribution",
    "logit_lens": "lens",
    "lone_head_effects": "head_ablation",
    "node_output": "node_outputs",
    "onsets": "onset",
    "pair_effects": "head_ablation",
    "patch_effects": "activation_patching",
    "patch_task_vector": "task_vector_patch",
    "probe_task_vectors": "task_vector_probe",
    "prune": "pruning",
    "rank_curve": "task_vector_rank",
    "selector_evidence": "selector_head",
    "selector_series": "onset",
    "task_vectors": "task_vector",
    "variance_shares": "variance_components",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'circuits' has no attribute {name!r}")
    return getattr(import_module(f"circuits.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
