"""What does an exact edge effect cost, next to a plain forward pass?

The unit is one plain, hook-free forward pass of the same HookedTransformer on the same batch. Plain
passes and edge effects take turns, so that a change in the machine's speed falls on both. The
model is step 4000 of the reference run of the marginals task (4 layers, 4 heads, 479 edges).
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from circuits import Graph, edge_effects
from circuits.edge_plan import Plan
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from mechinterp.runs import Run
from mechinterp.tracing import load
from tests.circuits.peak_memory import peak_of

RUN, STEP, EXAMPLES = "marginals-k20", 4000, 256
TARGET = 0.20
PASSES, ROUNDS = 20, 3


def seconds(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def plain_passes(model: Any, tokens: Tensor, n: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            for _ in range(n):
                model(tokens)

    return run


def ratio(model: Any, clean: Tensor, options: dict[str, Any]) -> tuple[float, float, float]:
    """Median seconds of a plain pass, of one without the last token, and of all edges' effects."""
    whole, short = plain_passes(model, clean, PASSES), plain_passes(model, clean[:, :-1], PASSES)
    times: dict[str, list[float]] = {"whole": [], "short": [], "edges": []}
    whole(), short()
    for _ in range(ROUNDS):
        times["whole"].append(seconds(whole) / PASSES)
        times["short"].append(seconds(short) / PASSES)
        times["edges"].append(seconds(lambda: edge_effects(model, clean, "loss", **options)))
        times["short"].append(seconds(short) / PASSES)
        times["whole"].append(seconds(whole) / PASSES)
    return tuple(statistics.median(taken) for taken in times.values())


def report_ratio(model: Any, clean: Tensor, corrupt: Tensor, scored: tuple[int, ...]) -> None:
    n_edges, n_pos = len(Graph.of(model).edges), clean.shape[1]
    print(f"All {n_edges} edges, {len(clean)} examples, {torch.get_num_threads()} threads")
    print(f"Seconds for all edges over {n_edges} plain passes on the same batch; target {TARGET}")
    columns = f"{n_pos} tokens", "ratio", f"{n_pos - 1} tokens", "ratio", "all edges"
    print(f"{'ablation':10}" + "".join(f"{column:>11}" for column in columns))
    for ablation in ("patch", "mean", "zero"):
        given = corrupt if ablation == "patch" else None
        options = {"ablation": ablation, "corrupt": given, "scored": scored}
        whole, short, every = ratio(model, clean, options)
        shares = [every / n_edges / one for one in (whole, short)]
        print(
            f"{ablation:10}{whole * 1e3:8.1f} ms{shares[0]:11.3f}{short * 1e3:8.1f} ms"
            f"{shares[1]:11.3f}{every:9.2f} s  {'met' if shares[0] <= TARGET else 'MISSED'}"
        )


def report_scaling(model: Any, clean: Tensor, scored: tuple[int, ...]) -> None:
    n_edges = len(Graph.of(model).edges)
    print("\nTime against examples (mean ablation): at most linear")
    print(f"{'examples':>8} {'all edges':>10} {'an edge and example':>20}")
    for n in (32, 64, 128, 256):
        taken = seconds(
            lambda n=n: edge_effects(model, clean[:n], "loss", ablation="mean", scored=scored)
        )
        print(f"{n:8} {taken:8.2f} s {taken / n_edges / n * 1e6:17.1f} us")


def report_memory(model: Any, clean: Tensor, scored: tuple[int, ...]) -> None:
    edges = Graph.of(model).edges
    print("\nPeak memory against edges (64 examples, mean ablation): flat")
    print(f"{'edges':>8} {'peak':>10}")
    for n in (60, 120, 240, len(edges)):

        def compute(chosen: Any = edges[-n:]) -> None:
            prepared = prepare(model, clean[:64], "loss", ablation="mean", scored=scored)
            Plan(prepared, chosen, None, None).run()

        with undisturbed(model):
            print(f"{n:8} {peak_of(compute) / 2**20:6.1f} MiB")


def main() -> None:
    run = Run.open(RUN)
    model, task = load(run, STEP), run.task()
    pairs = task.pairs(EXAMPLES, torch.Generator().manual_seed(0))
    report_ratio(model, pairs.clean, pairs.corrupt, task.scored)
    report_scaling(model, pairs.clean, task.scored)
    report_memory(model, pairs.clean, task.scored)


if __name__ == "__main__":
    main()
