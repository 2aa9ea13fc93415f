"""Reading a directory of ndjson, csv or parquet files for a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from engine.connectors import log, parquet_files
from engine.connectors.admission import Chunk
from engine.connectors.canonical import TEXT_FILE, TYPED_FILE
from engine.connectors.dating import Part, look
from engine.connectors.feeds import Limit, ReadRequest, Split, Start
from engine.connectors.file_registry import PLACE_BITS, Stretch, end_position, list_files, register, stretches
from engine.connectors.growing_files import GrowingFiles
from engine.connectors.packets import Packet
from engine.connectors.postgres import Connection, shared_connection
from engine.connectors.record_ends import MAX_RECORD_BYTES
from engine.connectors.shaping import Piece, shape
from engine.connectors.text_files import Header, bounds_of, cut, parse_text, read_header, read_range, refuse_too_long, runs
from engine.errors import SourceUnavailable
from engine.plan.model import Feed, RelationSchema

CHUNK_BYTES = 1 << 20
"""The grain in which admission lets event times advance together."""

SPLIT_BYTES = 8 << 20
"""What one task reads at once, about 100,000 records."""

LOOKED_AT = (4, 16, 64)
"""Chunks that are looked at together: 64 cost little more than one, and a batch that wants few need not wait for many."""

LOOK_AHEAD_STRETCHES = 1_000
PARTITION = 0


@dataclass(frozen=True, slots=True)
class Grain:
    """How finely files are cut; results do not depend on it, but for what is too long.

    Attributes:
        chunk_bytes: in what steps admission lets event times advance together.
        split_bytes: what one task reads at once.
        record_bytes: what is longer is no record.
    """

    chunk_bytes: int = CHUNK_BYTES
    split_bytes: int = SPLIT_BYTES
    record_bytes: int = MAX_RECORD_BYTES


_Placed = tuple[int, Part]
"""Where the numbers of a file begin, and a chunk of it."""


@dataclass(slots=True)
class FileReader:
    """A ``FeedReader`` over a directory; it has one partition.

    Attributes:
        relations: what dates the chunks.
        grain: how files are cut.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    grain: Grain = Grain()
    _listed: dict[str, int] = field(default_factory=dict)
    _headers: dict[str, tuple[Header, int]] = field(default_factory=dict)
    _growing: GrowingFiles = field(init=False)

    def __post_init__(self) -> None:
        self._growing = GrowingFiles(self._is_csv, self.grain.record_bytes)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time it is the beginning: records before it are read and left out."""
        return self.ends() if start == "latest" else {PARTITION: 0}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. Lists the directory and registers what is new."""
        sizes = list_files(self._directory)
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            changed = {name: size for name, size in sizes.items() if size != self._listed.get(name)}
            while changed and not register(connection, feed.id, self.feed, changed, self._growing):
                pass
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
            for first, last in self._parts(stretch):
                splits.append(Split(PARTITION, base + first, base + last, stretch.name, first, last))
        return splits

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``."""
        if self.feed.format == "parquet":
            relations = [one.relation for one in request.inputs]
            first = split.start - split.file_start
            pieces = parquet_files.pieces(
                self._directory / (split.file or ""), split.file_start, split.file_end, first, relations
            )
            yield from shape(pieces, split, self.feed, request, TYPED_FILE)
            return
        yield from shape(self._text_pieces(split), split, self.feed, request, TEXT_FILE if self._is_csv else TYPED_FILE)

    @property
    def _is_csv(self) -> bool:
        return self.feed.format == "csv"

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

    def _parts(self, stretch: Stretch) -> Iterator[tuple[int, int]]:
        if self.feed.format != "parquet":
            return self._text_parts(stretch, self.grain.split_bytes)
        path = self._directory / stretch.name
        return ((rows.begin, rows.end) for rows in parquet_files.parts(path, stretch.start, stretch.end, self.grain.split_bytes))

    def _text_parts(self, stretch: Stretch, step: int) -> Iterator[tuple[int, int]]:
        """Cut a stretch; what stands before the first record (a CSV file's header) belongs to the first part."""
        path, start = self._directory / stretch.name, stretch.start
        begin = min(self._header(stretch.name, stretch.end)[1], stretch.end) if self._is_csv and start == 0 else start
        if begin == stretch.end:
            yield start, stretch.end
        for first, last in cut(path, begin, stretch.end, step, is_csv=self._is_csv, bound=self.grain.record_bytes):
            yield start if first == begin else first, last

    def _text_chunks(self, start: int) -> Iterator[Chunk]:
        parts = (
            (stretch.seq << PLACE_BITS, Part(self._directory / stretch.name, first, last, self._names(stretch.name, last)))
            for stretch in self._stretches(start)
            for first, last in self._text_parts(stretch, self.grain.chunk_bytes)
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

    def _header(self, name: str, end: int) -> tuple[Header, int]:
        """Return the column names of a CSV file, and the byte behind them."""
        if name not in self._headers:
            self._headers[name] = read_header(self._directory / name, end)
        return self._headers[name]

    def _names(self, name: str, end: int) -> Header | None:
        return self._header(name, end)[0] if self._is_csv else None

    def _text_pieces(self, split: Split) -> Iterator[Piece]:
        path, bound = self._directory / (split.file or ""), self.grain.record_bytes
        header, behind = self._header(split.file or "", split.file_end) if self._is_csv else (None, 0)
        begin = behind if split.file_start == 0 else split.file_start
        first = split.start - split.file_start
        for run in runs(path, begin, split.file_end, is_csv=self._is_csv, bound=bound):
            if run.is_too_long:
                yield _too_long(refuse_too_long(path, run, first + run.start, bound))
            else:
                yield self._text_piece(read_range(path, run.start, run.end), header, first + run.start)

    def _text_piece(self, data: bytes, header: Header | None, base: int) -> Piece:
        bounds = bounds_of(data, is_csv=header is not None, bound=self.grain.record_bytes)
        return Piece(len(bounds[0]), lambda relation, member: parse_text(data, header, relation, member, base, bounds))

    def _parquet_chunks(self, start: int) -> Iterator[Chunk]:
        for stretch in self._stretches(start):
            path, base = self._directory / stretch.name, stretch.seq << PLACE_BITS
            for rows in parquet_files.parts(path, stretch.start, stretch.end, self.grain.chunk_bytes, self.relations):
                yield Chunk(base + rows.end, rows.end - rows.begin, rows.size_bytes, rows.start_ts, rows.max_ts)


def _too_long(rejects: pl.DataFrame) -> Piece:
    return Piece(1, lambda _relation, _member: (pl.DataFrame(), rejects))


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
