"""The head attributions of the reference runs: how they are computed, and how they are rebuilt.

`python tests/reference/attributions.py` writes `attributions.json` anew. It is to be run when a
reference run is trained anew, never to make a failing test pass.
"""

import json
from pathlib import Path
from typing import Any

import torch

from circuits.head_ablation import head_effects
from mechinterp.runs import Run

KNOWN = Path(__file__).parent / "attributions.json"
CHECKOUT = Path(__file__).parents[2]
REFERENCE = CHECKOUT / "checkpoints" / "reference"

STEPS = {
    "marginals-k20": ("step_2000", "step_4000", "last"),
    "markov-inf": ("first", "last"),
    "markov-k4": ("first", "last"),
}
EXAMPLES = 128
PAIR_SEED = 1
ABLATIONS = ("zero", "mean", "patch")


def attributions(name: str, ckpt: str) -> dict[str, Any]:
    """Head effects of one checkpoint under every ablation, largest first, and its diagnostics."""
    run = Run.open(REFERENCE / name)
    step = run.resolve_step(ckpt)
    model, task = run.model(step), run.task()
    pairs = task.pairs(EXAMPLES, torch.Generator().manual_seed(PAIR_SEED))
    with torch.inference_mode():
        measured = task.diagnostics(model, 64, "quick")
    found: dict[str, Any] = {
        "step": step,
        "diagnostics": {key: measure.value for key, measure in measured.items()},
    }
    for ablation in ABLATIONS:
        corrupt = pairs.corrupt if ablation == "patch" else None
        effects = head_effects(
            model, pairs.clean, "loss", ablation, corrupt=corrupt, scored=task.scored
        )
        ranked = effects.table.sort_values("effect", ascending=False)
        found[ablation] = dict(zip(ranked["head"], ranked["effect"], strict=True))
    return found


def main() -> None:
    """Writes the file of known attributions."""
    known = {
        name: {ckpt: attributions(name, ckpt) for ckpt in ckpts} for name, ckpts in STEPS.items()
    }
    KNOWN.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
