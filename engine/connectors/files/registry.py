"""Which files a directory holds and in which order their records come: the registry behind every files feed.

A *stretch* is a part of a file: the whole of it when it appeared, later what it grew by. Stretches are numbered in the order of
their discovery, so a file that sorts before others but comes later is never missed, and an offset, once given, keeps its meaning:
``offset = (seq << 40) + place``, place being a byte (ndjson, csv) or a row (parquet). Queries that read the same feed share the
registry. How far a file that grows can be read is said in ``engine.connectors.files.growing_files``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.rows import tuple_row

from engine.connectors.files.definition import FilesPlace
from engine.connectors.files.growing_files import GrowingFiles, Growth
from engine.connectors.files.text_files import FileBytes
from engine.connectors.postgres import Connection
from engine.errors import FileChanged, FileUnfit, SourceUnavailable
from engine.plan.model import Feed

PLACE_BITS = 40
"""A file may have 2^40 bytes (1 TiB); 2^23 stretches fit beside that into 63 bits."""

PLACE_MASK = (1 << PLACE_BITS) - 1
MAX_STRETCHES = 1 << (63 - PLACE_BITS)

IGNORED_PREFIXES = (".", "_")
IGNORED_SUFFIX = ".tmp"

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


def place_of(feed: Feed) -> FilesPlace:
    """Return the directory of a files feed."""
    assert isinstance(feed.place, FilesPlace)  # noqa: S101 - the connector's own feeds
    return feed.place


def _counts(name: str) -> bool:
    return not name.startswith(IGNORED_PREFIXES) and not name.endswith(IGNORED_SUFFIX)


def register(connection: Connection, feed_id: int, place: FilesPlace, sizes: dict[str, int], growing: GrowingFiles) -> bool:
    """Record new files and growth. One process at a time per feed; the others find it done.

    Args:
        connection: to the registry's database.
        feed_id: of the log feed.
        place: which directory, and in which format.
        sizes: of the files that are new or have another size than before.
        growing: looks at what grew; kept between calls.

    Returns:
        Whether all was looked at; False: call again.

    Raises:
        FileChanged: a file that was read is shorter than it was, or a Parquet file changed.
        FileUnfit: a file is too large to be numbered.
        SourceUnavailable: a file cannot be read.
    """
    is_whole = True
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT 1 FROM log.feed WHERE id = %s FOR UPDATE", (feed_id,))
        known = {name: _Known(*found) for name, *found in cursor.execute(_KNOWN_SQL, (feed_id, list(sizes)))}
        (last_seq,) = cursor.execute(_LAST_SEQ_SQL, (feed_id,)).fetchone() or (-1,)
        for name, size in sizes.items():
            old = known.get(name)
            if size == (0 if old is None else old.size):
                continue
            found = _new(place, name, size) if old is None else _grown(place, name, size, old, growing)
            is_whole &= old is None or found.seen == size
            if found.end > PLACE_MASK:
                what = "rows" if place.format == "parquet" else "bytes"
                raise FileUnfit(
                    f"{place.path}/{name}: {found.end:,} {what}, and a file may have {PLACE_MASK:,}; cut it into several"
                )
            if found.end <= found.start and old is not None:
                continue
            if old is not None and old.seq == last_seq and found.start == old.end:
                cursor.execute(_GROW_SQL, (found.end, found.seen, feed_id, old.seq))
                continue
            last_seq += 1
            if last_seq >= MAX_STRETCHES:
                raise FileUnfit(f"{place.path}: more than {MAX_STRETCHES} stretches of files; start a new directory")
            cursor.execute(_ADD_SQL, (feed_id, last_seq, name, found.start, found.end, found.seen))
    return is_whole


class _Known(NamedTuple):
    """What the registry has of a file: its last stretch, and how far it was looked at."""

    seq: int
    end: int
    size: int


def _new(place: FilesPlace, name: str, size: int) -> Growth:
    """A file appears whole."""
    if place.format != "parquet":
        return Growth(0, size, size)
    path = Path(place.path) / name
    return Growth(0, _readable(path, lambda: int(pq.read_metadata(path).num_rows)), size)


def _grown(place: FilesPlace, name: str, size: int, old: _Known, growing: GrowingFiles) -> Growth:
    path = Path(place.path) / name
    if size < old.size or place.format == "parquet":
        change = "shrank" if size < old.size else "was replaced"
        raise FileChanged(f"{path}: the file {change} after it was read; add new data as new files")
    return growing.growth(name, FileBytes(path), old.end, size)


def _readable(path: Path, read: Callable[[], int]) -> int:
    try:
        return read()
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error}") from error


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
