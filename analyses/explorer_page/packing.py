"""Tables as compact JSON: typed columns, long ones as base64 of their bytes."""

import base64
import math
from typing import Any

import numpy as np
import pandas as pd

from circuits.errors import InputError

LONG = 256
"""Columns with more numbers than this travel as bytes: float32, int32 or uint16."""

Packed = dict[str, Any]


def pack_table(table: pd.DataFrame) -> Packed:
    """Packs a table column by column.

    Long columns of fractions become float32; the page shows and exports those. Texts become codes
    into the list of different ones, as a tidy table repeats each of them often.

    Args:
        table: with columns of numbers, truth values or texts.

    Returns:
        Plain JSON values: `rows`, and `columns` by name in their order.
    """
    columns = {str(name): _column(table[name]) for name in table.columns}
    return {"rows": len(table), "columns": columns}


def pack_grid(table: pd.DataFrame, index: str, steps: list[int], values: list[str]) -> Packed:
    """Packs a tidy table that has a row for each step and name as one array a quantity.

    Args:
        table: with the columns `step`, `index` and `values`.
        index: column of the names.
        steps: the steps to pack; where the table lacks a row, its values are NaN.
        values: columns to pack.

    Returns:
        `names` in order of first appearance, and one array `[step, name]` for each value.

    Raises:
        InputError: two rows for the same step and name.
    """
    names = list(dict.fromkeys(table[index].astype(str)))
    row = {step: place for place, step in enumerate(steps)}
    column = {name: place for place, name in enumerate(names)}
    kept = table[table["step"].isin(row)]
    spots = (
        kept["step"].map(row).to_numpy(dtype=np.int64),
        kept[index].astype(str).map(column).to_numpy(dtype=np.int64),
    )
    if len(np.unique(spots[0] * max(len(names), 1) + spots[1])) < len(kept):
        raise InputError(f"the table has two rows for one step and {index}; give one of each")
    packed: Packed = {"names": names}
    for value in values:
        grid = np.full((len(steps), len(names)), np.nan, dtype=np.float64)
        grid[spots] = kept[value].to_numpy(dtype=np.float64)
        packed[value] = pack_numbers(grid.ravel())
    return packed


def pack_numbers(values: np.ndarray) -> Packed:
    """Packs numbers: as a list where there are few, else as the bytes of their type."""
    if values.dtype == np.uint16:
        return _bytes("u2", values)
    if np.issubdtype(values.dtype, np.integer):
        if len(values) <= LONG or np.abs(values).max() >= 2**31:
            return {"kind": "list", "values": [int(value) for value in values]}
        return _bytes("i4", values.astype("<i4"))
    if len(values) <= LONG:
        return {"kind": "list", "values": [_plain(float(value)) for value in values]}
    return _bytes("f4", values.astype("<f4"))


def plain_json(value: Any) -> Any:
    """Makes any provenance a plain JSON value: NaN and infinities become null."""
    if isinstance(value, dict):
        return {str(key): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, float):
        return _plain(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _column(column: pd.Series) -> Packed:
    if pd.api.types.is_bool_dtype(column):
        return {"kind": "list", "values": [bool(value) for value in column]}
    if pd.api.types.is_numeric_dtype(column):
        return pack_numbers(_numbers(column))
    gaps = column.isna()
    texts = ["" if gap else str(text) for text, gap in zip(column, gaps, strict=True)]
    names = list(dict.fromkeys(texts))
    if len(texts) <= LONG or len(names) > np.iinfo(np.uint16).max:
        return {"kind": "list", "values": texts}
    code = {name: place for place, name in enumerate(names)}
    codes = np.array([code[text] for text in texts], dtype="<u2")
    return {"kind": "codes", "names": names, "codes": _bytes("u2", codes)}


def _numbers(column: pd.Series) -> np.ndarray:
    """Whole numbers where none is missing; a nullable column with gaps becomes fractions."""
    if pd.api.types.is_integer_dtype(column) and not column.isna().any():
        return column.to_numpy(dtype=np.int64)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _bytes(kind: str, values: np.ndarray) -> Packed:
    return {"kind": kind, "bytes": base64.b64encode(values.tobytes()).decode()}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
