"""What one mechanism test found on one checkpoint: words, tables, figures."""

from dataclasses import dataclass, field

import pandas as pd
import plotly.graph_objects as go


@dataclass(frozen=True)
class Finding:
    """The answer of one mechanism test.

    Attributes:
        name: what was tested, as `--mechanism` calls it.
        summary: the answer in plain lines, with units and intervals.
        tables: the numbers behind it.
        figures: drawn from the tables, by heading.
    """

    name: str
    summary: tuple[str, ...]
    tables: dict[str, pd.DataFrame]
    figures: dict[str, go.Figure] = field(default_factory=dict)
