"""Do two scores of the same edges agree? Rank correlation and top-k overlap, with controls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from circuits.edge_scores import EdgeScores, edge_scores
from circuits.errors import InputError


@dataclass(frozen=True)
class Agreement:
    """How far approximate edge scores agree with exact ones.

    Attributes:
        table: one row a measure, with the columns
            `measure`: "rank correlation" (Spearman's, of the sizes of the effects), "signed rank
            correlation", and "top-k overlap" for each k (the share of the k largest effects, by
            size, that both have);
            `value`: from -1 to 1, or 0 to 1; NaN where a score does not vary;
            `chance`: its mean when the approximate scores are shuffled among edges;
            `chance_high`: 95 % of shuffles stay below this;
            `ceiling`: agreement of the exact effects on one half of the examples with those on the
            other half; NaN without values per example. Both halves are noisier than the whole, so
            `value` can exceed it.
        n_edges: edges compared.
    """

    table: pd.DataFrame
    n_edges: int

    def __getitem__(self, measure: str) -> float:
        """The value of one measure."""
        values = dict(zip(self.table["measure"], self.table["value"], strict=True))
        if measure not in values:
            raise InputError(f"measure {measure!r} is not one of {list(values)}")
        return float(values[measure])


def agreement(
    exact: EdgeScores,
    approx: EdgeScores,
    top: Sequence[int] = (10, 50),
    n_shuffles: int = 200,
    seed: int = 0,
) -> Agreement:
    """Says how well approximate scores (or another checkpoint's) agree with exact ones.

    Args:
        exact: result of `edge_effects`, or any scores that `edge_scores` reads.
        approx: the other scores, of the same edges.
        top: sizes k of the top sets; a k above half of the edges is left out, where overlap is
            mostly chance.
        n_shuffles: random relabellings behind `chance`.
        seed: of the relabellings and of the halves; global random state is not touched.

    Returns:
        The measures with their controls.

    Raises:
        InputError: other edges, fewer than three of them, or a k below 1.
    """
    ours, theirs = edge_scores(exact), edge_scores(approx)
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())
        raise InputError(
            f"exact and approx score different edges, for example {odd[0]!r}: score the same ones"
        )
    if len(ours) < 3:
        raise InputError(f"{len(ours)} edges cannot be ranked: score at least three")
    if any(k < 1 for k in top):
        raise InputError(f"top={list(top)} must hold numbers of edges, 1 or more")
    sizes = [int(k) for k in top if 2 * int(k) <= len(ours)]
    a = np.array(list(ours.values()))
    b = np.array([theirs[name] for name in ours])
    rng = np.random.default_rng(seed)
    shuffled = [_measures(a, rng.permutation(b), sizes) for _ in range(n_shuffles)]
    halves = _halves(exact, rng)
    ceiling = None if halves is None else _measures(*halves, sizes)
    rows = []
    for measure, value in _measures(a, b, sizes).items():
        chance = [one[measure] for one in shuffled]
        rows.append(
            {
                "measure": measure,
                "value": value,
                "chance": float(np.mean(chance)),
                "chance_high": float(np.quantile(chance, 0.95)),
                "ceiling": float("nan") if ceiling is None else ceiling[measure],
            }
        )
    return Agreement(pd.DataFrame(rows), len(ours))


def _measures(a: np.ndarray, b: np.ndarray, top: list[int]) -> dict[str, float]:
    size_a, size_b = np.abs(a), np.abs(b)
    measures = {
        "rank correlation": _spearman(size_a, size_b),
        "signed rank correlation": _spearman(a, b),
    }
    for k in top:
        first, second = (set(np.argsort(-x, kind="stable")[:k].tolist()) for x in (size_a, size_b))
        measures[f"top-{k} overlap"] = len(first & second) / k
    return measures


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of ranks (ties share their mean rank); NaN when one side does not vary."""
    x, y = pd.Series(a).rank().to_numpy(), pd.Series(b).rank().to_numpy()
    if x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _halves(exact: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean effects on two random halves of the examples."""
    values = getattr(exact, "per_example", None)
    if not isinstance(values, Tensor) or values.shape[1] < 4:
        return None
    order = torch.from_numpy(rng.permutation(values.shape[1]))
    half = len(order) // 2
    first, second = values[:, order[:half]], values[:, order[half:]]
    return first.double().mean(1).cpu().numpy(), second.double().mean(1).cpu().numpy()
