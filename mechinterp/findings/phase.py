"""Which of the four algorithms does a checkpoint compute, and does its circuit fit?"""

from typing import Any

import pandas as pd

from circuits import edge_effects
from circuits.figures.heatmap import heatmap
from circuits.figures.mechanisms import bar_figure
from mechinterp.findings.finding import Finding
from mechinterp.nearest_predictor import PHASES
from mechinterp.tasks import MarkovChains, Measure, Pairs

ESSENTIAL = 0.02
"""KL (nats) above which an edge counts as essential; the lower end of its interval has to pass."""

EXPECTED = {
    "2-Gen": (("A0->A1.k",), ("M0->A1.v",)),
    "2-Mem": (("M0->A1.v", "A1->M1"), ("A0->A1.k",)),
}
"""By phase: edges that its circuit needs, and edges that tell it from the other. In 2-Gen the first
attention fetches the previous state, for the second to match with; in 2-Mem the first MLP encodes
pairs of states, the second attention pools them, and the second MLP decodes. (Our reading of paper
2, arXiv 2604.12151, which traced them by ablating edges.)"""


def phase_finding(
    model: Any, task: MarkovChains, pairs: Pairs, diagnostics: dict[str, Measure]
) -> Finding:
    """Names the nearest Bayes predictor, and checks the edges that the paper expects for it.

    Args:
        model: the checkpoint.
        task: its task.
        pairs: sequences to cut edges on.
        diagnostics: as `task.diagnostics` gave them.

    Returns:
        The phase with its margin, and for 2-Gen and 2-Mem whether each expected edge is essential:
        KL of the model from itself with that edge's output replaced by its mean.
    """
    phase = task.phase(diagnostics)
    lines = [
        f"Phase: {phase.name} (nearest to {PHASES[phase.nearest]}, KL {phase.distance:.3f} nats on "
        f"training chains; {phase.margin:.1f} times as far from {PHASES[phase.runner_up]})"
    ]
    distances = pd.DataFrame(
        [
            (
                name,
                PHASES[name],
                diagnostics[f"kl_{name}"].value,
                diagnostics[f"kl_{name}_new"].value,
            )
            for name in task.predictors
        ],
        columns=["predictor", "phase", "kl_training", "kl_new"],
    )
    tables = {"distances": distances}
    figures = {"Distance to each Bayes predictor": _distance_figure(distances)}
    if phase.name in EXPECTED and model.cfg.n_layers == 2 and not model.cfg.attn_only:
        tables["expected_edges"] = expected_edges(model, task, pairs, phase.name)
        lines += [_line(row) for row in tables["expected_edges"].to_dict("records")]
        figures["Edges that the paper expects"] = bar_figure(
            tables["expected_edges"],
            ["edge"],
            "effect",
            title=f"What cutting the edges that mark {phase.name} costs",
            unit="KL, nats",
            marks=(0.0, ESSENTIAL),
        )
    return Finding("phase", tuple(lines), tables, figures)


def _distance_figure(distances: pd.DataFrame) -> Any:
    grid = distances.set_index("predictor")[["kl_training", "kl_new"]]
    return heatmap(
        pd.DataFrame(grid),
        title="KL from each Bayes predictor to the model",
        unit="nats",
        diverging=False,
        upwards=False,
    )


def expected_edges(model: Any, task: MarkovChains, pairs: Pairs, phase: str) -> pd.DataFrame:
    """Measures the edges that tell the circuits of 2-Gen and 2-Mem apart.

    Returns:
        One row an edge: `edge`, `expected` (essential or not), `effect`, `low`, `high` (KL, nats),
        `agrees`.
    """
    needed, spared = EXPECTED[phase]
    table = edge_effects(
        model,
        pairs.clean,
        "kl",
        ablation="mean",
        edges=[*needed, *spared],
        scored=task.positions["late"],
        granularity="layer-qkv",
    ).table[["edge", "effect", "low", "high"]]
    essential = table["low"] > ESSENTIAL
    expected = [edge in needed for edge in table["edge"]]
    return table.assign(expected=expected, agrees=essential == pd.Series(expected))


def _line(row: dict[Any, Any]) -> str:
    wanted = "essential" if row["expected"] else "dispensable"
    verdict = "agrees" if row["agrees"] else "does not agree"
    return (
        f"  {row['edge']} should be {wanted}: cutting it costs {row['effect']:.3f} nats KL "
        f"({row['low']:.3f} to {row['high']:.3f}), {verdict}"
    )
