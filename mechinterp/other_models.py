"""Other people's models: a Hugging Face directory, or a name that TransformerLens knows.

Weights are never folded or centred. What TransformerLens makes of them is held against
transformers' own model before anything is measured.
"""

import json
import re
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from jaxtyping import Int
from torch import Tensor
from transformer_lens import HookedTransformer
from transformer_lens import loading_from_pretrained as loading

from circuits.errors import InputError, closest
from mechinterp.loading_quietly import plain_loading
from mechinterp.model import on_device

CONFIG = "config.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""Files of which a tokenizer needs at least one; without them transformers makes an empty one."""

NOT_TRANSFORMERS = ("NeelNanda/", "ArthurConmy/", "Baidicoot/")
"""Owners whose names TransformerLens downloads by itself, in a format of their own."""

LARGEST_GAP = 1e-4
"""Between the logits of both libraries, over the largest logit."""

_STEP = re.compile(r"(?:step_?)?([0-9]{1,12})")


@dataclass(frozen=True)
class Source:
    """A model that was found and described, and not loaded yet.

    Attributes:
        name: of the directory, or the model's official one.
        place: what transformers loads it from.
        step: which checkpoint of a model that was trained with some; None for the final one.
        revision: that checkpoint's branch on the hub.
        cfg: TransformerLens's configuration, in float32 and without a tokenizer.
        tokenizer: what the tokenizer is loaded from, where there is text to encode.
    """

    name: str
    place: str
    step: int | None
    revision: str | None
    cfg: Any
    tokenizer: str

    def encode(self, text: str, whole: bool) -> list[int]:
        """Token ids of a text; with what the tokenizer puts in front where it is a whole prompt.

        Raises:
            InputError: there is no tokenizer.
        """
        return list(self._tokenizer(text, add_special_tokens=whole)["input_ids"])

    @cached_property
    def _tokenizer(self) -> Any:
        folder = Path(self.tokenizer)
        if folder.exists() and not any((folder / name).exists() for name in TOKENIZERS):
            raise InputError(
                f"{folder} holds no tokenizer ({', '.join(TOKENIZERS)}): give token ids, not text"
            )
        with plain_loading(f"the tokenizer of {self.name}"):
            return transformers.AutoTokenizer.from_pretrained(self.tokenizer)


def find_model(model: str, revision: str | None = None) -> Source:
    """Finds a model and reads its configuration.

    Args:
        model: a directory that transformers' `save_pretrained` wrote, or a name.
        revision: the step of a checkpoint, for names of models that were trained with some.

    Raises:
        InputError: there is no such directory or name, the directory holds something else, there
            is no such revision, or TransformerLens does not know the architecture.
    """
    path = Path(model)
    if _exists(path):
        if revision is not None:
            raise InputError(
                f"revision is {revision!r} but {model} is a directory, which holds one checkpoint: "
                "give the directory of that checkpoint"
            )
        return _in_directory(path)
    names = loading.make_model_alias_map()
    if model.lower() not in names:
        near = ", ".join(closest(model.lower(), names))
        raise InputError(
            f"model {model[:80]!r} is neither a directory nor a name that TransformerLens knows"
            + (f"; near matches: {near}" if near else " (gpt2 and pythia-70m are such names)")
        )
    return _by_name(names[model.lower()], revision)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # Too long for a path, or with a zero byte in it.
        return False


def _in_directory(path: Path) -> Source:
    if (path / "run.json").exists():
        raise InputError(f"{path} is a run of this toolkit: trace it with --run and --ckpt")
    try:
        described = json.loads((path / CONFIG).read_bytes())
        architecture = described["architectures"][0]
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise InputError(
            f"{path} is no model directory: it needs a {CONFIG} that names its architecture, and "
            "weights, as save_pretrained writes them"
        ) from None
    # GPT-2's configuration has its context under a second name, which transformers 5 leaves out.
    described.setdefault("n_ctx", described.get("n_positions"))
    if described["n_ctx"] is None:
        del described["n_ctx"]
    # TransformerLens judges by words in the path; this one is a neutral copy.
    with tempfile.TemporaryDirectory() as folder, plain_loading(f"{path} ({architecture})"):
        (Path(folder) / CONFIG).write_text(json.dumps(described))
        cfg = _config(folder)
        cfg.model_name, cfg.tokenizer_name = path.resolve().name, None
    return Source(cfg.model_name, str(path), None, None, cfg, str(path))


def _by_name(name: str, revision: str | None) -> Source:
    if name.startswith(loading.NEED_REMOTE_CODE_MODELS):
        raise InputError(
            f"model {name} comes with code of its own, which is not run here: save it with "
            "transformers' save_pretrained and give the directory"
        )
    step = None if revision is None else _step(name, revision)
    with plain_loading(f"{name}, from the hub or its cache,"):
        cfg = _config(name)
    branch = None
    if step is not None:
        branch = f"checkpoint-{step}" if name.startswith("stanford-crfm/") else f"step{step}"
    tokenizer, cfg.tokenizer_name = cfg.tokenizer_name or name, None
    return Source(name, name, step, branch, cfg, tokenizer)


def _step(name: str, revision: str) -> int:
    """The step that a revision names, if the model has it."""
    if not name.startswith(("EleutherAI/pythia", "stanford-crfm/")):
        raise InputError(
            f"revision is {revision!r} but {name} has no checkpoints by step; leave it out"
        )
    with plain_loading(name):
        steps, _ = loading.get_checkpoint_labels(name)
    match = _STEP.fullmatch(revision)
    if match is None or int(match[1]) not in steps:
        wanted = int(match[1]) if match else 0
        nearest = sorted(steps, key=lambda step: abs(step - wanted))[:5]
        raise InputError(
            f"revision {revision[:40]!r} is no checkpoint of {name}; near matches: "
            f"{', '.join(map(str, sorted(nearest)))}"
        )
    return int(match[1])


def _config(place: str) -> Any:
    return loading.get_pretrained_model_config(place, device="cpu", dtype=torch.float32)


def load_model(
    source: Source, prompts: Int[Tensor, "batch pos"], device: str = "cpu"
) -> HookedTransformer:
    """Loads a model, and checks that it says what transformers' own model says.

    Args:
        source: what to load.
        prompts: token ids without padding, on which both are compared; a few are enough.
        device: where to put it, when it has been checked.

    Returns:
        A HookedTransformer in evaluation mode, its weights as they were trained.

    Raises:
        InputError: the weights are missing, damaged or out of reach, the device cannot be used, or
            TransformerLens's logits differ from transformers'.
    """
    with plain_loading(f"{source.place} ({source.cfg.original_architecture})"):
        own = None
        if not source.place.startswith(NOT_TRANSFORMERS):
            own = transformers.AutoModelForCausalLM.from_pretrained(
                source.place, dtype=torch.float32, revision=source.revision or "main"
            ).eval()
        model = _hooked(source, own)
        gap = 0.0 if own is None else _gap(model, own, prompts)
    if not gap <= LARGEST_GAP:
        raise InputError(
            f"TransformerLens reads {source.name} as another function than transformers does: "
            f"logits differ by {gap:.1e} of the largest, allowed {LARGEST_GAP:.0e}; nothing was "
            "measured"
        )
    return on_device(model, device)


def _hooked(source: Source, own: Any) -> HookedTransformer:
    """TransformerLens's model, with the weights of transformers' own where there is one."""
    weights = loading.get_pretrained_state_dict(source.place, source.cfg, own, dtype=torch.float32)
    model = HookedTransformer(source.cfg, move_to_device=False)
    model.load_and_process_state_dict(
        weights,
        fold_ln=False,
        center_writing_weights=False,
        center_unembed=False,
        fold_value_biases=False,
    )
    return model.eval()


def _gap(model: HookedTransformer, own: Any, prompts: Tensor) -> float:
    with torch.inference_mode():
        ours, theirs = model(prompts), own(prompts).logits
    return float((ours - theirs).abs().max() / theirs.abs().max())
