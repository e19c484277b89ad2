"""Exact circuits in any TransformerLens model: edges, their effects, and the circuits they form.

Model, tokens and a metric in; tables out. Names are loaded when first used, so that importing the
package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from circuits.errors import InputError

if TYPE_CHECKING:
    from circuits.circuit_faithfulness import faithfulness
    from circuits.edge_ablation import EdgeEffects, edge_effects
    from circuits.edge_attribution import edge_gradients
    from circuits.graph import Circuit, Edge, Graph, Node, Reader
    from circuits.pruning import prune

__all__ = [
    "Circuit",
    "Edge",
    "EdgeEffects",
    "Graph",
    "InputError",
    "Node",
    "Reader",
    "edge_effects",
    "edge_gradients",
    "faithfulness",
    "prune",
]

_HOME = {
    "Circuit": "graph",
    "Edge": "graph",
    "EdgeEffects": "edge_ablation",
    "Graph": "graph",
    "Node": "graph",
    "Reader": "graph",
    "edge_effects": "edge_ablation",
    "edge_gradients": "edge_attribution",
    "faithfulness": "circuit_faithfulness",
    "prune": "pruning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'circuits' has no attribute {name!r}")
    return getattr(import_module(f"circuits.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
