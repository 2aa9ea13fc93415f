"""How many bytes a row takes in Arrow's encoding: what ``max_bytes`` of a buffer (S4) and the bound of a collection (P12) count.

Deterministic and a property of the row alone, so it does not depend on where batches were cut: fixed-width types count their
width (a boolean one byte), strings and bytes their length and a four-byte offset, arrays their elements and a four-byte offset,
structs their fields. A null of a fixed width counts its width, any other null only the offset. Validity bits and padding are not
counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64

_WIDTHS: Final[dict[type[pl.DataType], int]] = {
    pl.Boolean: 1, pl.Int8: 1, pl.Int16: 2, pl.Int32: 4, pl.Int64: 8, pl.UInt8: 1, pl.UInt16: 2, pl.UInt32: 4, pl.UInt64: 8,
    pl.Float32: 4, pl.Float64: 8, pl.Decimal: 16, pl.Date: 4, pl.Time: 8, pl.Datetime: 8, pl.Null: 0,
}  # fmt: skip

_OFFSET_BYTES: Final = 4

_OTHER_WIDTH: Final = 16
"""Of types that no column of a user has."""


class RowBytes:
    """Counts the bytes of rows.

    Args:
        columns: names and types of those that count.
    """

    def __init__(self, columns: Mapping[str, pl.DataType]) -> None:
        sizes = [_size(pl.col(name), kind) for name, kind in columns.items()]
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


def _size(value: pl.Expr, kind: pl.DataType) -> int | pl.Expr:
    """The bytes of a value: a number where they are the same for all."""
    if isinstance(kind, pl.String):
        return _counted(value.str.len_bytes())
    if isinstance(kind, pl.Binary):
        return _counted(value.bin.size())
    if isinstance(kind, pl.Struct):
        sizes = [_size(value.struct.field(field.name), pl.Schema({"x": field.dtype})["x"]) for field in kind.fields]
        return reduce(add, sizes, 0)
    if isinstance(kind, pl.List):
        size = _size(pl.element(), pl.Schema({"x": kind.inner})["x"])
        if isinstance(size, int):
            return _counted(value.list.len() * size)
        return _counted(value.list.eval(size).list.sum())
    return _WIDTHS.get(type(kind), _OTHER_WIDTH)


def _counted(length: pl.Expr) -> pl.Expr:
    return length.cast(pl.Int64).fill_null(0) + _OFFSET_BYTES
