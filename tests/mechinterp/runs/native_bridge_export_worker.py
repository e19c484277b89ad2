"""TransformerLens 4, in its own environment: reads exported state dicts and measures them.

Every folder given holds an export for the native bridge, `tokens.pt` and `scored.json`; it gets
`measured.json`, the loss at the scored positions, and `bridge.pt`, the bridge's own state dict.
"""

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint


def measure(folder: Path) -> None:
    """The mean cross-entropy (nats) of the tokens after the scored positions."""
    cfg = TransformerBridgeConfig(**json.loads((folder / "transformer_lens.json").read_text()))
    bridge = TransformerBridge.boot_native(cfg)
    (exported,) = folder.glob("for_bridge_step_*.pt")
    state = torch.load(exported, weights_only=True)
    bridge.load_state_dict(convert_tl_checkpoint(state, cfg), strict=True)
    tokens = torch.load(folder / "tokens.pt", weights_only=True)
    scored = json.loads((folder / "scored.json").read_text())
    with torch.no_grad():
        log_probs = bridge(tokens[:, :-1])[:, scored].double().log_softmax(-1)
    targets = tokens[:, [p + 1 for p in scored]]
    loss = -log_probs.gather(-1, targets[..., None]).mean().item()
    found = {"loss": loss, "transformer_lens": version("transformer-lens")}
    (folder / "measured.json").write_text(json.dumps(found))
    torch.save(bridge.state_dict(), folder / "bridge.pt")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        measure(Path(name))
