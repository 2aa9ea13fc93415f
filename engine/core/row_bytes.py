"""How many bytes a row takes in Arrow's encoding: what ``max_bytes`` of a buffer (S4) and the bound of a collection (P12) count.

Deterministic and a property of the row alone, so it does not depend on where batches were cut: fixed-width types count their
width (a boolean one byte), strings and bytes their length and a four-byte offset, arrays their elements and a four-byte offset,
structs their fields. A null of a fixed width counts its width, any other null only the offset. Validity bits and padding are not
counted.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

import numpy as np
import polars as pl

from engine.core.clocks import I64
from engine.definition.types import STRING, ColumnType, Schema

_WIDTHS: Final = {"boolean": 1, "int": 4, "bigint": 8, "double": 8, "decimal": 16, "date": 4, "time": 8, "timestamp": 8}

_OFFSET_BYTES: Final = 4


class RowBytes:
    """Counts the bytes of rows with the columns of ``schema``."""

    def __init__(self, schema: Schema) -> None:
        sizes = [_size(pl.col(name), column) for name, column in schema.items()]
        self._fixed = sum(size for size in sizes if isinstance(size, int))
        variable = [size for size in sizes if isinstance(size, pl.Expr)]
        self._variable = reduce(add, variable) if variable else None

    @property
    def width(self) -> int | None:
        """The bytes of every row, where they are the same for all."""
        return self._fixed if self._variable is None else None

    def of(self, frame: pl.DataFrame) -> I64:
        """Return the bytes of each row."""
        fixed = np.full(frame.height, self._fixed)
        return fixed if self._variable is None else fixed + frame.select(self._variable).to_series().to_numpy()


def _size(value: pl.Expr, column: ColumnType) -> int | pl.Expr:
    """The bytes of a value: a number where they are the same for all."""
    if column.kind in _WIDTHS:
        return _WIDTHS[column.kind]
    if column.kind == "string":
        return _counted(value.str.len_bytes())
    if column.kind == "bytes":
        return _counted(value.bin.size())
    if column.kind == "struct":
        return _fields(value, column)
    return _elements(value, column)


def _counted(length: pl.Expr) -> pl.Expr:
    return length.cast(pl.Int64).fill_null(0) + _OFFSET_BYTES


def _fields(value: pl.Expr, column: ColumnType) -> int | pl.Expr:
    sizes = [_size(value.struct.field(name), field) for name, field in column.fields]
    return reduce(add, sizes, 0)


def _elements(value: pl.Expr, column: ColumnType) -> pl.Expr:
    element = column.element
    if column.kind == "map" and column.value is not None:
        element = ColumnType("struct", fields=(("key", STRING), ("value", column.value)))
    if element is None:
        raise ValueError(f"{column} has no elements")
    size = _size(pl.element(), element)
    if isinstance(size, int):
        return _counted(value.list.len() * size)
    return _counted(value.list.eval(size).list.sum())
