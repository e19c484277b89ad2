"""How much faster is a training step here than the obvious loop, and what do checkpoints cost?

Both loops train the same 2-layer, d_model 64 model on the same sequences. The obvious loop is a
Dataset of examples, a DataLoader that collates them, AdamW with its defaults, the loss over all
positions masked to the scored ones, and `.item()` at every step. The two take turns, so that a
change in the machine's speed falls on both.
"""

import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from mechinterp.config import (
    CheckpointConfig,
    MarginalsConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from mechinterp.model import build_model
from mechinterp.tasks import Marginals
from mechinterp.training_loop import train

MODEL = ModelConfig(n_layers=2, n_heads=4, d_model=64)
TASK = MarginalsConfig(k=10, n_b=200)
STEPS, ROUNDS, BATCH = 100, 5, 128


class Examples(Dataset):
    """One dictionary of tensors an example, as a research repository would write it."""

    def __init__(self, task: Marginals) -> None:
        self.tokens = task.batch(0, TASK.k * TASK.n_b, torch.Generator().manual_seed(0)).tolist()
        self.scored = set(task.scored)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.tokens[index]
        labels = [row[p + 1] if p in self.scored else -100 for p in range(len(row) - 1)]
        return {"input_ids": torch.tensor(row[:-1]), "labels": torch.tensor(labels)}


def obvious_loop(task: Marginals, steps: int) -> float:
    """Seconds for `steps` steps of the loop that one writes first."""
    model = build_model(MODEL, task.d_vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Examples(task), batch_size=BATCH, shuffle=True, drop_last=True)
    done, losses, started = 0, [], time.perf_counter()
    while True:
        for batch in loader:
            logits = model(batch["input_ids"])
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            done += 1
            if done == steps:
                return time.perf_counter() - started


def our_loop(steps: int, save_every: int) -> float:
    """Seconds for `steps` steps of ours, start-up excluded by timing from the first row."""
    config = RunConfig(
        TASK,
        MODEL,
        TrainingConfig(steps=steps, batch=BATCH, eval_every=10 * steps, eval_examples=2),
        CheckpointConfig(save_every=save_every, save_log=0),
    )
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", report=lambda *_: marks.append(time.perf_counter()))
    return marks[-1] - marks[0]


def main() -> None:
    """Prints both ratios."""
    task = Marginals(TASK)
    our_loop(10, 0), obvious_loop(task, 10)
    speed, cost = [], []
    for _ in range(ROUNDS):
        plain, ours = obvious_loop(task, STEPS), our_loop(STEPS, 0)
        saving = our_loop(STEPS, 25)
        speed.append(plain / ours)
        cost.append(saving / ours - 1)
    print(f"{'training, 2 layers, d_model 64, batch 128':<52}{'median':>8}{'min':>8}{'max':>8}")
    for name, values in (
        ("obvious loop / ours (target 1.25)", speed),
        ("cost of a checkpoint every 25 steps (target 0.05)", cost),
    ):
        print(f"{name:<52}{statistics.median(values):>8.3f}{min(values):>8.3f}{max(values):>8.3f}")


if __name__ == "__main__":
    main()
