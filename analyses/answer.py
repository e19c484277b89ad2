"""What an analysis gives back: tables, figures made from them, and the answer in words."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go


@dataclass(frozen=True)
class Answer:
    """The result of one analysis of one run or several.

    Attributes:
        summary: the answer, a few plain lines with units and intervals.
        tables: tidy tables by name.
        figures: figures by heading, each drawn from the tables alone.
        provenance: what decided the numbers: runs, checkpoint hashes, options, versions.
        pages: whole HTML pages by the file to write, of an analysis that makes its own.
    """

    summary: tuple[str, ...]
    tables: dict[str, pd.DataFrame]
    figures: dict[str, go.Figure] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    pages: dict[Path, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object with everything but the figures; NaN and infinities become null."""
        tables = {
            name: json.loads(table.to_json(orient="records", double_precision=15))
            for name, table in self.tables.items()
        }
        body = {"summary": self.summary, "tables": tables, "provenance": self.provenance}
        return json.dumps(body, indent=1, allow_nan=False)
