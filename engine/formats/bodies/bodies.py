"""Bodies of appended records: JSON array, newline-delimited JSON, Arrow IPC.

Chooses the parser by media type. Knows nothing of HTTP beyond the media type's name.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException, PolarsError

from engine.formats.json.json_records import BodyMalformed, check_width, parse_array, parse_lines, unknown_detail
from engine.plan.model import RelationSchema
from engine.records.arrow_bounds import MAX_RECORDS, TooLarge, check_schema, check_stream, check_values
from engine.records.arrow_records import records_of
from engine.records.arrow_types import TypeNotRead
from engine.records.canonical import CONTROL_COLUMNS, reject_rows
from engine.records.excerpts import excerpts_of

JSON_TYPES = ("application/json",)
LINE_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines")
ARROW_TYPES = ("application/vnd.apache.arrow.stream",)
MAX_OBJECTS = 4 * MAX_RECORDS
"""Bound of records, and objects inside of them, in a JSON body."""

MEDIA_TYPES = (*JSON_TYPES, *LINE_TYPES, *ARROW_TYPES)


def parse_records(body: bytes, media_type: str, relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parse a body into ``(raw, rejects)`` for ``canonicalise``; ``_offset`` and ``offset`` are indexes in the body.

    Args:
        body: the bytes.
        media_type: one of ``MEDIA_TYPES``; parameters such as ``charset`` are ignored.
        relation: the target of the append.

    Raises:
        BodyMalformed: the body as a whole cannot be read.
        ValueError: the media type is not one of ``MEDIA_TYPES``.
    """
    kind = media_type.split(";")[0].strip().lower()
    if kind in JSON_TYPES:
        _check_count("JSON objects", body.count(b"{"), MAX_OBJECTS)
        return parse_array(body, relation)
    if kind in LINE_TYPES:
        lines = body.count(b"\n")
        _check_count("lines", lines, MAX_RECORDS)
        check_width(lines, relation)
        raw, rejects, _ = parse_lines(body, relation, "reject")
        return raw, rejects
    if kind in ARROW_TYPES:
        return _parse_arrow(body, relation)
    raise ValueError(f"records can be sent as {', '.join(MEDIA_TYPES)}, not as {media_type!r}")


def _check_count(what: str, count: int, most: int) -> None:
    """Refuse small bodies that become large: an empty record has two bytes, and a hundred times as many in memory."""
    if count > most:
        raise BodyMalformed(f"the body has {count:,} {what}, and may have {most:,}; send it in several parts")


def _parse_arrow(body: bytes, relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
    try:
        check_width(check_stream(body), relation)
        reader = pa.ipc.open_stream(body)
        check_schema(reader.schema)
        table = reader.read_all()
        check_values(table.to_batches())
        frame, places, rejects = records_of(table)
    except (TooLarge, TypeNotRead) as error:
        raise BodyMalformed(str(error)) from error
    except (pa.ArrowException, OSError, ValueError, PolarsError, PanicException) as error:
        raise BodyMalformed(f"the body is not an Arrow IPC stream: {str(error)[:200]}") from error
    strange = [name for name in frame.columns if name not in relation.columns and name not in CONTROL_COLUMNS]
    raw = frame.drop(strange).with_columns(places)
    if not strange:
        return raw, rejects
    detail = unknown_detail(strange[0], relation)
    refused = frame.select(pl.any_horizontal(pl.col(name).is_not_null() for name in strange)).to_series()
    texts = excerpts_of(frame.filter(refused))
    rows = [(place, "unknown_column", detail, text) for place, text in zip(places.filter(refused), texts, strict=True)]
    return raw.filter(~refused), pl.concat([rejects, reject_rows(rows)]).sort("offset")
