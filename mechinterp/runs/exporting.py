"""Writes checkpoints of a run in the forms that other tools read."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import to_json
from mechinterp.model import weights_of
from mechinterp.runs.atomic import new_directory, plain_errors, write_durably
from mechinterp.runs.bridge_weights import in_bridge_order
from mechinterp.runs.reader import Run
from mechinterp.runs.tensor_bytes import encode

Form = Literal["safetensors", "state-dict", "native-bridge"]

CONFIG = "config.json"
"""The run's configuration, as `import` reads it."""

ARCHITECTURE = "transformer_lens.json"
"""Arguments of HookedTransformerConfig, and of TransformerBridgeConfig."""

_ARGUMENTS = (
    "n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "n_ctx", "act_fn", "eps",
    "attn_only", "normalization_type", "positional_embedding_type", "rotary_dim", "rotary_base",
    "rotary_adjacent_pairs",
)  # fmt: skip
_NAMES: dict[Form, str] = {
    "safetensors": "model_step_{}.safetensors",
    "state-dict": "model_step_{}.pt",
    # Another name, as `import` would take it for a HookedTransformer's own.
    "native-bridge": "for_bridge_step_{}.pt",
}
_ROTARY = ("rotary_sin", "rotary_cos")


def export_run(run: Run, steps: Sequence[int], form: Form, target: Path) -> list[Path]:
    """Writes checkpoints to a new directory, with what is needed to build their model again.

    "safetensors" holds the trained tensors by TransformerLens's names. "state-dict" is
    `HookedTransformer.state_dict()`, constant buffers included, as `torch.save` writes it.
    "native-bridge" is for TransformerLens 4's `convert_tl_checkpoint`: without the rotary tables,
    which it refuses, and with queries and keys in the order that the bridge turns.

    Args:
        run: the run.
        steps: checkpoints of it.
        form: see above.
        target: the directory; it must not exist.

    Returns:
        The weight files, in the order of the steps.

    Raises:
        InputError: the target exists, the disk refuses, a checkpoint is damaged, or the model has
            something that the form cannot hold. Nothing is left behind.
    """
    if target.exists():
        raise InputError(f"{target} exists already; choose another --to")
    positions = run.config.model.positions
    if form == "native-bridge" and positions not in ("standard", "rotary"):
        raise InputError(
            f"{run.name} has {positions} positions, which TransformerLens's native bridge does not "
            "build; use --form safetensors or state-dict"
        )
    names = [_NAMES[form].format(step) for step in steps]
    with plain_errors("create", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(target) as folder:
        for step, name in zip(steps, names, strict=True):
            model = run.model(step)
            write_durably(folder / name, _bytes_of(model, form))
            if step == steps[0]:
                write_durably(folder / ARCHITECTURE, _json(_arguments(model.cfg, form)))
        write_durably(folder / CONFIG, _json(to_json(run.config)))
    return [target / name for name in names]


def _bytes_of(model: Any, form: Form) -> bytes:
    if form == "safetensors":
        return encode(weights_of(model))
    state: dict[str, Tensor] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if form == "native-bridge":
        state = {name: tensor for name, tensor in state.items() if not name.endswith(_ROTARY)}
        state = in_bridge_order(state, model.cfg)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _arguments(cfg: Any, form: Form) -> dict[str, Any]:
    """What builds the model's architecture again."""
    found = {name: getattr(cfg, name, None) for name in _ARGUMENTS}
    if cfg.positional_embedding_type != "rotary":
        return {k: v for k, v in found.items() if not k.startswith("rotary")}
    return found | {"rotary_adjacent_pairs": True} if form == "native-bridge" else found


def _json(body: Any) -> bytes:
    return (json.dumps(body, indent=2) + "\n").encode()
