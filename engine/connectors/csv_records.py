"""CSV records (RFC 4180, with a header line), brought into raw frames for ``canonicalise``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from engine.connectors.canonical import empty_rejects, reject_rows
from engine.connectors.json_records import line_bounds
from engine.plan.model import RelationSchema

_QUOTE = ord('"')
_TYPED = ("boolean", "int", "bigint", "double", "string")
"""Kinds that Polars' CSV reader parses as ``conform`` would; the others are read as text first."""

csv.field_size_limit(1 << 30)


def record_bounds(chunk: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each non-empty record starts and ends; line breaks inside quotes do not count."""
    starts, ends = line_bounds(chunk)
    data = np.frombuffer(chunk, dtype=np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    if len(quotes) == 0 or len(starts) == 0:
        return starts, ends
    is_outside = np.searchsorted(quotes, ends) % 2 == 0
    is_outside[-1] = True
    begins = np.concatenate(([True], is_outside[:-1]))
    return starts[begins], ends[is_outside]


def parse_header(line: bytes) -> list[str]:
    """Return the column names of a header line."""
    text = line.decode("utf-8-sig", "replace").strip("\r\n")
    return [name.strip() for name in next(csv.reader([text]), [])]


def parse_csv(
    chunk: bytes, header: Sequence[str], relation: RelationSchema
) -> tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64]]:
    """Parse whole CSV records, without the header.

    Returns:
        ``(raw, rejects, starts)``: offsets are indexes of records, ``starts[index]`` is the first byte. Columns the relation
        does not have are ignored. A record with a wrong number of fields is refused as ``malformed_csv``.
    """
    starts, ends = record_bounds(chunk)
    if len(starts) == 0:
        return pl.DataFrame(), empty_rejects(), starts
    if len(starts) != chunk.count(b"\n") + (not chunk.endswith(b"\n")) and b'"' not in chunk:
        # Empty lines would be rows of nulls.
        chunk = b"\n".join(chunk[start:end] for start, end in zip(starts, ends, strict=True))
    for is_typed in (True, False):
        frame = _read(chunk, header, relation, is_typed)
        if frame is not None and frame.height == len(starts):
            return frame.with_columns(pl.int_range(frame.height, dtype=pl.Int64).alias("_offset")), empty_rejects(), starts
    frame, rejects = _read_slowly([bytes(chunk[s:e]) for s, e in zip(*record_bounds(chunk), strict=True)], header, relation)
    return frame, rejects, starts


def _read(chunk: bytes, header: Sequence[str], relation: RelationSchema, is_typed: bool) -> pl.DataFrame | None:
    wanted = {header.index(name): name for name in relation.columns.names if name in header}
    schema: dict[str, pl.DataType] = {}
    for index in range(len(header)):
        declared = relation.columns[wanted[index]] if index in wanted else None
        schema[f"c{index}"] = declared.polars if is_typed and declared is not None and declared.kind in _TYPED else pl.String()
    if not wanted:
        return None
    try:
        frame = pl.read_csv(io.BytesIO(chunk), has_header=False, schema=schema, columns=sorted(wanted))
    except PolarsError:
        return None
    return frame.rename({f"c{index}": name for index, name in wanted.items()})


def _read_slowly(records: list[bytes], header: Sequence[str], relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows: list[list[str | None]] = []
    offsets: list[int] = []
    malformed: list[tuple[int, str, str, str]] = []
    for index, record in enumerate(records):
        try:
            fields = next(csv.reader(io.StringIO(record.decode().rstrip("\r"), newline=""), strict=True), [])
            wrong = "" if len(fields) == len(header) else f"{len(fields)} fields where the header has {len(header)}"
        except (csv.Error, UnicodeDecodeError) as error:
            fields, wrong = [], str(error)
        if wrong:
            malformed.append((index, "malformed_csv", wrong, record[:1024].decode("utf-8", "replace")))
            continue
        rows.append([field or None for field in fields])
        offsets.append(index)
    columns = {name: [row[header.index(name)] for row in rows] for name in relation.columns.names if name in header}
    series = [pl.Series(name, values, dtype=pl.String) for name, values in columns.items()]
    return pl.DataFrame([*series, pl.Series("_offset", offsets, dtype=pl.Int64)]), reject_rows(malformed)
