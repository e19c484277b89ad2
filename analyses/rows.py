"""Tables read row by row: as plain dictionaries, whose values are what they are."""

from typing import Any

import numpy as np
import pandas as pd

Row = dict[str, Any]
"""One row of a table, by column."""


def records(table: pd.DataFrame) -> list[Row]:
    """Gives the rows in order; columns that a row lacks hold NaN."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def keyed(table: pd.DataFrame, column: str) -> dict[Any, Row]:
    """Gives the rows by the value of a column that is different in each."""
    return {row[column]: row for row in records(table)}


def numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    """Gives a column as a float64 array."""
    return np.asarray(table[column], dtype=np.float64)


def kept(table: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    """Gives the rows that are marked, numbered anew."""
    return pd.DataFrame(table[rows]).reset_index(drop=True)
