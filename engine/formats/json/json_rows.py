"""JSON records of a few layouts among others: which of them are plain, record by record, and where their values are.

``json_layout`` reads lines of one layout, all or none. Here lines may differ: the records of the most common layout are found, then those of
the next. Readers that know every form read the rest. This module does not know the types of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from engine.formats.json.byte_words import I64, ByteWords, Mask
from engine.formats.json.json_layout import Layout

FEW_ROWS: Final = 64
"""Up to this number of records, some hundred steps over short arrays take as long as reading one by one."""

_SAMPLES: Final = 16
_LAYOUTS: Final = 8
"""The most layouts to search. Each search examines all records that are left."""

_QUOTE, _BLANK, _BACKSLASH = 34, 32, 92


class LayoutRecords(NamedTuple):
    """Records of one layout.

    Attributes:
        layout: of all of them.
        rows: their indexes, in order.
        spans: for each field, where its values begin and end.
    """

    layout: Layout
    rows: I64
    spans: list[tuple[I64, I64]]


class JsonRows:
    """Records in one text.

    Args:
        chunk: with the records; at most 2 GB.
        starts: where they begin.
        ends: where they end.
        is_plain: which records may be read; the others are not UTF-8.
    """

    def __init__(self, chunk: bytes, starts: I64, ends: I64, is_plain: Mask) -> None:
        self.words = ByteWords.of_lines(chunk, starts, ends)
        self._chunk, self._starts, self._ends = chunk, starts, ends
        data = np.frombuffer(chunk, np.uint8)
        self._quotes = np.flatnonzero(data == _QUOTE)
        self._first = np.searchsorted(self._quotes, starts)
        self._count = np.searchsorted(self._quotes, ends) - self._first
        special = np.flatnonzero((data < _BLANK) | (data == _BACKSLASH))
        has_none = np.searchsorted(special, starts) == np.searchsorted(special, ends)
        self._left: I64 = np.flatnonzero(is_plain & has_none)

    def layouts(self) -> Iterator[LayoutRecords]:
        """Yield records of one layout after another, the most common first; each record at most once."""
        for _ in range(_LAYOUTS):
            if len(self._left) <= FEW_ROWS or (layout := self._commonest()) is None:
                return
            found = self._of(layout)
            self._left = np.setdiff1d(self._left, found.rows, assume_unique=True)
            yield found

    def _commonest(self) -> Layout | None:
        """Return the most common layout of some samples."""
        sampled = self._left[np.linspace(0, len(self._left) - 1, _SAMPLES, dtype=np.int64)].tolist()
        layouts = (Layout.of(self._chunk[self._starts[row] : self._ends[row]]) for row in sampled)
        counted = Counter(layout for layout in layouts if layout is not None)
        return counted.most_common(1)[0][0] if counted else None

    def _of(self, layout: Layout) -> LayoutRecords:
        """Return the records of a layout: exactly its quotes, and its literals at the places that the quotes show."""
        quotes = layout.marks(_QUOTE)
        rows = self._left[self._count[self._left] == quotes]
        starts, ends = self._starts[rows], self._ends[rows]
        places = layout.places(self._quotes[self._first[rows][:, None] + np.arange(quotes)], starts, ends, _QUOTE)
        is_alike: Mask = (places[0] == starts) & (places[-1] == ends - len(layout.closing))
        for begin, stop in layout.spans(places):
            is_alike &= begin <= stop
        # From here on each literal is inside of its record.
        rows, places = _masked(is_alike, rows, places)
        is_alike = np.ones(len(rows), np.bool_)
        for literal, place in zip(layout.literals, places, strict=True):
            is_alike &= self.words.are_at(literal, place)
        rows, places = _masked(is_alike, rows, places)
        return LayoutRecords(layout, rows, layout.spans(places))


def _masked(mask: Mask, rows: I64, places: list[I64]) -> tuple[I64, list[I64]]:
    return (rows, places) if mask.all() else (rows[mask], [place[mask] for place in places])
