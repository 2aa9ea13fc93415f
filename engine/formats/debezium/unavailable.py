"""Debezium's placeholder for an unchanged large value, which the database did not log (Postgres: TOAST)."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Final
from uuid import UUID

import polars as pl
from polars.datatypes import DataTypeClass

_TEXT: Final = "__debezium_unavailable_value"
_BYTES: Final = _TEXT.encode()
_TEXTS: Final = (_TEXT, base64.b64encode(_BYTES).decode(), json.dumps({_TEXT: _TEXT}, separators=(",", ":")))
"""A text; bytes in JSON; an hstore."""

_UUID: Final = str(UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_NUMBERS: Final = ",".join(str(byte) for byte in _BYTES)


def is_unavailable(row: pl.DataType, side: str) -> pl.Expr:
    """Return whether a row's field is the placeholder: a text, its bytes, or an array of it. Arrays of numbers hold its bytes.

    Args:
        row: the type of the rows.
        side: the column that has them.
    """
    fields = row.to_schema() if isinstance(row, pl.Struct) else {}
    found = [_is(pl.col(side).struct.field(name), dtype) for name, dtype in fields.items()]
    said = [each for each in found if each is not None]
    return pl.any_horizontal(*said).fill_null(value=False) if said else pl.lit(value=False)


def _is(value: pl.Expr, dtype: pl.DataType | DataTypeClass) -> pl.Expr | None:
    """Return whether values are placeholders; None: their type has no placeholder."""
    if dtype == pl.String:
        return value.is_in(_TEXTS)
    if dtype == pl.Binary:
        return value == _BYTES
    if not isinstance(dtype, pl.List):
        return None
    first = value.list.first()
    if dtype.inner == pl.String:
        return (value.list.len() == 1) & first.is_in([*_TEXTS, _UUID])
    if dtype.inner == pl.Binary:
        return (value.list.len() == 1) & (first == _BYTES)
    if dtype.inner is not None and dtype.inner.is_numeric():
        numbers = value.cast(pl.List(pl.Int64), strict=False).cast(pl.List(pl.String))
        return (value.list.len() == len(_BYTES)) & (numbers.list.join(",") == _NUMBERS)
    return None
