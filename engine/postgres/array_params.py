"""Frames into Postgres: by COPY, and as arrays for statements in binary form, because psycopg's own way examines the type of each value.

An array is a head, and for each element its size, -1 for null, and its bytes. Sources: Postgres, src/backend/utils/adt/arrayfuncs.c,
``array_recv``; psycopg, "Adapting new types".
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

import numpy as np
import polars as pl
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from engine.frames.slicing import slices

_HEAD: Final = struct.Struct("!iiIii")
"""Dimensions, whether there is a null, type of the elements, their number, index of the first."""

_SIZE: Final = struct.Struct("!i")
_NULL: Final = _SIZE.pack(-1)
_BOOL, _INT8, _TEXT = 16, 20, 25
_BOOLS, _INT8S, _TEXTS = 1000, 1016, 1009
_BOOLEANS: Final = np.dtype([("size", ">i4"), ("value", "?")])
_BIGINTS: Final = np.dtype([("size", ">i4"), ("value", ">i8")])


class BooleanArray(bytes):
    """A ``boolean[]``."""


class BigintArray(bytes):
    """A ``bigint[]``."""


class TextArray(bytes):
    """A ``text[]``."""


def array_of(values: pl.Series) -> BooleanArray | BigintArray | TextArray:
    """Return a column of booleans, integers or texts, at least one of them, as a parameter; nulls stay nulls."""
    if values.dtype == pl.String:
        return texts_of(values.to_list())
    nulls = values.is_null().to_numpy() if values.null_count() else None
    given = (values if nulls is None else values.fill_null(value=False if values.dtype == pl.Boolean else 0)).to_numpy()
    if values.dtype == pl.Boolean:
        return BooleanArray(_fixed(_BOOL, _BOOLEANS, given, nulls))
    return BigintArray(_fixed(_INT8, _BIGINTS, given, nulls))


def texts_of(values: list[str | None]) -> TextArray:
    """Return texts, at least one, as a parameter."""
    parts, has_null = [b""], 0
    for value in values:
        if value is None:
            parts.append(_NULL)
            has_null = 1
        else:
            text = value.encode()
            parts.append(_SIZE.pack(len(text)))
            parts.append(text)
    parts[0] = _HEAD.pack(1, has_null, _TEXT, len(values), 1)
    return TextArray(b"".join(parts))


def _fixed(kind: int, layout: np.dtype[np.void], values: NDArray[Any], nulls: NDArray[np.bool_] | None) -> bytes:
    """Return an array of values of one size."""
    rows = np.empty(len(values), layout)
    rows["size"], rows["value"] = layout["value"].itemsize, values
    head = _HEAD.pack(1, int(nulls is not None), kind, len(values), 1)
    if nulls is None:
        return head + rows.tobytes()
    rows["size"][nulls] = -1
    is_sent = np.ones((len(values), layout.itemsize), np.bool_)
    is_sent[nulls, _SIZE.size :] = False
    return head + rows.view(np.uint8).reshape(is_sent.shape)[is_sent].tobytes()


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        return bytes(obj)


class _BooleansDumper(_ArrayDumper):
    oid = _BOOLS


class _BigintsDumper(_ArrayDumper):
    oid = _INT8S


class _TextsDumper(_ArrayDumper):
    oid = _TEXTS


psycopg.adapters.register_dumper(BooleanArray, _BooleansDumper)
psycopg.adapters.register_dumper(BigintArray, _BigintsDumper)
psycopg.adapters.register_dumper(TextArray, _TextsDumper)


SLICE_ROWS = 8_192
"""Postgres reads one slice while the next is written: about a megabyte, with the same cost per row as one large slice."""

SLICE_BYTES = 4 << 20
"""Bound of a slice with more than one row: a few thousand large rows would be gigabytes of text."""

_COPY = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")


def copy_frame(cursor: psycopg.Cursor[Any], target: sql.Identifier, frame: pl.DataFrame) -> None:
    """Copy a frame of plain types into the columns of its names, as CSV: null is an empty field, the empty string a quoted one.

    Raises:
        psycopg.DataError: Postgres cannot hold a value.
    """
    if frame.is_empty():
        return
    with cursor.copy(_COPY.format(target, sql.SQL(", ").join(map(sql.Identifier, frame.columns)))) as copy:
        for part in slices(frame, SLICE_ROWS, SLICE_BYTES):
            text = io.BytesIO()
            # Strings are always quoted: a line that is only \\. would end the COPY.
            part.write_csv(text, include_header=False, quote_style="non_numeric")
            copy.write(text.getvalue())
