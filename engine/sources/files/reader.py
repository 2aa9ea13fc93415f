"""Reading a directory of ndjson, csv or parquet files for a query.

Files are cut on record boundaries. From large to small:

- a range (``FileRange``) is consecutive bytes (ndjson, csv) or rows (parquet) of one file; those in ``log.file`` are its growth;
- a split is the range that one task reads, about ``SPLIT_BYTES``;
- a chunk is the range that admission takes as a whole, about ``CHUNK_BYTES`` or ``PARQUET_ROWS``; some chunks make a split;
- a piece (``shaping``) is what is in memory at once: rows of one row group, or a run, which is whole records of text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import SourceUnavailable
from engine.log import storage as log
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection, shared_connection
from engine.records.canonical import MAX_RECORD_BYTES, TEXT_FILE, TYPED_FILE
from engine.sources.dating import Dated, dating_relations
from engine.sources.feeds import NO_TS, Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.files import parquet_files
from engine.sources.files.growing_files import GrowingFiles
from engine.sources.files.refusals import COMPRESSED_TEXT, NO_PARQUET, Refusal, only_rejects
from engine.sources.files.registry import PLACE_BITS, REFUSED_AT, FileRange, end_position, file_ranges, is_compressed, place_of
from engine.sources.files.text_files import (
    Header,
    Run,
    bounds_of,
    cut,
    date_text,
    parse_text,
    read_header,
    read_range,
    refuse_too_long,
    runs,
    sample,
)
from engine.sources.files.watch import DirectoryWatch
from engine.sources.packets import Packet
from engine.sources.shaping import Piece, shape

CHUNK_BYTES = 1 << 20
"""The size of chunks: admission lets event times advance together in these steps."""

SPLIT_BYTES = 8 << 20
"""Bytes that one task reads at once, about 100,000 records."""

PARQUET_ROWS = 65_536
"""The size of chunks where rows are counted."""

KEPT_DATES = 100_000
"""Chunks whose greatest event time is cached: 100 GB of waiting files."""

PARQUET_ROW_BYTES = 100
"""Size of a row for admission, because only row groups have a known size."""

LOOK_AHEAD_STRETCHES = 1_000
PARTITION = 0


@dataclass(frozen=True, slots=True)
class Grain:
    """How finely files are cut. Only ``record_bytes`` affects results.

    Attributes:
        chunk_bytes: the steps in which admission lets event times advance together.
        split_bytes: what one task reads at once.
        record_bytes: longer texts are no records.
    """

    chunk_bytes: int = CHUNK_BYTES
    split_bytes: int = SPLIT_BYTES
    record_bytes: int = MAX_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class FileSplit(Split):
    """A part of one file.

    Attributes:
        file: its name.
        file_start: first byte (ndjson, csv) or row (parquet) inside the file.
        file_end: the one after the last.
    """

    file: str = ""
    file_start: int = 0
    file_end: int = 0

    @property
    def weight_bytes(self) -> int:
        return self.file_end - self.file_start

    @property
    def range(self) -> FileRange:
        """What it reads."""
        return FileRange(self.start >> PLACE_BITS, self.file, self.file_start, self.file_end)


def _split_of(part: FileRange) -> FileSplit:
    return FileSplit(PARTITION, part.start_offset, part.end_offset, None, part.name, part.start, part.end)


@dataclass(slots=True)
class FileReader(FeedReader):
    """A ``FeedReader`` over a directory; it has one partition.

    Attributes:
        relations: the relations that date the chunks.
        grain: how files are cut.
        clock: returns seconds since 1970.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    grain: Grain = Grain()
    clock: Callable[[], float] = time.time
    _headers: dict[str, tuple[Header, int]] = field(default_factory=dict)
    _greatest: dict[int, int | None] = field(default_factory=dict)
    _watch: DirectoryWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = DirectoryWatch(place_of(self.feed), GrowingFiles(self._is_csv, self.grain.record_bytes), self.clock)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time it is the beginning: earlier records are read and left out."""
        return self.ends() if start == "latest" else {PARTITION: 0}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. Lists the directory and registers new files."""
        listing = self._watch.listing()
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            self._watch.register(connection, feed.id, listing)
            return {PARTITION: end_position(connection, feed.id)}

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:  # noqa: ARG002 - one partition
        """See ``FeedReader``. Rows of text files are estimated from samples; for dated chunks, every event time is read."""
        found: list[Chunk] = []
        rows = size = 0
        try:
            for chunk in self._chunk_ranges(start):
                found.append(self._chunk(chunk, is_dated=is_dated))
                rows, size = rows + found[-1].rows, size + found[-1].size_bytes
                if rows > limit.max_rows or size > limit.max_bytes:
                    break
        except SourceUnavailable:
            # The records before the missing file may be enough.
            if not found:
                raise
        return found

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:  # noqa: ARG002 - the port's; there is one partition
        """See ``FeedReader``. Records without their own event time have the time of reading, which is later than any bound."""
        if not dating_relations(self.relations):
            return start
        for chunk in self._chunk_ranges(start, end):
            found = self._dated(chunk).first_at(bound_ms)
            if found is not None:
                return found
        return end

    def splits(self, partition: int, start: int, end: int) -> Sequence[Split]:  # noqa: ARG002 - there is one partition
        return [_split_of(part) for file_range in self._ranges(start, end) for part in self._split_ranges(file_range)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        assert isinstance(split, FileSplit)  # noqa: S101 - of ``splits``
        pieces = self._pieces(split.range, [one.relation for one in request.inputs])
        yield from shape(pieces, split, self.feed, request, TEXT_FILE if self._is_csv else TYPED_FILE)

    @property
    def _is_csv(self) -> bool:
        return place_of(self.feed).format == "csv"

    @property
    def _is_parquet(self) -> bool:
        return place_of(self.feed).format == "parquet"

    def _path(self, name: str) -> Path:
        return Path(place_of(self.feed).path) / name

    def _refusal(self, part: FileRange) -> Refusal | None:
        """Return why the whole file of a range is refused; None: its records are read."""
        if self._is_parquet:
            return NO_PARQUET if part.start == REFUSED_AT else None
        return COMPRESSED_TEXT if is_compressed(part.name) else None

    def _find(self, connection: Connection) -> log.FeedRow:
        return log.find_feed(connection, self.feed.log_feed) or log.ensure_feed(connection, self.feed.log_feed, 1)

    def _ranges(self, start: int, end: int | None = None) -> Iterator[FileRange]:
        """Yield the file ranges in ``[start, end)``; the first and the last are cut to it."""
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            found = file_ranges(connection, feed.id, start, LOOK_AHEAD_STRETCHES)
            while end is not None and len(found) % LOOK_AHEAD_STRETCHES == 0 and found and found[-1].end_offset < end:
                more = file_ranges(connection, feed.id, (found[-1].seq + 1) << PLACE_BITS, LOOK_AHEAD_STRETCHES)
                if not more:
                    break
                found += more
        for file_range in found:
            last = file_range.end if end is None else min(file_range.end, end - (file_range.seq << PLACE_BITS))
            if file_range.start < last:
                yield file_range.cut(file_range.start, last)

    def _split_ranges(self, whole: FileRange) -> Iterator[FileRange]:
        """Cut a range into what single tasks read."""
        path, step = self._path(whole.name), self.grain.split_bytes
        if self._refusal(whole) is not None:
            yield whole
            return
        if self._is_parquet:
            yield from (whole.cut(first, last) for first, last in parquet_files.parts(path, whole.start, whole.end, step))
            return
        begin = self._begin(whole)
        if begin == whole.end:
            yield whole
        for first, last in cut(path, begin, whole.end, step, is_csv=self._is_csv, bound=self.grain.record_bytes):
            yield whole.cut(whole.start if first == begin else first, last)

    def _chunk_ranges(self, start: int, end: int | None = None) -> Iterator[FileRange]:
        """Cut ``[start, end)`` where chunks end, independent of ``start``."""
        for whole in self._ranges(start, end):
            if self._refusal(whole) is not None:
                yield whole
                continue
            if self._is_parquet:
                parquet_files.open_parquet(self._path(whole.name))
                stops = [*range((whole.start // PARQUET_ROWS + 1) * PARQUET_ROWS, whole.end, PARQUET_ROWS), whole.end]
                yield from map(whole.cut, [whole.start, *stops[:-1]], stops)
                continue
            first, begin, step = whole.start, self._begin(whole), self.grain.chunk_bytes
            while first < whole.end:
                last = self._chunk_end(whole, max(first, begin), (first // step + 1) * step)
                yield whole.cut(first, last)
                first = last

    def _chunk_end(self, file_range: FileRange, start: int, near: int) -> int:
        """Return the end of the first record that reaches ``near``, or the range's end."""
        path, step = self._path(file_range.name), max(1, near - start)
        parts = cut(path, start, file_range.end, step, is_csv=self._is_csv, bound=self.grain.record_bytes)
        return next((last for _, last in parts), file_range.end)

    def _begin(self, file_range: FileRange) -> int:
        """Return where the first record begins: after a CSV file's header."""
        if not self._is_csv or file_range.start > 0:
            return file_range.start
        return min(self._header(file_range.name, file_range.end)[1], file_range.end)

    def _chunk(self, chunk: FileRange, *, is_dated: bool) -> Chunk:
        units = chunk.end - chunk.start
        rows = units if self._is_parquet else self._estimated_rows(chunk)
        greatest = self._max_ts(chunk) if is_dated else None
        return Chunk(chunk.end_offset, rows, units * (PARQUET_ROW_BYTES if self._is_parquet else 1), greatest)

    def _max_ts(self, chunk: FileRange) -> int | None:
        """Return the greatest event time of a chunk, None if no relation has one. For chunks with an earlier read part see ``LogReader``."""
        end = chunk.end_offset
        if end not in self._greatest:
            if len(self._greatest) >= KEPT_DATES:
                self._greatest.clear()
            greatest = self._dated(chunk).max_ts
            # If relations have event times and no record here has a good one, the chunk waits for none.
            self._greatest[end] = NO_TS if greatest is None and dating_relations(self.relations) else greatest
        return self._greatest[end]

    def _dated(self, chunk: FileRange) -> Dated:
        """Read the event times of a chunk."""
        if not dating_relations(self.relations):
            return Dated.joined([])
        return Dated.joined([Dated(*piece.times()) for piece in self._pieces(chunk, ())])

    def _estimated_rows(self, chunk: FileRange) -> int:
        """Estimate the number of records in a chunk of a text file."""
        if self._refusal(chunk) is not None:
            return 1
        begin = self._begin(chunk)
        if begin == chunk.end:
            return 0
        head = sample(self._path(chunk.name), begin, chunk.end, is_csv=self._is_csv)
        count = len(bounds_of(head, is_csv=self._is_csv)[0]) if head else 0
        return max(1, round((chunk.end - begin) * count / max(1, len(head))))

    def _header(self, name: str, end: int) -> tuple[Header, int]:
        """Return the column names of a CSV file, and the byte after them."""
        if name not in self._headers:
            self._headers[name] = read_header(self._path(name), end)
        return self._headers[name]

    def _pieces(self, part: FileRange, relations: Sequence[RelationSchema]) -> Iterator[Piece]:
        """Yield what is in a range; ``relations`` are those whose columns of Parquet may be needed, beside the ones that date."""
        path, offset = self._path(part.name), part.seq << PLACE_BITS
        if (refusal := self._refusal(part)) is not None:
            if self._is_parquet or part.start == 0:
                yield refusal.piece(path, part.start_offset)
            return
        if self._is_parquet:
            dated_by = dating_relations(self.relations)
            yield from parquet_files.pieces(path, (part.start, part.end), offset, relations, dated_by)
            return
        header, bound = self._header(part.name, part.end)[0] if self._is_csv else None, self.grain.record_bytes
        for run in runs(path, self._begin(part), part.end, is_csv=self._is_csv, bound=bound):
            if run.is_too_long:
                yield only_rejects(refuse_too_long(path, run, offset + run.start, bound))
            else:
                yield self._text_piece(path, run, header, offset)

    def _text_piece(self, path: Path, run: Run, header: Header | None, offset: int) -> Piece:
        data, base = read_range(path, run.start, run.end), offset + run.start
        bounds = bounds_of(data, is_csv=self._is_csv, bound=self.grain.record_bytes)
        return Piece(
            len(bounds[0]),
            lambda relation, member: parse_text(data, header, relation, member, base, bounds),
            lambda: date_text(data, header, base, self.relations, time.time_ns() // 1_000_000, bounds),
        )
