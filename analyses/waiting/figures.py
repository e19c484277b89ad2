"""Figures of the plateau: the losses with the use of z, and the candidate mass."""

import pandas as pd
import plotly.graph_objects as go

from analyses.line_figure import Line, time_figure
from circuits.figures.theme import LIGHT, Theme


def loss_figure(
    series: pd.DataFrame,
    lines: dict[str, float],
    marks: dict[str, float],
    theme: Theme = LIGHT,
) -> go.Figure:
    """Draws the losses and the z-gap against the step, with the levels that tell what is known."""
    drawn = [
        Line(name, name.replace("_", " "), se=f"{name}_se")
        for name in ("candidate_loss", "first_token_ce", "target_ce", "z_gap")
    ]
    levels = {
        "ln K": lines["ln_k"],
        "ln 36": lines["ln_36"],
        "ignorant target loss": lines["ignorant_target_ce"],
    }
    title = "Three losses and the use of z"
    return time_figure(
        series, drawn, title=title, unit="nats", levels=levels, marks=marks, theme=theme
    )


def mass_figure(
    series: pd.DataFrame,
    lines: dict[str, float],
    marks: dict[str, float],
    theme: Theme = LIGHT,
) -> go.Figure:
    """Draws the probability on valid first characters against the step."""
    drawn = [Line("candidate_mass", "candidate mass", se="candidate_mass_se")]
    levels = {"ignorance": lines["ignorant_candidate_mass"], "marginal": 1.0}
    title = "Probability on the first characters that B allows"
    return time_figure(
        series, drawn, title=title, unit="probability", levels=levels, marks=marks, theme=theme
    )
