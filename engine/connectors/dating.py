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
from engine.connectors.json_records import BOM
from engine.connectors.text_files import count_records, header_end, parse_text, sample
from engine.plan.model import RelationSchema

Header = tuple[str, ...]


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
    samples: dict[Header | None, dict[int, bytes]] = {}
    for index, part in enumerate(parts):
        data, count = _sampled(part)
        rows.append(count)
        if data:
            samples.setdefault(part.header, {})[index] = data
    starts: dict[int, int] = {}
    greatest: dict[int, int] = {}
    for header, found in samples.items():
        for relation in relations:
            if relation.event_time is not None:
                _date(found, header, relation, now_ms, starts, greatest)
    return [Look(count, starts.get(index), greatest.get(index)) for index, count in enumerate(rows)]


def _sampled(part: Part) -> tuple[bytes, int]:
    """Return whole lines of both ends, and about how many records the part holds."""
    is_csv = part.header is not None
    begin = min(header_end(part.path, part.end), part.end) if is_csv and part.start == 0 else part.start
    if begin == part.end:
        return b"", 0
    head, tail = sample(part.path, begin, part.end, is_csv)
    rows = max(1, round((part.end - begin) * count_records(head, is_csv) / len(head)))
    ends = (head,) if tail is head else (head, tail)
    return b"".join(end if end.endswith(b"\n") else end + b"\n" for end in ends).removeprefix(BOM), rows


def _date(
    samples: Mapping[int, bytes],
    header: Header | None,
    relation: RelationSchema,
    now_ms: int,
    starts: dict[int, int],
    greatest: dict[int, int],
) -> None:
    """Add what one relation sees: the first time of parts that have none, and the greatest."""
    dated = replace(relation, columns=relation.columns.select([relation.event_time or ""]), key=())
    raw, _ = parse_text(b"".join(samples.values()), header, dated, None, 0)
    accepted, _ = canonicalise(raw, dated, now_ms, TYPED_FILE if header is None else TEXT_FILE)
    if accepted.is_empty():
        return
    times = accepted["_ts"].to_numpy()
    ends = np.cumsum([len(data) for data in samples.values()])
    indexes = np.array(list(samples))[np.searchsorted(ends, accepted["_offset"].to_numpy(), side="right")]
    found, firsts = np.unique(indexes, return_index=True)
    for index, first, latest in zip(
        found.tolist(), times[firsts].tolist(), np.maximum.reduceat(times, firsts).tolist(), strict=True
    ):
        starts.setdefault(index, first)
        greatest[index] = max(latest, greatest.get(index, latest))
