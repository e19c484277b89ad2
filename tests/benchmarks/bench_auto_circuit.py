"""How much faster are exact edge effects here than in auto-circuit, and are they the same numbers?

auto-circuit 1.0.1 runs in an environment and a process of its own (`peer_environment.py`,
`auto_circuit_worker.py`). Both get the same weights, tokens and number of threads, and take turns,
so that a change in the machine's speed falls on both. Timed from tokens to the scores of all edges,
the corrupt and the clean run included; wrapping the model, which auto-circuit has to do first, is
left out, while our own checks and intervals are in.
"""

import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits import Graph, edge_effects
from tests.circuits.models import tiny_model
from tests.peer_environment import AUTO_CIRCUIT, ROOT

CONFIG: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 4,
    "d_model": 64,
    "d_head": 16,
    "d_mlp": 256,
    "n_ctx": 16,
    "d_vocab": 40,
    "act_fn": "gelu",
    "normalization_type": "LN",
    "device": "cpu",
}
EXAMPLES, N_POS, EDGES = 64, 14, 110
ROUNDS, WARM_UP = 5, 1
TARGET, LARGEST_DIFFERENCE = 12.0, 1e-4
Case = dict[str, Any]


def build_case() -> tuple[HookedTransformer, Case]:
    """A random model whose edges have large effects, and its batches."""
    model = tiny_model(scale=0.3, **CONFIG, dtype=torch.float32).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randint(CONFIG["d_vocab"], shape, generator=generator)

    clean = draw(EXAMPLES, N_POS)
    corrupt = clean.clone()
    corrupt[:, 3:8] = draw(EXAMPLES, 5)
    right = draw(EXAMPLES)
    wrong = (right + 1 + draw(EXAMPLES) % (CONFIG["d_vocab"] - 1)) % CONFIG["d_vocab"]
    return model, {"clean": clean, "corrupt": corrupt, "right": right, "wrong": wrong}


class Peer:
    """auto-circuit in its own process."""

    def __init__(self, model: HookedTransformer, case: Case, folder: Path) -> None:
        given = {"config": CONFIG, "threads": torch.get_num_threads()}
        (folder / "case.json").write_text(json.dumps(given))
        torch.save(case | {"weights": dict(model.state_dict())}, folder / "tensors.pt")
        worker = Path(__file__).with_name("auto_circuit_worker.py")
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [AUTO_CIRCUIT.python, worker, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            cwd=ROOT,
            text=True,
        )
        self._answer()

    def scores(self, ablation: str) -> tuple[float, dict[str, float]]:
        """Seconds, and the score of every edge by our name for it."""
        assert self.process.stdin is not None
        print(ablation, file=self.process.stdin, flush=True)
        answer = self._answer()
        return answer["seconds"], {our_name(k): v for k, v in answer["scores"].items()}

    def close(self) -> None:
        """Lets the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"auto-circuit's side died: {self.log.read_text()[-2000:]}")
        return json.loads(line)


def our_name(edge: str) -> str:
    """`A0.1->A1.2.K` is `L0H1->L1H2.k`; `Resid Start->MLP 0` is `embed->M0`."""
    source, reader = edge.split("->")
    return f"{_node(source)}->{_node(reader)}"


def _node(name: str) -> str:
    if name in ("Resid Start", "Resid End"):
        return {"Resid Start": "embed", "Resid End": "logits"}[name]
    if name.startswith("MLP"):
        return f"M{name.removeprefix('MLP').strip()}"
    layer, head, *which = name.removeprefix("A").split(".")
    return f"L{layer}H{head}" + "".join(f".{x.lower()}" for x in which)


def our_scores(
    model: HookedTransformer, case: Case, ablation: str
) -> tuple[float, dict[str, float]]:
    """Seconds, and the mean effect of every edge."""
    right, wrong = case["right"][:, None], case["wrong"][:, None]

    def metric(logits: Tensor) -> Tensor:
        return (logits[:, 0].gather(1, right) - logits[:, 0].gather(1, wrong))[:, 0]

    corrupt = case["corrupt"] if ablation == "patch" else None
    started = time.perf_counter()
    result = edge_effects(model, case["clean"], metric, ablation, corrupt=corrupt, scored=[-1])
    seconds = time.perf_counter() - started
    return seconds, dict(zip(result.table.edge, result.table.effect, strict=True))


def compare(model: HookedTransformer, case: Case, peer: Peer, ablation: str) -> float:
    """Prints a line of the table and returns the median ratio."""
    taken = []
    for number in range(WARM_UP + ROUNDS):
        theirs, their_scores = peer.scores(ablation)
        ours, scores = our_scores(model, case, ablation)
        assert set(scores) == set(their_scores), "the two graphs have other edges"
        if number >= WARM_UP:
            taken.append((theirs, ours, theirs / ours))
    gap = max(abs(scores[edge] - their_scores[edge]) for edge in scores)
    scale = max(abs(score) for score in scores.values())
    assert gap <= LARGEST_DIFFERENCE * scale, f"scores differ by {gap:.1e} of {scale:.1e}"
    theirs, ours, ratio = (statistics.median(column) for column in zip(*taken, strict=True))
    low, high = min(r for *_, r in taken), max(r for *_, r in taken)
    print(
        f"{ablation:10}{theirs:11.2f} s{ours * 1e3:11.1f} ms{ratio:9.1f} x  {low:.1f} to {high:.1f}"
        f"{gap:14.1e} of {scale:.2f}  {'met' if ratio >= TARGET else 'MISSED'}",
        flush=True,
    )
    return ratio


def main() -> None:
    """Prints the table; fails where the target is missed or numbers differ."""
    AUTO_CIRCUIT.build()
    model, case = build_case()
    assert len(Graph.of(model).edges) == EDGES
    print(
        f"All {EDGES} edges of 2 layers x 4 heads, d_model 64, {EXAMPLES} x {N_POS} tokens, "
        f"{torch.get_num_threads()} threads; target {TARGET:.0f} x"
    )
    print(f"{'ablation':10}{'auto-circuit':>13}{'here':>14}{'ratio':>11}  range{'largest gap':>22}")
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(model, case, Path(folder))
        try:
            ratios = [compare(model, case, peer, ablation) for ablation in ("patch", "zero")]
        finally:
            peer.close()
    if min(ratios) < TARGET:
        raise SystemExit(f"missed: {min(ratios):.1f} times faster, target {TARGET:.0f}")


if __name__ == "__main__":
    main()
