"""From the rows of every checkpoint to tidy tables, and to series with common bounds."""

import numpy as np
import pandas as pd

from analyses.formation.bounded_series import BoundedSeries
from analyses.formation.simultaneous import LEVEL, bonferroni_value, critical_value

Z = 1.959964
"""Half-width of a 95 % interval in standard errors."""


def measured_tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Sorts the rows of `FormationMeasure` into one table a kind.

    Args:
        rows: what it gave at each checkpoint, with the column `step`.

    Returns:
        `edges`, `heads`, `scores`, `diagnostics` and `agreement`.
    """
    effects = ["step", "name", "value", "low", "high", "se"]
    edges = _part(rows, "edge", effects).rename(columns={"name": "edge", "value": "effect"})
    ends = edges["edge"].str.split("->", expand=True)
    edges.insert(2, "source", ends[0])
    edges.insert(3, "reader", ends[1])
    heads = _part(rows, "head", effects).rename(columns={"name": "head", "value": "effect"})
    scores = _part(rows, "score", ["step", "name", "component", "value", "low", "high"])
    scores = scores.rename(columns={"name": "score"})
    return {
        "edges": edges,
        "heads": heads,
        "scores": scores.drop_duplicates(["step", "score", "component"], ignore_index=True),
        "diagnostics": _part(rows, "diagnostic", ["step", "name", "value", "se"]),
        "agreement": _agreement(rows),
    }


def _part(rows: pd.DataFrame, part: str, columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows[rows["part"] == part][columns]).reset_index(drop=True)


def _agreement(rows: pd.DataFrame) -> pd.DataFrame:
    found = []
    mine = rows[rows["part"] == "agreement"]
    for (step, method), group in mine.groupby(["step", "name"], sort=False):
        by_measure = group.set_index("component")
        top = next(name for name in by_measure.index if name.startswith("top-"))
        row = {
            "step": step,
            "method": method,
            "spearman": by_measure.at["rank correlation", "value"],
            "top_k": int(top.removeprefix("top-").split()[0]),
            "overlap": by_measure.at[top, "value"],
            "signed_spearman": by_measure.at["signed rank correlation", "value"],
        }
        for name, measure in (("spearman", "rank correlation"), ("overlap", top)):
            for column in ("chance", "ceiling"):
                row[f"{name}_{column}"] = by_measure.at[measure, column]
        found.append(row)
    columns = ["step", "method", "spearman", "top_k", "overlap", "signed_spearman"]
    columns += [f"{n}_{c}" for n in ("spearman", "overlap") for c in ("chance", "ceiling")]
    return pd.DataFrame(found, columns=columns)


def bands(
    rows: pd.DataFrame,
    tables: dict[str, pd.DataFrame],
    examples: int,
    early: int,
    margin: float,
) -> pd.DataFrame:
    """How wide do intervals have to be to hold for all components at all checkpoints together?

    Args:
        rows: of all checkpoints, with the draws of edges and heads.
        tables: what `measured_tables` made of them.
        examples: behind every mean.
        early: first checkpoints that make a noise band.
        margin: by how much it has to be left.

    Returns:
        One row a kind: `kind`, `width` (half, in standard errors), `method`, `level`, `margin`,
        `early_last` (the last step that makes the band).
    """
    draws = {
        kind: np.stack(
            [
                group["value"].to_numpy()
                for _, group in rows[rows["part"] == f"{kind} draw"].groupby("step")
            ]
        )
        for kind in ("edge", "head")
    }
    n_scores = int(tables["scores"]["low"].notna().sum())
    last = sorted(rows["step"].unique())[early - 1]
    table = pd.DataFrame(
        [
            (kind, critical_value(found, examples), "bootstrap of the largest deviation")
            for kind, found in draws.items()
        ]
        + [("score", bonferroni_value(n_scores), f"Bonferroni over {n_scores} intervals")],
        columns=["kind", "width", "method"],
    )
    return table.assign(margin=margin, level=LEVEL, early_last=last)


def series_of(tables: dict[str, pd.DataFrame], widths: pd.DataFrame) -> dict[str, BoundedSeries]:
    """Gives edges, heads and scores over training with bounds that hold together, by kind."""
    width = dict(zip(widths["kind"], widths["width"], strict=True))
    scores = tables["scores"].assign(
        component=(tables["scores"]["score"] + " " + tables["scores"]["component"]).str.strip(),
        se=(tables["scores"]["high"] - tables["scores"]["low"]) / (2 * Z),
    )
    series = {
        "edge": BoundedSeries.of(tables["edges"], "edge", "edge", "effect", width["edge"]),
        "head": BoundedSeries.of(tables["heads"], "head", "head", "effect", width["head"]),
    }
    if len(scores):
        series["score"] = BoundedSeries.of(scores, "score", "component", "value", width["score"])
    return series
