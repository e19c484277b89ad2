"""auto-circuit's side of the comparison: scores every edge whenever a line comes in.

Runs in auto-circuit's own environment. `FOLDER/case.json` holds the model's configuration and the
number of threads, `FOLDER/tensors.pt` its weights, the two batches and the tokens whose logits are
compared. Each line on stdin names an ablation; each answer is one line of JSON with the seconds
taken and the score of every edge by auto-circuit's name for it.
"""

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformer_lens
from transformer_lens import HookedTransformer, HookedTransformerConfig


def bring_back_old_names() -> None:
    """auto-circuit 1.0.1 imports the key-value cache by the names that it had before 2025."""
    cache = transformer_lens.TransformerLensKeyValueCache
    transformer_lens.HookedTransformerKeyValueCache = cache
    module: Any = ModuleType("transformer_lens.past_key_value_caching")
    module.HookedTransformerKeyValueCache = cache
    module.HookedTransformerKeyValueCacheEntry = transformer_lens.TransformerLensKeyValueCacheEntry
    sys.modules[module.__name__] = module


def load_model(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> Any:
    """The same model, with an input of its own for every reader."""
    model = HookedTransformer(HookedTransformerConfig(**config))
    model.load_state_dict(weights)
    model.eval().requires_grad_(False)
    model.set_use_attn_result(True)
    model.set_use_split_qkv_input(True)
    model.set_use_hook_mlp_in(True)
    return model


def main(folder: Path) -> None:
    """Answers until stdin ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # Libraries print too.
    bring_back_old_names()
    from auto_circuit.types import AblationType
    from auto_circuit.utils.ablation_activations import src_ablations
    from auto_circuit.utils.graph_utils import patch_mode, patchable_model, set_all_masks

    case, tensors = (
        json.loads((folder / "case.json").read_text()),
        torch.load(folder / "tensors.pt"),
    )
    torch.set_num_threads(case["threads"])
    model = patchable_model(
        load_model(case["config"], tensors["weights"]),
        factorized=True,
        slice_output="last_seq",
        separate_qkv=True,
        device=torch.device("cpu"),
    )
    clean, corrupt = tensors["clean"], tensors["corrupt"]
    right, wrong = tensors["right"][:, None], tensors["wrong"][:, None]
    ablations = {"patch": AblationType.RESAMPLE, "zero": AblationType.ZERO}

    def metric() -> float:
        logits = model(clean)[model.out_slice]
        return (logits.gather(1, right) - logits.gather(1, wrong)).mean().item()

    def scores(ablation: str) -> dict[str, float]:
        outputs, found = src_ablations(model, corrupt, ablations[ablation]), {}
        baseline = metric()
        for edge in model.edges:
            with patch_mode(model, outputs):
                set_all_masks(model, 0.0)
                edge.patch_mask(model).data[edge.patch_idx] = 1.0
                found[edge.name] = metric() - baseline
        return found

    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        with torch.inference_mode():
            started = time.perf_counter()
            found = scores(line.strip())
            seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "scores": found}), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
