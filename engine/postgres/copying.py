"""COPY of frames into tables of Postgres."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from engine.frames.slicing import slices

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
