"""Are two circuits the same? Edge by edge, beside what chance would give."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from circuits.graph import Circuit


@dataclass(frozen=True)
class Overlap:
    """Which edges two circuits share.

    Attributes:
        shared: edges of both.
        only_first, only_second: edges of one alone.
        jaccard: shared edges over all edges of the two.
        chance: the mean of that for two random circuits of these sizes.
        p_value: how often two random circuits of these sizes share as many edges or more.
    """

    shared: Circuit
    only_first: Circuit
    only_second: Circuit
    jaccard: float
    chance: float
    p_value: float


def overlap(first: Circuit, second: Circuit) -> Overlap:
    """Compares two circuits of one graph edge by edge, with what chance alone would give.

    Random circuits are drawn uniformly among all edges, so the shared number is hypergeometric.

    Raises:
        InputError: circuits of two graphs.
    """
    from scipy.stats import hypergeom  # It takes a second to import, and a trace does without.

    shared = first & second
    n, a, b = len(first.graph.edges), len(first), len(second)
    counts = np.arange(max(0, a + b - n), min(a, b) + 1)
    law: Any = hypergeom(n, a, b)
    union = np.maximum(a + b - counts, 1)
    empty = a + b == 0
    return Overlap(
        shared=shared,
        only_first=first - second,
        only_second=second - first,
        jaccard=first.jaccard(second),
        chance=1.0 if empty else float((law.pmf(counts) * counts / union).sum()),
        p_value=float(law.sf(len(shared) - 1)),
    )


def jaccard_table(circuits: dict[str, Circuit]) -> pd.DataFrame:
    """Jaccard indices of several circuits, for example of one run's checkpoints.

    Args:
        circuits: of one graph, by name.

    Returns:
        A symmetric frame, names in rows and columns.
    """
    rows = {
        name: {other: one.jaccard(another) for other, another in circuits.items()}
        for name, one in circuits.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")
