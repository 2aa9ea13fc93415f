"""Reading a directory of ndjson, csv or parquet files for a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from engine.connectors import log
from engine.connectors.admission import Chunk
from engine.connectors.canonical import TEXT_FILE, TYPED_FILE, empty_rejects
from engine.connectors.dating import Header, Part, look
from engine.connectors.event_units import number_in_ms
from engine.connectors.feeds import Limit, ReadRequest, Split, Start
from engine.connectors.file_registry import PLACE_BITS, Stretch, end_position, list_files, register, stretches
from engine.connectors.json_records import line_bounds
from engine.connectors.packets import Packet
from engine.connectors.postgres import Connection, shared_connection
from engine.connectors.shaping import Piece, shape
from engine.connectors.text_files import count_records, cut, header_end, parse_text, read_header, read_range
from engine.errors import DataInvalid, SourceUnavailable
from engine.plan.model import Feed, RelationSchema

CHUNK_BYTES = 1 << 20
"""The grain in which admission lets event times advance together."""

SPLIT_BYTES = 8 << 20
"""What one task reads at once, about 100,000 records."""

LOOKED_AT = (4, 16, 64)
"""Chunks that are looked at together: 64 cost little more than one, and a batch that wants few need not wait for many."""

LOOK_AHEAD_STRETCHES = 1_000
PARTITION = 0
_MS = 1_000

_Placed = tuple[int, Part]
"""Where the numbers of a file begin, and a chunk of it."""


@dataclass(slots=True)
class FileReader:
    """A ``FeedReader`` over a directory; it has one partition.

    Attributes:
        relations: what dates the chunks.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    _listed: dict[str, int] = field(default_factory=dict)
    _headers: dict[str, Header] = field(default_factory=dict)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time it is the beginning: records before it are read and left out."""
        return self.ends() if start == "latest" else {PARTITION: 0}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. Lists the directory and registers what is new."""
        sizes = list_files(self._directory)
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            if sizes != self._listed:
                register(connection, feed.id, self.feed, sizes)
                self._listed = sizes
            return {PARTITION: end_position(connection, feed.id)}

    def chunks(self, partition: int, start: int, limit: Limit) -> list[Chunk]:  # noqa: ARG002 - the port's; there is one partition
        """See ``FeedReader``. Rows and times of text files are estimated from samples; Parquet's come from its statistics."""
        found: list[Chunk] = []
        rows = size = 0
        for chunk in self._parquet_chunks(start) if self.feed.format == "parquet" else self._text_chunks(start):
            found.append(chunk)
            rows, size = rows + chunk.rows, size + chunk.size_bytes
            if rows > limit.max_rows or size > limit.max_bytes:
                break
        return found

    def splits(self, partition: int, start: int, end: int) -> list[Split]:  # noqa: ARG002 - the port's; there is one partition
        """See ``FeedReader``."""
        splits: list[Split] = []
        for stretch in self._stretches(start, end):
            base = stretch.seq << PLACE_BITS
            for first, last in self._parts(stretch, SPLIT_BYTES):
                splits.append(Split(PARTITION, base + first, base + last, stretch.name, first, last))
        return splits

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``."""
        if self.feed.format == "parquet":
            yield from shape(self._parquet_pieces(split), split, self.feed, request, TYPED_FILE)
            return
        source = TEXT_FILE if self.feed.format == "csv" else TYPED_FILE
        yield from shape([self._text_piece(split)], split, self.feed, request, source)

    @property
    def _directory(self) -> Path:
        return Path(self.feed.path or "")

    def _find(self, connection: Connection) -> log.FeedRow:
        return log.find_feed(connection, self.feed.log_feed) or log.ensure_feed(connection, self.feed.log_feed, 1)

    def _stretches(self, start: int, end: int | None = None) -> Iterator[Stretch]:
        """Yield what lies in ``[start, end)``; the first and the last are cut to it."""
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            found = stretches(connection, feed.id, start, LOOK_AHEAD_STRETCHES)
            while end is not None and len(found) % LOOK_AHEAD_STRETCHES == 0 and found and found[-1].end_offset < end:
                more = stretches(connection, feed.id, (found[-1].seq + 1) << PLACE_BITS, LOOK_AHEAD_STRETCHES)
                if not more:
                    break
                found += more
        for stretch in found:
            base = stretch.seq << PLACE_BITS
            last = stretch.end if end is None else min(stretch.end, end - base)
            if stretch.start < last:
                yield Stretch(stretch.seq, stretch.name, stretch.start, last)

    def _parts(self, stretch: Stretch, step: int) -> Iterator[tuple[int, int]]:
        path = self._directory / stretch.name
        if self.feed.format != "parquet":
            yield from cut(path, stretch.start, stretch.end, step, self.feed.format == "csv")
            return
        metadata = _parquet(path).metadata
        first = 0
        for group in range(metadata.num_row_groups):
            last = first + metadata.row_group(group).num_rows
            begin, end = max(first, stretch.start), min(last, stretch.end)
            if begin < end:
                yield begin, end
            first = last

    def _text_chunks(self, start: int) -> Iterator[Chunk]:
        parts = (
            (stretch.seq << PLACE_BITS, Part(self._directory / stretch.name, first, last, self._header(stretch.name, last)))
            for stretch in self._stretches(start)
            for first, last in self._parts(stretch, CHUNK_BYTES)
        )
        for group in _grouped(parts):
            yield from self._looked_at(group)

    def _looked_at(self, group: Sequence[_Placed]) -> Iterator[Chunk]:
        try:
            looks = look([part for _, part in group], self.relations, time.time_ns() // 1_000_000)
        except SourceUnavailable:
            if len(group) == 1:
                raise
            # What is before the one that is gone may be all that is asked for.
            for placed in group:
                yield from self._looked_at([placed])
            return
        for (base, part), seen in zip(group, looks, strict=True):
            yield Chunk(base + part.end, seen.rows, part.end - part.start, seen.start_ts, seen.max_ts)

    def _header(self, name: str, end: int) -> Header | None:
        """Return the column names of a CSV file, None for ndjson."""
        if self.feed.format != "csv":
            return None
        if name not in self._headers:
            self._headers[name] = tuple(read_header(self._directory / name, end))
        return self._headers[name]

    def _text_piece(self, split: Split) -> Piece:
        name = split.file or ""
        path = self._directory / name
        header = self._header(name, split.file_end)
        skipped = header_end(path, split.file_end) if header is not None and split.file_start == 0 else 0
        data = read_range(path, split.file_start + skipped, split.file_end)
        base = split.start + skipped
        if header is None:
            bounds = line_bounds(data)
            return Piece(len(bounds[0]), lambda relation, member: parse_text(data, None, relation, member, base, bounds))
        rows = count_records(data, is_csv=True) if data else 0
        return Piece(rows, lambda relation, member: parse_text(data, header, relation, member, base))

    def _parquet_chunks(self, start: int) -> Iterator[Chunk]:
        for stretch in self._stretches(start):
            metadata = _parquet(self._directory / stretch.name).metadata
            base, first = stretch.seq << PLACE_BITS, 0
            for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
                last = first + group.num_rows
                begin, end = max(first, stretch.start), min(last, stretch.end)
                if begin < end:
                    low, high = self._statistics(group)
                    yield Chunk(base + end, end - begin, group.total_byte_size, low, high)
                first = last

    def _statistics(self, group: Any) -> tuple[int | None, int | None]:
        lows, highs = [], []
        for column in (group.column(i) for i in range(group.num_columns)):
            for relation in self.relations:
                if column.path_in_schema == relation.event_time and column.is_stats_set and column.statistics.has_min_max:
                    lows.append(_ms(column.statistics.min, relation))
                    highs.append(_ms(column.statistics.max, relation))
        return (
            min((low for low in lows if low is not None), default=None),
            max((high for high in highs if high is not None), default=None),
        )

    def _parquet_pieces(self, split: Split) -> Iterator[Piece]:
        file = _parquet(self._directory / (split.file or ""))
        first = 0
        for group in range(file.metadata.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            begin, end = max(first, split.file_start), min(last, split.file_end)
            if begin < end:
                yield self._parquet_piece(file, group, begin - first, end - begin, split.start + begin - split.file_start)
            first = last

    def _parquet_piece(self, file: pq.ParquetFile, group: int, skip: int, rows: int, offset: int) -> Piece:
        def parse(relation: RelationSchema, _member: pl.Expr | None) -> tuple[pl.DataFrame, pl.DataFrame]:
            present = [name for name in (*relation.columns.names, "$op", "$event_time_ms") if name in file.schema_arrow.names]
            table = file.read_row_group(group, columns=present, use_threads=False).slice(skip, rows)
            frame = cast("pl.DataFrame", pl.from_arrow(_valid(table, file), rechunk=False)) if present else pl.DataFrame()
            offsets = pl.int_range(offset, offset + rows, dtype=pl.Int64, eager=True).alias("_offset")
            return (frame.with_columns(offsets) if present else offsets.to_frame()), empty_rejects()

        return Piece(rows, parse)


def _grouped(parts: Iterator[_Placed]) -> Iterator[list[_Placed]]:
    """Put chunks into groups, ever larger ones. What cannot be read fails behind all that is before it."""
    sizes = iter(LOOKED_AT)
    size = next(sizes)
    group: list[_Placed] = []
    try:
        for part in parts:
            group.append(part)
            if len(group) == size:
                yield group
                group, size = [], next(sizes, size)
    except SourceUnavailable:
        if group:
            yield group
        raise
    if group:
        yield group


def _valid(table: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """Make sure that strings are UTF-8, which Parquet's writers promise and Polars relies on."""
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise DataInvalid(f"a Parquet file with {file.metadata.num_rows} rows holds text that is not UTF-8: {error}") from error
    return table


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error}") from error


def _ms(value: object, relation: RelationSchema) -> int | None:
    """Event time of a statistic, where it is a number or an instant."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * _MS)
    return number_in_ms(value, relation.event_time_unit) if isinstance(value, int) else None
