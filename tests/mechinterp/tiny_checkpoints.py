"""Tiny Hugging Face directories with random weights, and pairs of prompts to trace them on."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

D_VOCAB, N_CTX = 23, 12
_SHARED: dict[str, Any] = {"vocab_size": D_VOCAB, "bos_token_id": 0, "eos_token_id": 0}
_LLAMA: dict[str, Any] = _SHARED | {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": N_CTX,
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "gpt2": lambda: transformers.GPT2Config(
        n_positions=N_CTX, n_embd=16, n_layer=2, n_head=4, **_SHARED
    ),
    "neox": lambda: transformers.GPTNeoXConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        max_position_embeddings=N_CTX, rotary_pct=0.5, **_SHARED,
    ),
    "llama": lambda: transformers.LlamaConfig(**_LLAMA),
    "qwen2": lambda: transformers.Qwen2Config(**_LLAMA),
}  # fmt: skip
"""GPT-2; Pythia's architecture; grouped queries, RMS norms and gated MLPs; and Qwen's."""


def own_model(config: Any, seed: int = 0) -> Any:
    """transformers' own model, every parameter drawn at random, norms and biases too."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.requires_grad_(False)


def save(model: Any, folder: Path) -> Path:
    """Writes a model as `save_pretrained` does, without its progress bar."""
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return folder


def add_tokenizer(folder: Path) -> None:
    """A tokenizer of one word a token, `w0` to `w22`."""
    words = {f"w{i}": i for i in range(D_VOCAB)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def pairs(lengths: tuple[int, ...], seed: int = 1) -> list[dict[str, Any]]:
    """Clean and corrupt token ids of these lengths, with answers and wrong answers."""
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int) -> list[int]:
        return torch.randint(0, D_VOCAB, (n,), generator=generator).tolist()

    rows = []
    for length in lengths:
        answer = draw(1)[0]
        wrong = (answer + 1 + draw(1)[0] % (D_VOCAB - 1)) % D_VOCAB
        rows.append(
            {"clean": draw(length), "corrupt": draw(length), "answer": answer, "wrong": wrong}
        )
    return rows


def write(rows: list[Any], file: Path) -> Path:
    """One JSON object a line."""
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return file
