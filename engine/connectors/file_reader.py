"""Reading a directory of ndjson, csv or parquet files for a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from engine.connectors import log
from engine.connectors.admission import NO_TS, Chunk
from engine.connectors.canonical import TEXT_FILE, TYPED_FILE, empty_rejects
from engine.connectors.dating import Dated, Header, date_frame, date_text, dating_relations
from engine.connectors.feeds import Limit, ReadRequest, Split, Start
from engine.connectors.file_registry import PLACE_BITS, Stretch, end_position, list_files, register, stretches
from engine.connectors.json_records import line_bounds
from engine.connectors.packets import Packet
from engine.connectors.postgres import Connection, shared_connection
from engine.connectors.shaping import Piece, shape
from engine.connectors.text_files import count_records, cut, header_end, parse_text, read_header, read_range, sample
from engine.errors import DataInvalid, SourceUnavailable
from engine.plan.model import Feed, RelationSchema

CHUNK_BYTES = 1 << 20
"""The grain in which admission lets event times advance together."""

SPLIT_BYTES = 8 << 20
"""What one task reads at once, about 100,000 records."""

PARQUET_ROWS = 65_536
"""The same grain where rows are counted."""

KEPT_DATES = 100_000
"""Chunks whose greatest event time is remembered: 100 GB of files that wait."""

PARQUET_ROW_BYTES = 100
"""What admission takes for the size of a row; row groups know only their own."""

LOOK_AHEAD_STRETCHES = 1_000
PARTITION = 0

_Part = tuple[int, str, int, int]
"""Where the numbers of a file begin, its name, and the bytes or rows of a part of it."""


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
    _greatest: dict[int, int | None] = field(default_factory=dict)

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

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:  # noqa: ARG002 - one partition
        """See ``FeedReader``. Rows of text files are estimated from samples; where they are dated, every event time is read."""
        found: list[Chunk] = []
        rows = size = 0
        try:
            for part in self._chunk_parts(start):
                found.append(self._chunk(part, is_dated=is_dated))
                rows, size = rows + found[-1].rows, size + found[-1].size_bytes
                if rows > limit.max_rows or size > limit.max_bytes:
                    break
        except SourceUnavailable:
            # What is before the file that is gone may be all that is asked for.
            if not found:
                raise
        return found

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:  # noqa: ARG002 - the port's; there is one partition
        """See ``FeedReader``. Records without an event time of their own are of the time at which they are read: later than any bound."""
        if not dating_relations(self.relations):
            return start
        for part in self._chunk_parts(start, end):
            found = self._dated(part).first_at(bound_ms)
            if found is not None:
                return found
        return end

    def splits(self, partition: int, start: int, end: int, head: int | None) -> list[Split]:  # noqa: ARG002 - there is one partition
        """See ``FeedReader``."""
        if head is not None:
            return self._dated_splits(start, end, head)
        splits: list[Split] = []
        for stretch in self._stretches(start, end):
            base = stretch.seq << PLACE_BITS
            for first, last in self._parts(stretch, SPLIT_BYTES):
                splits.append(Split(PARTITION, base + first, base + last, None, stretch.name, first, last))
        return splits

    def _dated_splits(self, start: int, end: int, head: int) -> list[Split]:
        """Cut where chunks end, whose greatest event times tell the head of what is behind them."""
        splits: list[Split] = []
        for base, name, first, last in self._chunk_parts(start, end):
            known = splits[-1] if splits else None
            is_near = known is not None and known.file == name and last - known.file_start <= self._split_size
            if known is not None and is_near:
                splits[-1] = replace(known, end=base + last, file_end=last)
            else:
                splits.append(Split(PARTITION, base + first, base + last, head, name, first, last))
            # The head behind the last split is nobody's.
            if base + last < end and dating_relations(self.relations):
                head = max(head, NO_TS if (greatest := self._max_ts((base, name, first, last))) is None else greatest)
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

    @property
    def _split_size(self) -> int:
        return SPLIT_BYTES if self.feed.format != "parquet" else 8 * PARQUET_ROWS

    def _parts(self, stretch: Stretch, step: int) -> Iterator[tuple[int, int]]:
        path = self._directory / stretch.name
        if self.feed.format != "parquet":
            yield from cut(path, stretch.start, stretch.end, step, self.feed.format == "csv")
            return
        for _, _, first, last in _row_groups(_parquet(path), stretch.start, stretch.end):
            yield first, last

    def _chunk_parts(self, start: int, end: int | None = None) -> Iterator[_Part]:
        """Cut what lies in ``[start, end)`` where chunks end, wherever it begins."""
        for stretch in self._stretches(start, end):
            base, path = stretch.seq << PLACE_BITS, self._directory / stretch.name
            if self.feed.format == "parquet":
                for _, _, low, high in _row_groups(_parquet(path), stretch.start, stretch.end):
                    stops = [*range((low // PARQUET_ROWS + 1) * PARQUET_ROWS, high, PARQUET_ROWS), high]
                    yield from ((base, stretch.name, first, last) for first, last in zip([low, *stops[:-1]], stops, strict=True))
                continue
            first = stretch.start
            while first < stretch.end:
                near = (first // CHUNK_BYTES + 1) * CHUNK_BYTES - first
                first, last = next(cut(path, first, stretch.end, near, self.feed.format == "csv"))
                yield base, stretch.name, first, last
                first = last

    def _chunk(self, part: _Part, *, is_dated: bool) -> Chunk:
        base, _, first, last = part
        is_parquet = self.feed.format == "parquet"
        rows = last - first if is_parquet else self._estimated_rows(part)
        greatest = self._max_ts(part) if is_dated else None
        size = (last - first) * (PARQUET_ROW_BYTES if is_parquet else 1)
        return Chunk(base + last, rows, size, None, greatest)

    def _max_ts(self, part: _Part) -> int | None:
        """Return the greatest event time of a chunk; None where no relation has one. Where its beginning was read before: see ``LogReader``."""
        end = part[0] + part[3]
        if end not in self._greatest:
            if len(self._greatest) >= KEPT_DATES:
                self._greatest.clear()
            greatest = self._dated(part).max_ts
            # Where relations have event times and none of these records has a good one, they wait for nobody.
            self._greatest[end] = NO_TS if greatest is None and dating_relations(self.relations) else greatest
        return self._greatest[end]

    def _dated(self, part: _Part) -> Dated:
        """Read the event times of a chunk."""
        base, name, first, last = part
        now_ms = time.time_ns() // 1_000_000
        if self.feed.format == "parquet":
            return self._dated_rows(part, now_ms)
        path, header = self._directory / name, self._header(name, last)
        first += header_end(path, last) if header is not None and first == 0 else 0
        return date_text(read_range(path, first, last), header, base + first, self.relations, now_ms)

    def _dated_rows(self, part: _Part, now_ms: int) -> Dated:
        base, name, first, last = part
        file = _parquet(self._directory / name)
        found = []
        for relation in dating_relations(self.relations):
            for group, skip, begin, end in _row_groups(file, first, last):
                raw, _ = self._parquet_piece(file, group, skip, end - begin, base + begin).parse(relation, None)
                found.append(date_frame(raw, relation, now_ms, is_text=False))
        return Dated.joined(found)

    def _estimated_rows(self, part: _Part) -> int:
        """Return about how many records a part of a text file holds."""
        _, name, first, last = part
        path, header = self._directory / name, self._header(name, last)
        first += min(header_end(path, last), last) if header is not None and first == 0 else 0
        if first == last:
            return 0
        head, _ = sample(path, first, last, header is not None)
        return max(1, round((last - first) * count_records(head, header is not None) / len(head)))

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
        now_ms = time.time_ns() // 1_000_000

        def times() -> Dated:
            return date_text(data, header, base, self.relations, now_ms)

        if header is None:
            bounds = line_bounds(data)
            return Piece(len(bounds[0]), lambda relation, member: parse_text(data, None, relation, member, base, bounds), times)
        rows = count_records(data, is_csv=True) if data else 0
        return Piece(rows, lambda relation, member: parse_text(data, header, relation, member, base), times)

    def _parquet_pieces(self, split: Split) -> Iterator[Piece]:
        file = _parquet(self._directory / (split.file or ""))
        for group, skip, begin, end in _row_groups(file, split.file_start, split.file_end):
            yield self._parquet_piece(file, group, skip, end - begin, split.start + begin - split.file_start)

    def _parquet_piece(self, file: pq.ParquetFile, group: int, skip: int, rows: int, offset: int) -> Piece:
        def parse(relation: RelationSchema, _member: pl.Expr | None) -> tuple[pl.DataFrame, pl.DataFrame]:
            present = [name for name in (*relation.columns.names, "$op", "$event_time_ms") if name in file.schema_arrow.names]
            table = file.read_row_group(group, columns=present, use_threads=False).slice(skip, rows)
            frame = cast("pl.DataFrame", pl.from_arrow(_valid(table, file), rechunk=False)) if present else pl.DataFrame()
            offsets = pl.int_range(offset, offset + rows, dtype=pl.Int64, eager=True).alias("_offset")
            return (frame.with_columns(offsets) if present else offsets.to_frame()), empty_rejects()

        def times() -> Dated:
            now_ms = time.time_ns() // 1_000_000
            frames = ((parse(relation, None)[0], relation) for relation in dating_relations(self.relations))
            return Dated.joined([date_frame(raw, relation, now_ms, is_text=False) for raw, relation in frames])

        return Piece(rows, parse, times)


def _row_groups(file: pq.ParquetFile, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Give the row groups that meet the rows ``[start, end)`` of a file: number, rows to skip in it, first row and the one behind the last."""
    first = 0
    for group in range(file.metadata.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        begin = max(first, start)
        if begin < min(last, end):
            yield group, begin - first, begin, min(last, end)
        first = last


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
