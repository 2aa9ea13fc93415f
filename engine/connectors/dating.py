"""How many records the chunks of text files hold and of which event times, estimated from samples.

Many chunks are looked at together: what costs is to set up a parser and a judge, not the dozen records of a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.connectors.canonical import TEXT_FILE, TYPED_FILE, canonicalise
from engine.connectors.text_files import Header, bounds_of, is_closed, parse_text, read_header, sample
from engine.plan.model import RelationSchema

GATHERED_BYTES = 1 << 20
"""Samples that are held until they are dated together; one alone is more where its records are long."""

_TOGETHER = -1


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of a file.

    Attributes:
        start: first byte; a header's line at the beginning of a file is inside.
        end: the byte behind the last.
        header: a CSV file's column names, None for ndjson.
    """

    path: Path
    start: int
    end: int
    header: Header | None


class Look(NamedTuple):
    """What a part seems to hold.

    Attributes:
        rows: 0 where there is nothing but a header.
        start_ts: event time (ms) near its beginning, None where no record of the sample has one.
        max_ts: the greatest of the sample.
    """

    rows: int
    start_ts: int | None
    max_ts: int | None


def look(parts: Sequence[Part], relations: Sequence[RelationSchema], now_ms: int) -> list[Look]:
    """Look at the records at both ends of each part, as every relation sees them that dates its records by a column.

    Raises:
        SourceUnavailable: a file is gone or shorter than it was.
    """
    rows: list[int] = []
    times = _Times(relations, now_ms)
    for index, part in enumerate(parts):
        data, count = _sampled(part)
        rows.append(count)
        if data:
            times.add(index, data, part.header)
    times.date()
    return [Look(count, times.starts.get(index), times.greatest.get(index)) for index, count in enumerate(rows)]


def _sampled(part: Part) -> tuple[bytes, int]:
    """Return whole lines of both ends, and about how many records the part holds."""
    is_csv = part.header is not None
    begin = read_header(part.path, part.end)[1] if is_csv and part.start == 0 else part.start
    if begin == part.end:
        return b"", 0
    head, tail = sample(part.path, begin, part.end, is_csv=is_csv)
    rows = max(1, round((part.end - begin) * len(bounds_of(head, is_csv=is_csv)[0]) / len(head))) if head else 1
    ends = (head,) if tail is head else (head, tail)
    return b"".join(end if end.endswith(b"\n") else end + b"\n" for end in ends if end), rows


class _Times:
    """Event times of samples, by the index of their part.

    Attributes:
        starts: the first of each, as the first relation sees it that dates any.
        greatest: the greatest of all relations.
    """

    def __init__(self, relations: Sequence[RelationSchema], now_ms: int) -> None:
        self._relations = [
            replace(relation, columns=relation.columns.select([relation.event_time]), key=())
            for relation in relations
            if relation.event_time is not None
        ]
        self._now_ms = now_ms
        self._samples: dict[tuple[Header | None, int], dict[int, bytes]] = {}
        self._bytes = 0
        self.starts: dict[int, int] = {}
        self.greatest: dict[int, int] = {}

    def add(self, index: int, data: bytes, header: Header | None) -> None:
        # A sample may begin inside a CSV field with line breaks, so that a quote is open at its end: that must not reach the next one.
        alone = index if header is not None and not is_closed(data) else _TOGETHER
        self._samples.setdefault((header, alone), {})[index] = data
        self._bytes += len(data)
        if self._bytes > GATHERED_BYTES:
            self.date()

    def date(self) -> None:
        """Date what was added, and forget it."""
        for (header, _), samples in self._samples.items():
            for relation in self._relations:
                self._date(samples, header, relation)
        self._samples.clear()
        self._bytes = 0

    def _date(self, samples: Mapping[int, bytes], header: Header | None, relation: RelationSchema) -> None:
        raw, _ = parse_text(b"".join(samples.values()), header, relation, None, 0)
        accepted, _ = canonicalise(raw, relation, self._now_ms, TYPED_FILE if header is None else TEXT_FILE)
        if accepted.is_empty():
            return
        times = accepted["_ts"].to_numpy()
        ends = np.cumsum([len(data) for data in samples.values()])
        indexes = np.array(list(samples))[np.searchsorted(ends, accepted["_offset"].to_numpy(), side="right")]
        found, firsts = np.unique(indexes, return_index=True)
        latest = np.maximum.reduceat(times, firsts)
        for index, first, last in zip(found.tolist(), times[firsts].tolist(), latest.tolist(), strict=True):
            self.starts.setdefault(index, first)
            self.greatest[index] = max(last, self.greatest.get(index, last))
