"""Reading Parquet files: which rows stand together, of which event times their statistics tell, and the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from engine.connectors.canonical import empty_rejects
from engine.connectors.shaping import Piece
from engine.errors import DataInvalid, SourceUnavailable
from engine.plan.model import RelationSchema

PIECE_BYTES = 32 << 20
"""What is decoded at once: a row group may be as large as its file."""

_READ_BUFFER_BYTES = 1 << 20
"""Columns are read in steps of this size, not whole."""

_MS = 1_000


class Rows(NamedTuple):
    """Rows ``[begin, end)`` of a file that are read together: whole row groups, or what is asked for of them.

    Attributes:
        size_bytes: of the row groups, uncompressed.
        start_ts: least event time of the first row group, None where statistics do not tell.
        max_ts: greatest event time of all, None likewise.
    """

    begin: int
    end: int
    size_bytes: int
    start_ts: int | None
    max_ts: int | None


def parts(path: Path, start: int, end: int, step: int, relations: Sequence[RelationSchema] = ()) -> Iterator[Rows]:
    """Yield the rows ``[start, end)`` in parts of about ``step`` bytes that end where a row group does.

    Args:
        path: the file.
        start: first row.
        end: the one behind the last.
        step: a part has no more, unless it is a single row group.
        relations: whose event times are looked for in the statistics.

    Raises:
        SourceUnavailable: the file cannot be read.
    """
    names = {relation.event_time for relation in relations} - {None}
    waiting: Rows | None = None
    for group in _groups(open_parquet(path).metadata, start, end):
        low, high = _times(group.metadata, names)
        rows = Rows(group.begin, group.end, group.metadata.total_byte_size, low, high)
        if waiting is not None and waiting.size_bytes + rows.size_bytes <= step:
            greatest = None if waiting.max_ts is None or high is None else max(waiting.max_ts, high)
            waiting = Rows(waiting.begin, rows.end, waiting.size_bytes + rows.size_bytes, waiting.start_ts, greatest)
            continue
        if waiting is not None:
            yield waiting
        waiting = rows
    if waiting is not None:
        yield waiting


def pieces(path: Path, start: int, end: int, offset: int, relations: Sequence[RelationSchema]) -> Iterator[Piece]:
    """Yield the rows ``[start, end)`` for these relations, a part of a row group at a time; ``offset`` is that of row 0."""
    file = open_parquet(path)
    names = {*(name for relation in relations for name in relation.columns.names), "$op", "$event_time_ms"}
    present = [name for name in file.schema_arrow.names if name in names]
    for group in _groups(file.metadata, start, end):
        if not present:
            yield _piece(pa.table({}), file, group.begin + offset, group.end - group.begin)
            continue
        rows = max(1, group.metadata.num_rows * PIECE_BYTES // max(group.metadata.total_byte_size, PIECE_BYTES))
        first = group.first
        for batch in file.iter_batches(rows, row_groups=[group.number], columns=present, use_threads=False):
            begin, stop = max(first, group.begin), min(first + batch.num_rows, group.end)
            if begin < stop:
                table = pa.Table.from_batches([batch]).slice(begin - first, stop - begin)
                yield _piece(table, file, begin + offset, stop - begin)
            first += batch.num_rows


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file.

    Raises:
        SourceUnavailable: it cannot be read.
    """
    try:
        return pq.ParquetFile(path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error}") from error


class _Group(NamedTuple):
    """A row group that begins with row ``first``, and the rows ``[begin, end)`` of it that are asked for."""

    number: int
    metadata: Any
    first: int
    begin: int
    end: int


def _groups(metadata: pq.FileMetaData, start: int, end: int) -> Iterator[_Group]:
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        begin, stop = max(first, start), min(first + group.num_rows, end)
        if begin < stop:
            yield _Group(number, group, first, begin, stop)
        first += group.num_rows


def _piece(table: pa.Table, file: pq.ParquetFile, offset: int, rows: int) -> Piece:
    def parse(relation: RelationSchema, _member: pl.Expr | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        present = [name for name in (*relation.columns.names, "$op", "$event_time_ms") if name in table.column_names]
        offsets = pl.int_range(offset, offset + rows, dtype=pl.Int64, eager=True).alias("_offset")
        if not present:
            return offsets.to_frame(), empty_rejects()
        frame = cast("pl.DataFrame", pl.from_arrow(_valid(table.select(present), file), rechunk=False))
        return frame.with_columns(offsets), empty_rejects()

    return Piece(rows, parse)


def _times(group: Any, names: set[str | None]) -> tuple[int | None, int | None]:
    lows, highs = [], []
    for column in (group.column(i) for i in range(group.num_columns)) if names else ():
        if column.path_in_schema in names and column.is_stats_set and column.statistics.has_min_max:
            lows.append(_ms(column.statistics.min))
            highs.append(_ms(column.statistics.max))
    return (
        min((low for low in lows if low is not None), default=None),
        max((high for high in highs if high is not None), default=None),
    )


def _valid(table: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """Make sure that strings are UTF-8, which Parquet's writers promise and Polars relies on."""
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise DataInvalid(f"a Parquet file with {file.metadata.num_rows} rows holds text that is not UTF-8: {error}") from error
    return table


def _ms(value: object) -> int | None:
    """Event time of a statistic, where it is a number or an instant."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * _MS)
    return value if isinstance(value, int) else None
