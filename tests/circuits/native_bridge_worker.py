"""Edge effects of TransformerLens 4's native bridge, in that version's own environment.

`FOLDER/cases.pt` holds, by name, a configuration, a HookedTransformer's state dict and two batches.
`FOLDER/effects.pt` gets the effects of every edge, and the model's own logits.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

from circuits import edge_effects, faithfulness, prune


def effects_of(case: dict[str, Any]) -> dict[str, Any]:
    """What edge effects say of a bridge that holds a HookedTransformer's weights."""
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**case["config"]))
    weights = convert_tl_checkpoint(case["weights"], bridge.cfg)
    bridge.load_state_dict(weights)
    before = {name: tensor.clone() for name, tensor in bridge.state_dict().items()}
    clean, corrupt = case["clean"], case["corrupt"]
    found: dict[str, Any] = {"logits": bridge(clean).detach()}
    for ablation in ("zero", "mean", "resample", "patch"):
        given = corrupt if ablation == "patch" else None
        result = edge_effects(bridge, clean, "kl", ablation, corrupt=given)
        found[ablation] = result.per_example
    if case["prune"]:
        circuit = prune(bridge, clean)
        report = faithfulness(bridge, circuit, clean, ablation="mean", n_random=0)
        found |= {"circuit": circuit.names, "kl": float(report["kl"]["circuit"])}
    after = bridge.state_dict()
    return found | {
        "edges": result.table.edge.tolist(),
        "transformer_lens": result.provenance["transformer_lens"],
        "as found": all(torch.equal(before[name], after[name]) for name in before),
    }


def main(folder: Path) -> None:
    """Answers every case."""
    warnings.simplefilter("ignore")
    cases = torch.load(folder / "cases.pt")
    torch.save({name: effects_of(case) for name, case in cases.items()}, folder / "effects.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
