"""Excerpts of refused records: JSON text of bounded length that any database and reader can hold."""

from __future__ import annotations

import json
from typing import Any, Final

import polars as pl

from engine.frames.nesting import as_lists, elements_of, lists_from, structs_from
from engine.records.scalars import is_holdable

MAX_EXCERPT_CHARS = 1024


def excerpt_of(value: Any) -> str:
    """Write a refused record as JSON text, cut to ``MAX_EXCERPT_CHARS``; long strings are cut before they are written."""
    if isinstance(value, dict):
        value = {key: _short(item) for key, item in value.items()}
    try:
        return json.dumps(_short(value), default=str, ensure_ascii=False)[:MAX_EXCERPT_CHARS]
    except RecursionError:  # the reader may have had more room on its stack
        return "(nested too deeply to be shown)"


def excerpts_of(records: pl.DataFrame) -> list[str]:
    """Write refused records as JSON texts, without their null columns."""
    shown = records.select(showable(column) for column in records.get_columns())
    return [excerpt_of({k: v for k, v in row.items() if v is not None}) for row in shown.iter_rows(named=True)]


def storable(text: str) -> str:
    """Replace characters that UTF-8 or Postgres text cannot hold."""
    return text.replace("\x00", "\\u0000").encode("utf-8", "replace").decode("utf-8")


def showable(column: pl.Series) -> pl.Series:
    """Make a column printable at every depth: Python has no instants in far years."""
    if isinstance(column.dtype, pl.Duration):
        return column.to_physical()
    if isinstance(column.dtype, pl.Array | pl.Map | pl.List):
        inside = elements_of(lists := as_lists(column))
        return lists_from(showable(inside.values), inside.sizes, inside.is_null).alias(lists.name)
    if isinstance(column.dtype, pl.Struct):
        fields = [showable(column.struct.field(field.name)) for field in column.dtype.fields]
        return structs_from(fields, column.is_null()).alias(column.name)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC")  # in other zones the last day of 9999 may have ended
    holdable = is_holdable(column)
    if holdable is None or holdable.all():
        return column
    near = column.set(~holdable, None)
    return near.cast(pl.String).zip_with(holdable, column.to_physical().cast(pl.String))


def _short(value: Any) -> Any:
    return value[:MAX_EXCERPT_CHARS] if isinstance(value, str | bytes | list) else value


_SHOWN_BYTES: Final = 256


def excerpt_of_bytes(payload: bytes) -> str:
    """Show a payload."""
    try:
        text = payload[:MAX_EXCERPT_CHARS].decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable():
        return text
    rest = len(payload) - _SHOWN_BYTES
    return payload[:_SHOWN_BYTES].hex() + (f"… and {rest:,} bytes" if rest > 0 else "")
