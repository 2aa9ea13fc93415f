"""Objects of scalars read by Arrow's strict reader, under the names that leniency finds: all of some records, or none.

For records without a common layout: their texts have escapes, their fields vary, or they hold undeclared nested values. If
anything is unusual there is no result, and the records are read one by one.
"""

from __future__ import annotations

import re
from typing import Final, cast

import numpy as np
import polars as pl
import pyarrow as pa

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.byte_words import I64
from engine.formats.json.json_records import are_decimals_fit, arrow_table, has_no_numbers

_PLAIN_NAME: Final = re.compile(r"\w+")
_ESCAPED_NAME: Final = re.compile(rb'\\u[0-9A-Fa-f]{4}[^"]*"[ \t]*:')
_MOST_DIGITS: Final = 300
_FEW_DIGITS: Final = 16
_GREAT_EXPONENT: Final = re.compile(rb"[eE][+-]?[0-9]{16}")
"""Python refuses numbers of very many digits or with greater exponents, even in undeclared fields."""

_MOST_OPENINGS: Final = 100
"""The most brackets and braces in a record: at some greater depth Python refuses it."""

_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int64(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "bytes": pa.string(),
    "date": pa.int64(), "time": pa.int64(), "timestamp": pa.int64(),
}  # fmt: skip


def read_objects(chunk: bytes, starts: I64, columns: Schema) -> pl.DataFrame | None:
    """Read records.

    Args:
        chunk: newline-separated records, each of which begins and ends with a brace and has no line break inside.
        starts: where they begin.
        columns: scalars.

    Returns:
        The columns. Numbers without a fraction have 64 bits, bytes are texts, dates and times numbers. None: something is not plain.
    """
    if not all(map(_PLAIN_NAME.fullmatch, columns.names)) or _is_deep(chunk, starts):
        return None
    try:
        spelled = _spellings(chunk.decode(), columns)
    except UnicodeDecodeError:
        return None
    schema = None if spelled is None else _schema(spelled, columns)
    if spelled is None or schema is None:
        return None
    try:
        table = arrow_table(chunk, schema, "ignore")
    except pa.ArrowException:
        return None
    if table.num_rows != len(starts) or _ESCAPED_NAME.search(chunk) or has_no_numbers(chunk) or _has_great_number(chunk):
        return None
    read = cast("pl.DataFrame", pl.from_arrow(table))
    frame = read.select(pl.col(spelled[name]).alias(name) for name in columns.names)
    return frame if _are_doubles_plain(frame) and are_decimals_fit(frame, columns) else None


def _is_deep(chunk: bytes, starts: I64) -> bool:
    """Whether a record may be nested deeply."""
    if chunk.count(b"{") + chunk.count(b"[") <= len(starts) + _MOST_OPENINGS:
        return False
    data = np.frombuffer(chunk, np.uint8)
    openings = ((data == ord("{")) | (data == ord("["))).astype(np.int32)
    return bool(np.add.reduceat(openings, starts).max() > _MOST_OPENINGS)


def _has_great_number(chunk: bytes) -> bool:
    """Whether there may be a number that Python refuses. The text begins and ends with a brace."""
    data = np.frombuffer(chunk, np.uint8)
    longest = int(np.diff(np.flatnonzero(data - np.uint8(ord("0")) > np.uint8(9))).max()) - 1
    return longest > _MOST_DIGITS or (longest >= _FEW_DIGITS and _GREAT_EXPONENT.search(chunk) is not None)


def _spellings(text: str, columns: Schema) -> dict[str, str] | None:
    """Return the spelling of each column; None if one has several spellings (even as the value of a text).

    If the only spelling is the name, or the name in upper case, ``field_of`` finds its value.
    """
    in_upper_case = text.upper()
    spelled: dict[str, str] = {}
    for name in columns.names:
        at = in_upper_case.find(f'"{name}"') + 1 if name.upper() == name and len(in_upper_case) == len(text) else 0
        spelled[name] = text[at : at + len(name)] if at else name
        if name.upper() == name and in_upper_case.count(f'"{name}"') != text.count(f'"{spelled[name]}"'):
            return None
    return spelled


def _schema(spelled: dict[str, str], columns: Schema) -> pa.Schema | None:
    """Return the schema for Arrow; None if one field is read as two types."""
    kinds: dict[str, pa.DataType] = {}
    for name, declared in columns.items():
        kind = _arrow_type(declared)
        if kinds.setdefault(spelled[name], kind) != kind:
            return None
    return pa.schema(list(kinds.items()))


def _arrow_type(declared: ColumnType) -> pa.DataType:
    return pa.decimal128(declared.precision, declared.scale) if declared.kind == "decimal" else _ARROW[declared.kind]


def _are_doubles_plain(frame: pl.DataFrame) -> bool:
    """Whether all are finite and none is -0, which has no sign as a whole number."""
    for column in frame.get_columns():
        if column.dtype == pl.Float64:
            values = column.drop_nulls().to_numpy()
            if not np.isfinite(values).all() or np.signbit(values[values == 0]).any():
                return False
    return True
