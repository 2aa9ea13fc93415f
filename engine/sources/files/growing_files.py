"""Text files that a writer still extends: how far they can be read.

A file counts up to the end of its last whole record (``engine.formats.delimited.record_ends``): an ndjson line that has ended, or a CSV
record that ends outside of quotes. A CSV record with open quotes waits for more, up to ``MAX_RECORD_BYTES``. If a file
has not changed for ``engine.sources.files.registry.SETTLED_S``, its last record counts without an end. A line that becomes longer than
the bound counts at once, so that users see its reject. The rest of the line, up to its line break, belongs to no range.

Examined bytes are remembered, so that a record written in many small steps is read once. This memory can be dropped at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.formats.delimited.record_ends import BLOCK_BYTES, CsvScan, Read, certain_ends, line_end
from engine.records.canonical import MAX_RECORD_BYTES

LOOK_BYTES = 64 << 20
"""Bytes examined under one lock of the registry: a quarter second for a CSV file, because quotes are counted from the known end on."""


class ReadableRange(NamedTuple):
    """The readable part of a file's growth.

    Attributes:
        start: its first byte: the known end, or after the line break of a line that was too long.
        end: ``start`` if no record is whole.
        seen: how far the file was examined.
    """

    start: int
    end: int
    seen: int


@dataclass(slots=True)
class GrowingFiles:
    """Examines the files of one feed.

    Attributes:
        is_csv: else they are ndjson.
        bound: see ``MAX_RECORD_BYTES``.
        look: see ``LOOK_BYTES``.
    """

    is_csv: bool
    bound: int = MAX_RECORD_BYTES
    look: int = LOOK_BYTES
    _tails: dict[str, _Tail] = field(default_factory=dict)

    def first(self, name: str, read: Read, size: int) -> ReadableRange:
        """Examine a new file. A last ndjson line that is too long counts at once."""
        if self.is_csv:
            return self.growth(name, read, 0, size)
        least = max(0, size - self.bound - 1)
        last = size
        while last > least:
            begin = max(least, last - BLOCK_BYTES)
            newline = read(begin, last).rfind(b"\n")
            if newline >= 0:
                return ReadableRange(0, begin + newline + 1, size)
            last = begin
        return ReadableRange(0, size if least else 0, size)

    def growth(self, name: str, read: Read, known: int, size: int) -> ReadableRange:
        """Examine the bytes between a file's known end and its size, or the next part of them."""
        tail = self._tails.pop(name, None)
        if tail is None or tail.known != known:
            is_ended = known <= self.bound or read(known - 1, known) == b"\n"
            is_cut = not is_ended and b"\n" not in read(known - self.bound - 1, known)
            tail = _Tail(known, known, known, is_cut, CsvScan(known, self.bound) if self.is_csv else None)
        seen = min(size, tail.at + self.look)
        found = tail.growth(read, seen, self.bound)
        if tail.at > tail.known:
            self._tails[name] = tail
        return found

    def rest(self, name: str, read: Read, known: int, size: int) -> ReadableRange:
        """Return all bytes between a file's known end and its size, with a last record that has no end.

        Only the rest of a line that was too long is left out.
        """
        found = self.growth(name, read, known, size)
        tail = self._tails.get(name)
        if found.seen < size or (tail is not None and tail.is_cut):
            return found
        self._tails.pop(name, None)
        return ReadableRange(found.start, size, size)


@dataclass(slots=True)
class _Tail:
    """The bytes after a file's known end.

    Attributes:
        known: the end once the last growth is registered.
        start: where the first record after it begins.
        at: examined up to here.
        is_cut: ``at`` is inside a line of which nothing more counts.
        scan: of CSV.
    """

    known: int
    start: int
    at: int
    is_cut: bool
    scan: CsvScan | None

    def growth(self, read: Read, size: int, bound: int) -> ReadableRange:
        if self.is_cut:
            behind = line_end(read, self.at, size)
            self.at = size if behind is None else behind
            if behind is None:
                return ReadableRange(self.start, self.start, size)
            self.is_cut, self.start = False, behind
            self.scan = None if self.scan is None else CsvScan(behind, bound)
        start, end = self.start, self._line_end(read, size) if self.scan is None else self._record_end(self.scan, read, size)
        if self.at - end > bound:
            end, self.is_cut = self.at, True
        if end > start:
            self.known = self.start = end
        return ReadableRange(start, end, size)

    def _record_end(self, scan: CsvScan, read: Read, size: int) -> int:
        for _ in certain_ends(scan, read, size):
            pass
        self.at = scan.at
        return scan.start

    def _line_end(self, read: Read, size: int) -> int:
        last = size
        at, self.at = self.at, size
        while last > at:
            begin = max(at, last - BLOCK_BYTES)
            newline = read(begin, last).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            last = begin
        return self.start
