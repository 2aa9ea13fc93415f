"""Keys and values as one line of columns with a delimiter between them: CSV with as few quotes as possible."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from decimal import Decimal
from io import StringIO
from typing import Any, Final

import polars as pl

from engine.definition.record_formats import DELIMITED
from engine.expressions.library.json.json_values import of_double
from engine.expressions.types.types import ColumnType
from engine.formats.lenient.json_format import Decoded, Layout, Payload, column_read
from engine.formats.lenient.lenient import Reader, reader
from tests.conformance.ksqldb.codec import Codec
from tests.conformance.ksqldb.plain_values import plain_column

_QUOTE: Final = '"'
_END_OF_LINE: Final = re.compile(r"[\r\n]+")


def decode(payloads: Sequence[Payload], layout: Layout) -> Decoded:
    """Read payloads; see ``Codec``. An empty value is null; any text but ``true`` is the boolean false."""
    faults: dict[int, str] = {}
    width = len(layout.columns)
    rows = [_fields(payload, layout, place, faults) for place, payload in enumerate(payloads)]
    texts = zip(*rows, strict=True) if rows else [()] * width
    columns = {
        name: column_read(name, values, declared, _read(declared), faults)
        for (name, declared), values in zip(layout.columns.items(), texts, strict=True)
    }
    return Decoded(columns, [payload is None for payload in payloads], faults)


def encode(frame: pl.DataFrame, layout: Layout) -> list[Payload]:
    """Write rows; see ``Codec``."""
    columns = [_texts(frame.get_column(name), declared) for name, declared in layout.columns.items()]
    rows = zip(*columns, strict=True) if columns else (() for _ in range(frame.height))
    return [
        layout.delimiter.join(_quoted(text, layout.delimiter, is_first=place == 0) for place, text in enumerate(row)).encode()
        for row in rows
    ]


def _fields(payload: Payload, layout: Layout, place: int, faults: dict[int, str]) -> Sequence[str | None]:
    nothing = [None] * len(layout.columns)
    if payload is None:
        return nothing
    try:
        row = _first_line(payload.decode(), layout.delimiter)
    except (ValueError, csv.Error) as error:
        faults[place] = f"no delimited text: {error}"
        return nothing
    if len(row) != len(nothing):
        faults[place] = f"{len(row)} values for {len(nothing)} columns"
        return nothing
    return [text or None for text in row]


def _first_line(text: str, delimiter: str) -> list[str]:
    """Return the values of the first line that is not empty."""
    if _QUOTE in text:
        return next((row for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True) if row), [])
    return next((line.split(delimiter) for line in _END_OF_LINE.split(text) if line), [])


def _read(declared: ColumnType) -> Reader:
    return _boolean if declared.kind == "boolean" else reader(declared)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _texts(column: pl.Series, declared: ColumnType) -> list[str | None]:
    values = plain_column(column, declared)
    return values if declared.kind in ("string", "bytes") else [None if value is None else _text(value) for value in values]


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return of_double(value)
        case Decimal():
            return format(value, "f")
    return str(value)


def _quoted(text: str | None, delimiter: str, *, is_first: bool) -> str:
    """Put quotes where a reader needs them: around an empty text that starts a line too, which would be no line at all."""
    if text is None:
        return ""
    if _needs_quotes(text, delimiter, is_first=is_first):
        return _QUOTE + text.replace(_QUOTE, _QUOTE * 2) + _QUOTE
    return text


def _needs_quotes(text: str, delimiter: str, *, is_first: bool) -> bool:
    if not text:
        return is_first
    if text[0] <= "#" or text[-1] <= " " or (is_first and not (text[0].isascii() and text[0].isalnum())):
        return True
    return delimiter in text or _QUOTE in text or _END_OF_LINE.search(text) is not None


DELIMITED_CODEC = Codec(DELIMITED, decode, encode)
