"""Where the records of text files (ndjson, csv) end.

A line break is a line feed, with or without a carriage return before it. An ndjson record ends at its line break. A CSV record ends
by RFC 4180: at the first line break outside of quotes, the last one at the end of the file. This fails if

- a quote is misplaced (inside a field, or before something else than a comma or the record's end), or
- there is no such line break within ``MAX_RECORD_BYTES``, or a quote is still open at the end of the file.

Then the record ends at its first line break and is refused: a stray quote costs only its own line, and
reading continues with the next line. A record that is then still longer than ``MAX_RECORD_BYTES`` is one long line. It is refused whole,
as one ``record_too_long``, and is never held in memory.

Only the bytes from a record's start decide this, not how a file is cut into blocks, chunks or splits. Every cut is at the end of a
record, and a record that is whole before a cut reads the same without the bytes after it. Each byte is examined a bounded number of
times: when a record ends earlier than its quotes promised, line breaks that were inside quotes count as outside from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from engine.records.canonical import MAX_RECORD_BYTES

BLOCK_BYTES = 256 << 10
"""Bytes examined at once: the arrays made of them stay in a processor's cache."""

QUOTE, COMMA, NEWLINE, RETURN = b'",\n\r'
BEFORE_OPENING, BEHIND_CLOSING = (
    np.isin(np.arange(256), near) for near in ((COMMA, NEWLINE, QUOTE), (COMMA, NEWLINE, RETURN, QUOTE))
)
"""By byte: whether it may be next to a field's own quote. Two quotes stand for one."""

Ends = npt.NDArray[np.int64]
Read = Callable[[int, int], bytes]
"""Returns the bytes ``[start, end)`` of a file."""


class Holed:
    """Bytes of which some are known to be U+0000 without reading them, as in a sparse file: no record ends there."""

    def __call__(self, start: int, end: int) -> bytes:
        raise NotImplementedError

    def behind_hole(self, at: int, end: int) -> int:
        """Return the first place from ``at`` on that is not in a hole, at most ``end``."""
        raise NotImplementedError


def blocks(read: Read, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield ``[start, end)`` block by block, each with its place; without holes."""
    while (start := behind_hole(read, start, end)) < end:
        stop = min(start + BLOCK_BYTES, end)
        yield start, read(start, stop)
        start = stop


def behind_hole(read: Read, at: int, end: int) -> int:
    """Return the first place from ``at`` on outside of holes."""
    return read.behind_hole(at, end) if isinstance(read, Holed) and at < end else at


def record_ends(read: Read, start: int, end: int, *, is_csv: bool, bound: int = MAX_RECORD_BYTES) -> Iterator[Ends]:
    """Yield where the records of ``[start, end)`` end (after their line breaks), in order; a record begins at ``start``.

    Empty lines count. The last record may lack its line break: it ends at ``end``.
    """
    if not is_csv:
        last = start
        for first, block in blocks(read, start, end):
            ends = line_ends(block) + first
            last = int(ends[-1]) if len(ends) else last
            yield ends
        if last < end:
            yield np.array([end])
        return
    scan = CsvScan(start, bound)
    while scan.start < end:
        yield scan.advance(read, end) if scan.at < end else scan.finish()


def certain_ends(scan: CsvScan, read: Read, end: int) -> Iterator[Ends]:
    """Yield the ends of CSV records that do not depend on bytes after ``end``; ``scan`` can continue when there are more bytes."""
    while scan.at < end:
        before = scan.at
        ends = scan.advance(read, end, is_growing=True)
        yield ends
        if scan.at == before and not len(ends):
            return


def line_ends(block: bytes) -> Ends:
    """Return the places after line breaks."""
    return np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == NEWLINE) + 1


def line_end(read: Read, start: int, end: int) -> int | None:
    """Return the place after the first line break from ``start`` on."""
    for first, block in blocks(read, start, end):
        newline = block.find(b"\n")
        if newline >= 0:
            return first + newline + 1
    return None


class CsvScan:
    """Searches the ends of CSV records, block by block.

    Attributes:
        start: where the open record begins.
        at: where to continue; it goes back if a record ends at an earlier line break.
        is_lost: the open record has no regular end; it ends at its first line break, which has not come yet.
    """

    def __init__(self, start: int, bound: int = MAX_RECORD_BYTES) -> None:
        self.start = self.at = start
        self.is_lost = False
        self._bound = bound
        self._line_end: int | None = None  # after the open record's first line break
        self._is_inside = False  # of quotes, at ``at``
        self._before = NEWLINE  # the byte before ``at``

    def advance(self, read: Read, end: int, *, is_growing: bool = False) -> Ends:
        """Examine one more block before ``end``; return the ends in it.

        Args:
            read: the file's bytes.
            end: bytes after it do not count.
            is_growing: bytes may be appended at ``end``: a quote just before it is decided by the next byte.
        """
        if self.is_lost:
            self.at = behind_hole(read, self.at, end)
            if self.at >= end:
                return np.zeros(0, dtype=np.int64)
        size = min(BLOCK_BYTES, self._bound)
        block = read(self.at, min(self.at + size + 1, end))
        behind = NEWLINE  # a quote may be the last byte of all
        if len(block) > size:
            block, behind = block[:-1], block[-1]
        elif is_growing and block.endswith(b'"'):
            block, behind = block[:-1], QUOTE
        return self._look(_Block(block, self._before, behind)) if block else np.zeros(0, dtype=np.int64)

    def finish(self) -> Ends:
        """End the open record because nothing follows: here, or at its first line break if a quote is still open."""
        end = (self._line_end if self._is_inside else None) or self.at
        self._begin(end)
        return np.array([end])

    def _begin(self, start: int) -> None:
        """Continue with a record that begins after a line break."""
        self.start = self.at = start
        self.is_lost, self._line_end, self._is_inside, self._before = False, None, False, NEWLINE

    def _look(self, block: _Block) -> Ends:
        base = self.at
        if self.is_lost:
            if not len(block.newlines):
                self.at += block.size
                return np.zeros(0, dtype=np.int64)
            self._begin(base + int(block.newlines[0]) + 1)
            return np.array([self.start])
        ends = block.outside(self._is_inside) + 1 + base
        first = int(ends[0]) if len(ends) else base + block.size + 1
        if first - self.start > self._bound or len(block.misplaced(self._is_inside)):
            return self._repair(block)
        if len(ends):
            self.start, self._line_end = int(ends[-1]), None
        self._go_on(block, self._is_inside)
        return ends

    def _go_on(self, block: _Block, is_inside: bool) -> None:
        """Move past a block; ``is_inside`` says whether its first quote closes a field."""
        if self._line_end is None:
            self._line_end = block.line_end(self.start - self.at, self.at)
        self.at += block.size
        self._before = block.last
        self._is_inside = bool((len(block.quotes) + is_inside) % 2)

    def _repair(self, block: _Block) -> Ends:
        """Find the ends in a block with a misplaced quote, or in which the open record becomes too long."""
        base = self.at
        outside, misplaced = block.outside(self._is_inside), block.misplaced(self._is_inside)
        newline = int(outside[0]) if len(outside) else block.size
        fault = int(misplaced[0]) if len(misplaced) else block.size
        if newline < fault and base + newline + 1 - self.start <= self._bound:
            end: int | None = base + newline + 1
        else:
            end = self._line_end or block.line_end(self.start - base, base)
        if end is None:
            self._lose(block)
            return np.zeros(0, dtype=np.int64)
        self._begin(end)
        if end <= base:
            return np.array([end])
        found = block.chain(end - base - 1)
        self.start, self.at = base + int(block.newlines[found[-1]]) + 1, base
        is_inside = block.is_inside_behind(found[-1])
        if (block.misplaced(is_inside) >= self.start - base).any():
            self._lose(block)
        else:
            self._go_on(block, is_inside)
        return block.newlines[found] + (base + 1)

    def _lose(self, block: _Block) -> None:
        self.at, self.is_lost = self.at + block.size, True


class _Block:
    """A part of a file, with the places of its quotes and line breaks.

    The parameter ``is_inside`` of its methods says whether its first quote closes a field; the following quotes alternate.
    """

    def __init__(self, block: bytes, before: int, behind: int) -> None:
        data = np.frombuffer(block, dtype=np.uint8)
        self.size = len(block)
        self.last = block[-1]
        self.newlines = np.flatnonzero(data == NEWLINE)
        self.quotes = np.flatnonzero(data == QUOTE) if b'"' in block else self.newlines[:0]
        if len(self.quotes):
            around = np.frombuffer(b"%c%b%c" % (before, block, behind), dtype=np.uint8)
            self._may_open = BEFORE_OPENING[around[self.quotes]]
            self._may_close = BEHIND_CLOSING[around[self.quotes + 2]]
            self._is_after_odd: npt.NDArray[np.bool_] = np.searchsorted(self.quotes, self.newlines) % 2 == 1

    def outside(self, is_inside: bool) -> Ends:
        """Return the line breaks outside of quotes."""
        if not len(self.quotes):
            return self.newlines[:0] if is_inside else self.newlines
        own: Ends = self.newlines[self._is_after_odd == is_inside]
        return own

    def misplaced(self, is_inside: bool) -> Ends:
        if not len(self.quotes):
            return self.quotes
        is_fit = self._may_close.copy() if is_inside else self._may_open.copy()
        is_fit[1::2] = (self._may_open if is_inside else self._may_close)[1::2]
        return self.quotes[~is_fit]

    def is_inside_behind(self, index: int) -> bool:
        """Return ``is_inside`` for a record that begins after a line break, by the index of this line break."""
        return bool(len(self.quotes)) and bool(self._is_after_odd[index])

    def chain(self, newline: int) -> list[int]:
        """Return the indexes of the line breaks that end records, from the one at ``newline`` on."""
        count = len(self.newlines)
        following = np.arange(1, count + 1)
        for is_inside in (False, True) if len(self.quotes) else ():
            own = np.flatnonzero(self._is_after_odd == is_inside)  # such a record ends at the next of these
            ends, faults = np.append(own[1:], count), self.misplaced(is_inside)
            fault = np.append(faults, self.size)[np.searchsorted(faults, self.newlines[own])]
            is_right = (np.append(self.newlines, self.size)[ends] < fault) | (fault == self.size)
            following[own] = np.where(is_right, ends, own + 1)
        index, steps = int(np.searchsorted(self.newlines, newline)), following.tolist()
        found = []
        while index < count:
            found.append(index)
            index = steps[index]
        return found

    def line_end(self, start: int, base: int) -> int | None:
        """Return the place in the file after the first line break from ``start`` on, a place in the block."""
        index = int(np.searchsorted(self.newlines, max(start, 0)))
        return base + int(self.newlines[index]) + 1 if index < len(self.newlines) else None
