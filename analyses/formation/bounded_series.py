"""Many quantities over training with bounds that hold for all of them, at all steps, at once."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float


@dataclass(frozen=True)
class BoundedSeries:
    """Quantities of one kind at every step.

    Attributes:
        kind: "edge", "head" or "score".
        names: of the quantities.
        steps: rising.
        value: NaN where a quantity was not measured.
        low: lower bounds; with `high` they cover all true values together with 95 % chance. NaN
            where nothing is known about the error.
        high: upper bounds.
    """

    kind: str
    names: tuple[str, ...]
    steps: tuple[int, ...]
    value: Float[np.ndarray, "name step"]
    low: Float[np.ndarray, "name step"]
    high: Float[np.ndarray, "name step"]

    @classmethod
    def of(
        cls, table: pd.DataFrame, kind: str, name: str, value: str, width: float
    ) -> "BoundedSeries":
        """Arranges a table with `step`, names, values, and standard errors in `se`.

        Args:
            table: one row a step and name.
            kind: what the names are names of.
            name: column of the names.
            value: column of the values.
            width: half-width of the bounds in standard errors.
        """
        wide = table.pivot(index=name, columns="step", values=[value, "se"]).astype(float)
        wide = wide.reindex(list(dict.fromkeys(table[name])))
        mean, half = wide[value].to_numpy(), width * wide["se"].to_numpy()
        steps = tuple(int(step) for step in wide[value].columns)
        return cls(kind, tuple(map(str, wide.index)), steps, mean, mean - half, mean + half)

    def sizes(self) -> tuple[Float[np.ndarray, "name step"], Float[np.ndarray, "name step"]]:
        """Gives bounds of the absolute values: at least this, at most that."""
        least = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return least, np.maximum(np.abs(self.low), np.abs(self.high))
