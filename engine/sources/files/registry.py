"""The files of a directory and the order of their records: the registry behind every files feed.

A range is a part of a file: first the whole file, later its growth. Ranges are numbered in the order of
their discovery, so a file that sorts before others but comes later is never missed, and an offset keeps its meaning:
``offset = (seq << 40) + place``. The place is a byte (ndjson, csv) or a row (parquet). Queries that read the same feed share the
registry. ``engine.sources.files.growing_files`` decides how far a growing file can be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from psycopg.rows import tuple_row

from engine.definition.sources.files import FilesPlace
from engine.errors import FileChanged, FileUnfit, SourceUnavailable
from engine.plan.model import Feed
from engine.postgres.postgres import Connection
from engine.sources.files.growing_files import GrowingFiles, ReadableRange
from engine.sources.files.parquet_files import open_parquet
from engine.sources.files.text_files import FileBytes

PLACE_BITS = 40
"""A file may have 2^40 bytes (1 TiB); the numbers of 2^23 ranges fit beside that into 63 bits."""

PLACE_MASK = (1 << PLACE_BITS) - 1
MAX_STRETCHES = 1 << (63 - PLACE_BITS)

REFUSED_AT: Final = PLACE_MASK - 1
"""The one place of a Parquet file that is refused as a whole: no file has so many rows."""

IGNORED_PREFIXES = (".", "_")
IGNORED_SUFFIX = ".tmp"

COMPRESSED: Final = (".gz", ".bgz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".zip")
"""Endings of compressed files. They are not read, because places of records are bytes of the file."""

SETTLED_S: Final = 10.0
"""A file that has not changed for this time counts as complete: its last record counts without an end, and a Parquet file that
cannot be opened is refused. Writers flush several times in that time."""

_KNOWN_SQL = (
    'SELECT DISTINCT ON (name) name, seq, "end", size_bytes FROM log.file WHERE feed_id = %s AND name = ANY(%s) '
    "ORDER BY name, seq DESC"
)
_LAST_SEQ_SQL = "SELECT coalesce(max(seq), -1) FROM log.file WHERE feed_id = %s"
_GROW_SQL = 'UPDATE log.file SET "end" = %s, size_bytes = %s WHERE feed_id = %s AND seq = %s'
_ADD_SQL = 'INSERT INTO log.file (feed_id, seq, name, start, "end", size_bytes) VALUES (%s, %s, %s, %s, %s, %s)'
_FROM_SQL = 'SELECT seq, name, start, "end" FROM log.file WHERE feed_id = %s AND seq >= %s ORDER BY seq LIMIT %s'
ENDS_SQL = f"""jsonb_build_object('0', coalesce((
    SELECT (l.seq << {PLACE_BITS}) + l."end" FROM log.file l WHERE l.feed_id = f.id ORDER BY l.seq DESC LIMIT 1
), 0))"""  # noqa: S608 - made of constants
"""See ``Connector.ends_sql``."""
_LAST_SQL = 'SELECT seq, "end" FROM log.file WHERE feed_id = %s ORDER BY seq DESC LIMIT 1'


@dataclass(frozen=True, slots=True)
class FileRange:
    """A row of ``log.file``, or a part of one: ``[start, end)`` of one file."""

    seq: int
    name: str
    start: int
    end: int

    @property
    def start_offset(self) -> int:
        """The feed's position before this range."""
        return (self.seq << PLACE_BITS) + self.start

    @property
    def end_offset(self) -> int:
        """The feed's position after this range."""
        return (self.seq << PLACE_BITS) + self.end

    def cut(self, start: int, end: int) -> FileRange:
        return FileRange(self.seq, self.name, start, end)


class ListedFile(NamedTuple):
    """A file as its directory lists it: its size in bytes, and its time of change (seconds since 1970, by the file system's clock)."""

    size: int
    changed_at: float


class ChangedFile(NamedTuple):
    """A file to examine.

    Attributes:
        size: in bytes.
        is_settled: it has not changed for ``SETTLED_S``.
    """

    size: int
    is_settled: bool


def is_compressed(name: str) -> bool:
    """Whether a text file is compressed, by its name."""
    return name.lower().endswith(COMPRESSED)


def list_files(directory: Path) -> dict[str, ListedFile]:
    """Return a directory's files by name, sorted, without hidden ones, ``_…`` and ``….tmp``.

    Raises:
        SourceUnavailable: the directory cannot be read.
    """
    try:
        with os.scandir(directory) as entries:
            found = {entry.name: _listed(entry) for entry in entries if _counts(entry.name) and entry.is_file()}
    except OSError as error:
        raise SourceUnavailable(f"directory {directory} cannot be read: {error.strerror}") from error
    return dict(sorted(found.items()))


def _listed(entry: os.DirEntry[str]) -> ListedFile:
    found = entry.stat()
    return ListedFile(found.st_size, found.st_mtime)


def place_of(feed: Feed) -> FilesPlace:
    assert isinstance(feed.place, FilesPlace)  # noqa: S101 - the connector's own feeds
    return feed.place


def _counts(name: str) -> bool:
    return not name.startswith(IGNORED_PREFIXES) and not name.endswith(IGNORED_SUFFIX)


class Registered(NamedTuple):
    """The result of registering files.

    Attributes:
        is_whole: everything was examined; False: call again.
        waiting: names of files that their writer may still complete. The next call gets them again.
    """

    is_whole: bool
    waiting: frozenset[str]


def register(
    connection: Connection, feed_id: int, place: FilesPlace, files: Mapping[str, ChangedFile], growing: GrowingFiles
) -> Registered:
    """Record new files and growth. One process at a time per feed; the others find the work done.

    Args:
        connection: to the registry's database.
        feed_id: of the log feed.
        place: which directory, and in which format.
        files: files that are new, have another size than before, or wait.
        growing: examines growth; kept between calls.

    Raises:
        FileChanged: a file that was read is shorter than it was, or a Parquet file changed.
        FileUnfit: a file is too large for the numbers of places.
        SourceUnavailable: a text file cannot be read.
    """
    is_whole, waiting = True, set[str]()
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT 1 FROM log.feed WHERE id = %s FOR UPDATE", (feed_id,))
        known = {name: _Known(*found) for name, *found in cursor.execute(_KNOWN_SQL, (feed_id, list(files)))}
        (last_seq,) = cursor.execute(_LAST_SEQ_SQL, (feed_id,)).fetchone() or (-1,)
        for name, changed in files.items():
            old = known.get(name)
            found = _look(place, name, changed, old, growing)
            if found is None:
                continue
            is_whole &= found.seen == changed.size
            if _is_incomplete(place, found, changed.size) and not changed.is_settled:
                waiting.add(name)
            if found.end > PLACE_MASK or (found.start < REFUSED_AT <= found.end):
                what = "rows" if place.format == "parquet" else "bytes"
                raise FileUnfit(
                    f"{place.path}/{name}: {found.end:,} {what}, and a file may have {PLACE_MASK:,}; cut it into several"
                )
            if found.end <= found.start and (old is not None or place.format != "parquet" or name in waiting):
                continue
            if old is not None and old.seq == last_seq and found.start == old.end:
                cursor.execute(_GROW_SQL, (found.end, found.seen, feed_id, old.seq))
                continue
            last_seq += 1
            if last_seq >= MAX_STRETCHES:
                raise FileUnfit(f"{place.path}: more than {MAX_STRETCHES} stretches of files; start a new directory")
            cursor.execute(_ADD_SQL, (feed_id, last_seq, name, found.start, found.end, found.seen))
    return Registered(is_whole, frozenset(waiting))


class _Known(NamedTuple):
    """The registry's data of a file: its last range, and how far it was examined."""

    seq: int
    end: int
    size: int


def _is_incomplete(place: FilesPlace, found: ReadableRange, size: int) -> bool:
    """Whether a writer may still complete the file: its last record, or a Parquet file without its end."""
    return found.end == 0 if place.format == "parquet" else found.end < size


def _look(place: FilesPlace, name: str, changed: ChangedFile, old: _Known | None, growing: GrowingFiles) -> ReadableRange | None:
    """Return the readable part of a file beyond the known one; None: there is nothing to examine."""
    size, is_settled = changed
    if place.format == "parquet":
        return _look_at_parquet(place, name, size, old, is_settled=is_settled)
    if is_compressed(name):
        return ReadableRange(0, 1, size) if old is None and size else None
    known, seen = (0, 0) if old is None else (old.end, old.size)
    path = Path(place.path) / name
    if size < seen:
        raise FileChanged(f"{path}: the file shrank after it was read; add new data as new files")
    if known == size:
        return None
    if old is None:
        return ReadableRange(0, size, size) if is_settled else growing.first(name, FileBytes(path), size)
    look = growing.rest if is_settled else growing.growth
    return look(name, FileBytes(path), known, size)


def _look_at_parquet(place: FilesPlace, name: str, size: int, old: _Known | None, *, is_settled: bool) -> ReadableRange | None:
    """Return the rows of a new file. A settled file that cannot be opened gets one place for its reject, an unsettled one none.

    A refused file counts as new once it can be opened.
    """
    path = Path(place.path) / name
    is_refused = old is not None and old.end == PLACE_MASK
    if old is not None and not is_refused:
        if size == old.size:
            return None
        change = "shrank" if size < old.size else "was replaced"
        raise FileChanged(f"{path}: the file {change} after it was read; add new data as new files")
    if size == 0:
        return None
    try:
        with open_parquet(path) as file:
            return ReadableRange(0, int(file.metadata.num_rows), size)
    except SourceUnavailable:  # NotParquet among them
        if is_refused:
            return None
        return ReadableRange(REFUSED_AT, PLACE_MASK, size) if is_settled else ReadableRange(0, 0, size)


def file_ranges(connection: Connection, feed_id: int, start: int, limit: int) -> list[FileRange]:
    """Return up to ``limit`` ranges from the one that holds offset ``start`` on, the first cut to begin there."""
    seq, place = start >> PLACE_BITS, start & PLACE_MASK
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_FROM_SQL, (feed_id, seq, limit)).fetchall()
    return [FileRange(n, name, max(begin, place) if n == seq else begin, end) for n, name, begin, end in rows]


def end_position(connection: Connection, feed_id: int) -> int:
    """Return the position after the last range, 0 without any."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_LAST_SQL, (feed_id,)).fetchone()
    return 0 if row is None else (int(row[0]) << PLACE_BITS) + int(row[1])
