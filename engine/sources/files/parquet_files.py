"""Reading Parquet files: rows that are read together, and the rows themselves, in pieces that fit into memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PanicException

from engine.errors import SourceUnavailable
from engine.plan.model import RelationSchema
from engine.records.arrow_records import records_of
from engine.records.arrow_types import TypeNotRead, check_types
from engine.records.canonical import empty_rejects, reject_rows
from engine.sources.dating import Dated, date_frame
from engine.sources.files.parquet_sizes import PIECE_BYTES, piece_rows, step_rows
from engine.sources.files.refusals import UNREADABLE, refused
from engine.sources.shaping import Piece

_READ_BUFFER_BYTES = 1 << 20
"""Columns are read in steps of this size, not whole."""


_UNREAD: Final = (OSError, pa.ArrowException)


class NotParquet(SourceUnavailable):
    """A file's bytes are no Parquet file: it is damaged, or its writer has not finished it."""


class _Damaged(Exception):
    """The rest of a row group cannot be decoded."""


def parts(path: Path, start: int, end: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the rows ``[start, end)`` in parts of about ``step`` bytes that end where a row group ends; a single group may be larger.

    Raises:
        SourceUnavailable: the file cannot be read.
    """
    size, stop = 0, start
    for group in _groups(open_parquet(path).metadata, start, end):
        if start < stop and size + group.metadata.total_byte_size > step:
            yield start, stop
            size, start = 0, stop
        size, stop = size + group.metadata.total_byte_size, group.end
    if start < stop:
        yield start, stop


def pieces(
    path: Path, rows: tuple[int, int], offset: int, relations: Sequence[RelationSchema], dated_by: Sequence[RelationSchema]
) -> Iterator[Piece]:
    """Yield rows, a part of a row group at a time.

    Args:
        path: the file.
        rows: the first, and the one after the last.
        offset: of row 0.
        relations: the relations whose columns may be needed.
        dated_by: the relations that date the rows (``dating_relations``).

    Raises:
        SourceUnavailable: the file cannot be read.
        NotParquet: it is no Parquet file.
    """
    file = open_parquet(path)
    names = {*(name for relation in (*relations, *dated_by) for name in relation.columns.names), "$op", "$event_time_ms"}
    present = [name for name in file.schema_arrow.names if name in names]
    try:
        check_types(pa.schema([file.schema_arrow.field(name) for name in present]))
    except TypeNotRead as error:
        if rows[0] == 0:
            yield refused(path, offset, str(error))
        return
    most = piece_rows((*relations, *dated_by))
    for group in _groups(file.metadata, *rows):
        if not present:
            for begin in range(group.begin, group.end, most):
                yield _piece(path, pa.table({}), begin + offset, min(most, group.end - begin), dated_by)
            continue
        first = group.first
        try:
            for table in _tables(path, file, group, present, most):
                begin, stop = max(first, group.begin), min(first + table.num_rows, group.end)
                if begin < stop:
                    yield _piece(path, table.slice(begin - first, stop - begin), begin + offset, stop - begin, dated_by)
                first += table.num_rows
                if first >= group.end:
                    break
        except _Damaged as error:
            # The split with the first damaged row refuses it, however the file is split.
            if group.begin <= first < group.end:
                last = group.first + group.metadata.num_rows - 1
                yield refused(path, first + offset, f"rows {first} to {last} are damaged: {error}")


def _tables(path: Path, file: pq.ParquetFile, group: _Group, present: Sequence[str], most: int) -> Iterator[pa.Table]:
    """Yield a row group in tables of at most ``most`` rows. If rows may be large, few are decoded at once and then joined.

    Raises:
        _Damaged: the rest cannot be decoded.
    """
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    damage: Exception | None = None
    try:
        step = min(most, step_rows(file.metadata, group.number, present, lambda column: _first_row(path, file, group, column)))
        for batch in file.iter_batches(step, row_groups=[group.number], columns=list(present), use_threads=False):
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows + step > most or 2 * size >= PIECE_BYTES:
                yield pa.Table.from_batches(batches)
                batches, rows, size = [], 0, 0
    except _UNREAD as error:
        if not isinstance(found := _meaning(path, error), NotParquet):
            raise found from error
        damage = error
    if batches:
        yield pa.Table.from_batches(batches)
    if damage is not None:
        raise _Damaged(str(damage)) from damage


def _first_row(path: Path, file: pq.ParquetFile, group: _Group, column: str) -> pa.RecordBatch:
    """Read one row of a text column with the dictionary of all later rows, which is decoded once."""
    with open_parquet(path, file.metadata, column) as again:
        return next(again.iter_batches(1, row_groups=[group.number], columns=[column], use_threads=False))


def _meaning(path: Path, error: Exception) -> Exception:
    """Return what to raise if a file cannot be read: lack of memory unchanged; a missing or forbidden file; else damage.

    Arrow's own errors about bytes have no number of the operating system.
    """
    if isinstance(error, MemoryError):
        return error
    is_of_system = isinstance(error, OSError) and error.errno is not None
    return (SourceUnavailable if is_of_system else NotParquet)(f"file {path} cannot be read: {error}")


def open_parquet(path: Path, metadata: pq.FileMetaData | None = None, as_dictionary: str | None = None) -> pq.ParquetFile:
    """Open a file.

    Args:
        path: the file.
        metadata: its metadata, if known.
        as_dictionary: a text column to leave undecoded.

    Raises:
        SourceUnavailable: it cannot be read.
        NotParquet: its bytes are no Parquet file.
    """
    try:
        texts = None if as_dictionary is None else [as_dictionary]
        return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
    except _UNREAD as error:
        raise _meaning(path, error) from error


class _Group(NamedTuple):
    """A row group that begins with row ``first``, and its requested rows ``[begin, end)``."""

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


def _piece(path: Path, table: pa.Table, offset: int, rows: int, dated_by: Sequence[RelationSchema]) -> Piece:
    def parse(relation: RelationSchema, _member: pl.Expr | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        present = [name for name in (*relation.columns.names, "$op", "$event_time_ms") if name in table.column_names]
        if not present:
            return pl.int_range(offset, offset + rows, dtype=pl.Int64, eager=True).alias("_offset").to_frame(), empty_rejects()
        try:
            frame, places, rejects = records_of(table.select(present))
        except (pa.ArrowInvalid, PanicException) as error:
            return pl.DataFrame(), reject_rows([(offset, UNREADABLE, f"file {path}: {rows} rows are damaged: {error}", "")])
        return frame.with_columns(places + offset), rejects.with_columns(pl.col("offset") + offset)

    def times() -> Dated:
        now_ms = time.time_ns() // 1_000_000
        frames = ((parse(relation, None)[0], relation) for relation in dated_by)
        return Dated.joined([date_frame(frame, relation, now_ms, is_text=False) for frame, relation in frames if frame.height])

    return Piece(rows, parse, times)
