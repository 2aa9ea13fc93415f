"""Which files a directory holds and in which order their records come: the registry behind every files feed.

A *stretch* is a part of a file: the whole of it when it appeared, later what it grew by. Stretches are numbered in the order of
their discovery, so a file that sorts before others but comes later is never missed, and an offset, once given, keeps its meaning:
``offset = (seq << 40) + place``, place being a byte (ndjson, csv) or a row (parquet). Queries that read the same feed share the
registry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.rows import tuple_row

from engine.connectors.postgres import Connection
from engine.errors import DataInvalid, SourceUnavailable
from engine.plan.model import Feed

PLACE_BITS = 40
"""A file may have 2^40 bytes (1 TiB); 2^23 stretches fit beside that into 63 bits."""

PLACE_MASK = (1 << PLACE_BITS) - 1
MAX_STRETCHES = 1 << (63 - PLACE_BITS)

IGNORED_PREFIXES = (".", "_")
IGNORED_SUFFIX = ".tmp"

_KNOWN_SQL = 'SELECT DISTINCT ON (name) name, seq, "end", size_bytes FROM log.file WHERE feed_id = %s ORDER BY name, seq DESC'
_GROW_SQL = 'UPDATE log.file SET "end" = %s, size_bytes = %s WHERE feed_id = %s AND seq = %s'
_ADD_SQL = 'INSERT INTO log.file (feed_id, seq, name, start, "end", size_bytes) VALUES (%s, %s, %s, %s, %s, %s)'
_FROM_SQL = 'SELECT seq, name, start, "end" FROM log.file WHERE feed_id = %s AND seq >= %s ORDER BY seq LIMIT %s'
_LAST_SQL = 'SELECT seq, "end" FROM log.file WHERE feed_id = %s ORDER BY seq DESC LIMIT 1'

_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row of ``log.file``: ``[start, end)`` of one file."""

    seq: int
    name: str
    start: int
    end: int

    @property
    def end_offset(self) -> int:
        """The feed's position behind this stretch."""
        return (self.seq << PLACE_BITS) + self.end


def list_files(directory: Path) -> dict[str, int]:
    """Return sizes by name, sorted by name, of the files that count: not hidden, not ``_…``, not ``….tmp``.

    Raises:
        SourceUnavailable: the directory cannot be read.
    """
    try:
        with os.scandir(directory) as entries:
            found = {entry.name: entry.stat().st_size for entry in entries if _counts(entry.name) and entry.is_file()}
    except OSError as error:
        raise SourceUnavailable(f"directory {directory} cannot be read: {error.strerror}") from error
    return dict(sorted(found.items()))


def _counts(name: str) -> bool:
    return not name.startswith(IGNORED_PREFIXES) and not name.endswith(IGNORED_SUFFIX)


def register(connection: Connection, feed_id: int, feed: Feed, sizes: dict[str, int]) -> None:
    """Record new files and growth. One process at a time per feed; the others find it done.

    Raises:
        DataInvalid: a file that was read is shorter than it was, or a Parquet file changed.
        SourceUnavailable: a new file cannot be opened.
    """
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT 1 FROM log.feed WHERE id = %s FOR UPDATE", (feed_id,))
        cursor.execute(_KNOWN_SQL, (feed_id,))
        known = {name: (seq, end, size) for name, seq, end, size in cursor}
        last_seq = max((seq for seq, _, _ in known.values()), default=-1)
        for name, size in sizes.items():
            seq, end, old_size = known.get(name, (None, 0, 0))
            if size == old_size:
                continue
            new_end = _new_end(feed, name, size, None if seq is None else (end, old_size))
            if new_end <= end and seq is not None:
                continue
            if seq is not None and seq == last_seq:
                cursor.execute(_GROW_SQL, (new_end, size, feed_id, seq))
                continue
            last_seq += 1
            if last_seq >= MAX_STRETCHES:
                raise DataInvalid(f"{feed.path}: more than {MAX_STRETCHES} stretches of files; start a new directory")
            cursor.execute(_ADD_SQL, (feed_id, last_seq, name, end, new_end, size))


def _new_end(feed: Feed, name: str, size: int, known: tuple[int, int] | None) -> int:
    path = Path(feed.path or "") / name
    if known is not None and (size < known[1] or feed.format == "parquet"):
        change = "shrank" if size < known[1] else "was replaced"
        raise DataInvalid(f"{path}: the file {change} after it was read; add new data as new files")
    if feed.format == "parquet":
        return _readable(path, lambda: int(pq.read_metadata(path).num_rows))
    # A file appears whole. What grows is being written to: its last line counts once it is ended.
    return size if known is None else _readable(path, lambda: _last_line_end(path, known[0], size))


def _readable(path: Path, read: Callable[[], int]) -> int:
    try:
        return read()
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error}") from error


def _last_line_end(path: Path, start: int, size: int) -> int:
    with path.open("rb") as file:
        while size > start:
            begin = max(start, size - _TAIL_BYTES)
            file.seek(begin)
            newline = file.read(size - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            size = begin
    return start


def stretches(connection: Connection, feed_id: int, start: int, limit: int) -> list[Stretch]:
    """Return up to ``limit`` stretches from the one that holds offset ``start`` on, the first cut to begin there."""
    seq, place = start >> PLACE_BITS, start & PLACE_MASK
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_FROM_SQL, (feed_id, seq, limit)).fetchall()
    return [Stretch(n, name, max(begin, place) if n == seq else begin, end) for n, name, begin, end in rows]


def end_position(connection: Connection, feed_id: int) -> int:
    """Return the position behind the last stretch, 0 without any."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_LAST_SQL, (feed_id,)).fetchone()
    return 0 if row is None else (int(row[0]) << PLACE_BITS) + int(row[1])
