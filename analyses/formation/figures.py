"""Figures of circuit formation: heat maps sorted by birth, one time line, overlap and agreement."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analyses.formation.measuring import TRACED_LOSS
from analyses.line_figure import Line, time_figure
from analyses.rows import kept, records
from circuits.figures.curves import onset_figure
from circuits.figures.heatmap import heatmap
from circuits.figures.theme import LIGHT, Theme

SHOWN = 80
"""Edges in the heat map at most: those with the largest effects."""

FOLLOWED = 6
"""Edges in the time line, those with the largest effects."""


def formation_figures(
    tables: dict[str, pd.DataFrame], theme: Theme = LIGHT
) -> dict[str, go.Figure]:
    """Draws everything that `formation` found, by heading."""
    figures = {
        "Edges": effect_heatmap(tables, "edge", theme),
        "Heads": effect_heatmap(tables, "head", theme),
        "Time line": timeline_figure(tables, theme),
        "Edges alive": alive_figure(tables, theme),
        "Overlap": overlap_figure(tables["overlap"], theme),
    }
    if len(tables["agreement"]):
        figures["Gradient methods"] = agreement_figure(tables, theme)
    return figures


def effect_heatmap(tables: dict[str, pd.DataFrame], kind: str, theme: Theme = LIGHT) -> go.Figure:
    """Draws effects by component and step, in order of birth, those never born at the bottom.

    Args:
        tables: what `formation` gave.
        kind: "edge" or "head".
        theme: colours and fonts.
    """
    effects = tables[f"{kind}s"]
    grid = effects.pivot(index=kind, columns="step", values="effect")
    strong = grid.abs().max(axis=1).nlargest(SHOWN).index
    born = tables["births"]
    order = [name for name in born[born["kind"] == kind]["component"] if name in strong]
    title = f"Effect of each {kind}, in order of birth"
    if len(grid) > SHOWN:
        title += f" (the {SHOWN} strongest of {len(grid)})"
    figure = heatmap(grid.loc[order], title=title, upwards=False, theme=theme)
    return figure.update_layout(height=max(320, 120 + 13 * len(order)))


def timeline_figure(tables: dict[str, pd.DataFrame], theme: Theme = LIGHT) -> go.Figure:
    """Draws the loss, the other diagnostics in nats and the strongest edges, with their births."""
    born = kept(tables["births"], (tables["births"]["kind"] == "edge").to_numpy())
    born = pd.DataFrame(born.dropna(subset=["born"]))
    chosen = born.loc[born["peak_effect"].abs().nlargest(FOLLOWED).index]
    edges = tables["edges"][tables["edges"]["edge"].isin(chosen["component"])]
    edges = edges.rename(columns={"edge": "signal", "effect": "value"})
    names = [TRACED_LOSS, "candidate_loss", "z_gap", "kl_two_gen", "kl_two_mem"]
    measured = tables["diagnostics"][tables["diagnostics"]["name"].isin(names)]
    half = 1.96 * measured["se"]
    measured = measured.assign(
        signal=measured["name"], low=measured["value"] - half, high=measured["value"] + half
    )
    columns = ["step", "signal", "value", "low", "high"]
    series = pd.concat([measured[columns], edges[columns]], ignore_index=True)
    onsets = pd.DataFrame({"signal": chosen["component"], "onset": chosen["born"]})
    title = "Diagnostics and the strongest edges; a star is a birth"
    return onset_figure(series.sort_values("step", kind="stable"), onsets, title=title, theme=theme)


def alive_figure(tables: dict[str, pd.DataFrame], theme: Theme = LIGHT) -> go.Figure:
    """Draws how many edges and heads are alive at each step, with what the loss does."""
    steps = np.sort(tables["edges"]["step"].unique())
    table = pd.DataFrame({"step": steps})
    lines = []
    for kind in ("edge", "head"):
        lives = tables["births"][tables["births"]["kind"] == kind].dropna(subset=["born"])
        first = lives["born"].to_numpy(dtype=float)
        last = lives["died"].fillna(int(steps[-1]) + 1).to_numpy(dtype=float)
        table[kind] = ((steps[:, None] >= first) & (steps[:, None] < last)).sum(1)
        lines.append(Line(kind, f"{kind}s"))
    marks = {row["event"]: row["step"] for row in records(tables["events"])}
    title = "How much of the circuit is alive"
    return time_figure(table, lines, title=title, unit="number alive", marks=marks, theme=theme)


def overlap_figure(overlap: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the Jaccard index of the top edges of every two checkpoints."""
    turned = overlap.rename(columns={"step_a": "step_b", "step_b": "step_a"})
    both = pd.concat([overlap, turned], ignore_index=True)
    grid = both.pivot(index="step_a", columns="step_b", values="jaccard")
    grid.index.name, grid.columns.name = "step", "step"
    chance = overlap["null_high"].max()
    title = f"Top {overlap['size'].iloc[0]} edges shared (random sets stay below {chance:.2f})"
    return heatmap(grid, title=title, unit="Jaccard", diverging=False, limit=1.0, theme=theme)


def agreement_figure(tables: dict[str, pd.DataFrame], theme: Theme = LIGHT) -> go.Figure:
    """Draws the rank correlation of every gradient method with the exact effects."""
    agreement = tables["agreement"]
    table = agreement.pivot(index="step", columns="method", values="spearman")
    lines = [Line(str(method), str(method)) for method in table.columns]
    ceiling = agreement.groupby("step")["spearman_ceiling"].first()
    table = table.assign(ceiling=ceiling).reset_index()
    lines.append(Line("ceiling", "exact effects of two halves", dash="dot"))
    trusted = records(tables["trust"].dropna(subset=["step"]))
    marks = {f"{row['method']} trustworthy": float(row["step"]) for row in trusted}
    title = "Do gradients rank edges as exact cuts do?"
    return time_figure(table, lines, title=title, unit="rank correlation", marks=marks, theme=theme)
