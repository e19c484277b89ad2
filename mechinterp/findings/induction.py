"""Is there a statistical induction head, and does it get the previous state from another head?"""

from typing import Any

from circuits.figures.mechanisms import bar_figure, score_figure
from circuits.induction_head import SCORES, WEIGHT_SCORES, induction_scores
from circuits.key_composition import k_composition
from mechinterp.findings.finding import Finding
from mechinterp.tasks import MarkovChains, Pairs


def induction_finding(model: Any, task: MarkovChains, pairs: Pairs) -> Finding:
    """Scores every head for looking back, matching and reading out, at late positions.

    K-composition is a real cut: what the head with the best previous-token score writes is taken
    out of the keys of the best matching head after it, and the loss (nats) is measured again.
    """
    tokens = pairs.clean[:, :-1]
    scores = induction_scores(model, tokens, queries=task.positions["late"])
    previous, tables = scores.best("previous_token"), {"induction": scores.table}
    by_head = scores.table.set_index("head")
    lines = [
        f"Previous-token head: {previous}, attention {by_head.loc[previous, 'previous_token']:.3f} "
        f"(uniform {scores.uniform['previous_token']:.3f})"
    ]
    later = by_head[by_head["layer"] > by_head.loc[previous, "layer"]]
    if len(later):
        match = scores.best("match", after=previous)
        row = by_head.loc[match]
        lines.append(
            f"Matching head: {match}, match {row['match']:.3f}, evenness in the matched set "
            f"{row['matched_uniformity']:.3f}, evenness overall {row['evenness']:.3f}, "
            f"read-out R2 {row['readout_r2']:.3f}"
        )
        tables["k_composition"] = k_composition(
            model, pairs.clean, previous, [match], scored=task.positions["late"]
        )
        cut = tables["k_composition"].iloc[0]
        lines.append(
            f"  cutting {previous}->{match}.k costs {cut['effect']:+.3f} nats "
            f"({cut['low']:+.3f} to {cut['high']:+.3f})"
        )
    shown = [*SCORES, *WEIGHT_SCORES]
    figures = {
        "Induction scores": score_figure(scores.table, shown, title="Induction scores by head")
    }
    if "k_composition" in tables:
        figures["K-composition"] = bar_figure(
            tables["k_composition"],
            ["source", "reader"],
            "effect",
            title="What cutting the previous-token head out of the keys costs",
            unit="nats",
        )
    return Finding("induction", tuple(lines), tables, figures)
