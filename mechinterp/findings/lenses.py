"""The lenses around a mechanism: what each layer would say, who writes the answer, who looks where.

They fit every task, since they ask nothing but which positions count.
"""

from typing import Any

import pandas as pd
from jaxtyping import Int
from torch import Tensor

from circuits.activation_patching import patch_effects
from circuits.attention_by_group import attention_patterns
from circuits.direct_attribution import logit_attribution
from circuits.figures.attention import attention_figure
from circuits.figures.heatmap import heatmap
from circuits.figures.mechanisms import bar_figure
from circuits.lens import logit_lens
from mechinterp.findings.finding import Finding
from mechinterp.tasks import Marginals, MarkovChains, Pairs

PATCHED = 32
"""Pairs that are patched at every layer and position."""

NAMED = 4
"""Sources and heads that a line names; the tables have them all."""

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def lens_finding(model: Any, task: Marginals | MarkovChains, pairs: Pairs) -> Finding:
    """Reads the answer off every layer, and splits its logit into what each source wrote."""
    scored = task.positions.get("late", task.scored)
    lens = logit_lens(model, pairs.clean, scored=scored).table
    shares = logit_attribution(model, pairs.clean, scored=scored).table
    by_layer = ", ".join(
        f"{s} {p:.3f}" for s, p in zip(lens["stream"], lens["probability"], strict=True)
    )
    lines = [
        f"Logit lens, probability of the right token: {by_layer}",
        "  who writes its logit (above the mean logit, final norm frozen): "
        + _largest(shares, "source", "contribution", "+.2f"),
    ]
    figure = bar_figure(
        shares,
        "source",
        "contribution",
        title="Direct contributions to the right token's logit",
        unit="logits, above the mean over the vocabulary",
    )
    curve = pd.DataFrame(lens.set_index("stream")[["probability", "rank", "entropy", "loss"]].T)
    scaled = curve.div(curve.abs().max(axis=1), axis=0)
    return Finding(
        "lens",
        tuple(lines),
        {"logit_lens": lens, "logit_attribution": shares},
        {
            "Logit lens": heatmap(
                scaled,
                title="Reading every layer: each quantity as a share of its largest value",
                unit="share",
                diverging=False,
                upwards=False,
            ),
            "Direct logit attribution": figure,
        },
    )


def attention_finding(model: Any, task: Marginals | MarkovChains, pairs: Pairs) -> Finding:
    """Where every head looks from the named positions, and one example with its tokens."""
    tokens = pairs.clean[:, :-1]
    found = attention_patterns(model, tokens, groups=task.positions)
    query = "decide" if "decide" in task.positions else "last"
    width = found.entropies[found.entropies["query"] == query].sort_values("entropy")
    sharpest = ", ".join(
        f"{row['head']} {row['entropy']:.2f}" for row in width.head(NAMED).to_dict("records")
    )
    one = attention_patterns(model, tokens[:1]).mean
    places = position_names(task, tokens.shape[1])
    return Finding(
        "attention",
        (
            f"Attention, entropy in nats at {query} (looking everywhere alike: "
            f"{float(width['uniform'].iloc[0]):.2f}), sharpest heads: {sharpest}",
        ),
        {"attention": found.table, "attention_entropy": found.entropies},
        {
            "Attention, mean": attention_figure(found.mean, places, title="Mean attention"),
            "Attention, one sequence": attention_figure(
                one, token_names(task, tokens[0]), title="Attention on one sequence"
            ),
        },
    )


def patching_finding(model: Any, task: Marginals, pairs: Pairs) -> Finding:
    """Puts one clean activation into a run with another z: where does the right z sit, by layer?

    The run patched into has the clean sequence's tokens but for z, so nothing else differs.
    """
    clean, z = pairs.clean[:PATCHED], list(task.positions["z"])
    other = clean.clone()
    other[:, z] = pairs.corrupt[:PATCHED][:, z]
    after = [p for p in range(clean.shape[1] - 1) if p >= min(z)]
    places = position_names(task, clean.shape[1])
    tables, figures, lines = {}, {}, []
    for stream, what in (("resid_pre", "residual stream"), ("z", "head outputs")):
        at = None if stream == "z" else after
        found = patch_effects(model, clean, other, "loss", stream, positions=at, scored=task.scored)
        tables[f"patching_{stream}"] = found.table
        grid = found.grid()
        if stream != "z":
            grid.columns = pd.Index([places[int(at)] for at in after], name="position")
        title = f"Denoising: one clean activation of the {what}"
        figures[f"Patching, {what}"] = heatmap(grid, title=title, unit="nats")
        lines.append(f"{what} " + _restored(found.table, places))
    whole = float((found.donor - found.base).double().mean())
    return Finding(
        "patching",
        (f"Activation patching: the right z is worth {whole:+.3f} nats; one clean activation of "
         f"the {'; of the '.join(lines)}",),
        tables,
        figures,
    )  # fmt: skip


def position_names(task: Marginals | MarkovChains, n: int) -> list[str]:
    """Names the positions of a sequence: `B1` to `B6`, `z1`, `A1` for the marginals task."""
    names = [str(position) for position in range(n)]
    if isinstance(task, Marginals):
        for string, span in task.layout.spans.items():
            for place, position in enumerate(span):
                if position < n:
                    names[position] = f"{string}{place + 1}"
        last = task.layout.n_tokens - 1
        between = {str(at): "EOS" if at == last else "SEP" for at in range(1, n)}
        names = ["BOS", *(between.get(name, name) for name in names[1:])]
    return names


def token_names(task: Marginals | MarkovChains, tokens: Int[Tensor, " pos"]) -> list[str]:
    """Spells the tokens of one sequence: characters of the marginals task, or states."""
    if not isinstance(task, Marginals):
        return [str(int(token)) for token in tokens]
    spelled = ["PAD", "BOS", "EOS", "SEP", *CHARACTERS]
    return [spelled[int(token)] for token in tokens]


def _largest(table: pd.DataFrame, name: str, value: str, form: str) -> str:
    order = table[value].abs().sort_values(ascending=False).index[:NAMED]
    return ", ".join(f"{table.at[i, name]} {table.at[i, value]:{form}}" for i in order)


def _restored(table: pd.DataFrame, places: list[str]) -> str:
    best = table.sort_values("effect", kind="stable").to_dict("records")[0]
    where = best["head"] if best["head"] else f"at L{best['layer']} {places[int(best['pos'])]}"
    return (
        f"{where} restores most, {best['effect']:+.3f} ({best['low']:+.3f} to {best['high']:+.3f})"
    )
