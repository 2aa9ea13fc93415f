"""Where followed logs end, and what is new in them: one statement for any number of logs.

What is much is not read here but range by range (``change_log.read_range``), so that nobody waits for a long log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from app.catalog.stored.log_pages import Connection
from app.errors.app_errors import Unavailable
from app.following.change_log import STRETCH_ROWS, Heads, LogRange, encode_changes, few_changes, numbered_frame
from app.following.followed import Followed

SMALL_BYTES = 64 * 1024
"""What is new in a log is read together with its end up to here: hundreds of logs may have some at the same moment."""

COLUMNS_KEPT = 4_096

# A dropped feed is there until it is swept, and numbers nothing any more. The columns are those behind the ends: all is one snapshot.
_NEWS_SQL = """
SELECT w.place, h.oldest, h.following, (r.definition -> 'columns')::text, CASE WHEN w.is_stream AND r.id IS NOT NULL THEN ARRAY(
    SELECT p.id FROM slackwater.relation p WHERE p.origin = 'derived' AND p.definition ->> 'append_to' = r.name
) END, b.sequence, b.sequence_rows, b.partition, b.base_offset, b.payload
FROM unnest(%(feeds)s::bigint[], %(relations)s::uuid[], %(incarnations)s::uuid[], %(rewound)s::uuid[], %(numbered)s::bool[], %(streams)s::bool[],
    %(starts)s::bigint[]) WITH ORDINALITY AS w (feed_id, relation_id, incarnation, rewound, is_numbered, is_stream, known, place)
LEFT JOIN slackwater.relation r ON r.id = w.relation_id
LEFT JOIN LATERAL (
    SELECT l.partition, l.start_offset AS oldest, l.next_offset AS following FROM log.head l
    WHERE NOT w.is_numbered AND l.feed_id = w.feed_id
    UNION ALL
    SELECT 0, f.start_sequence, f.next_sequence FROM log.feed f
    WHERE w.is_numbered AND f.id = w.feed_id AND f.next_sequence IS NOT NULL AND f.rewound IS NOT DISTINCT FROM w.rewound
) h ON (SELECT id FROM log.incarnation) IS NOT DISTINCT FROM w.incarnation
CROSS JOIN LATERAL (SELECT CASE WHEN %(from_oldest)s AND w.known < h.oldest THEN h.oldest ELSE w.known END AS start) s
LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT n.sequence, n.sequence_rows, n.partition, n.base_offset, n.payload, sum(octet_length(n.payload)) OVER () AS bytes
        FROM log.batch n
        WHERE h.following - s.start BETWEEN 1 AND %(rows)s AND s.start >= h.oldest AND n.feed_id = w.feed_id AND n.sequence >= (
            SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = w.feed_id AND sequence <= s.start
        )
    ) behind WHERE bytes <= %(bytes)s
) b ON true
ORDER BY w.place, h.partition, b.sequence, b.partition
"""
_BLOCK = slice(5, None)


@dataclass(frozen=True, slots=True)
class NewEntries:
    """What one look has found of a log.

    Attributes:
        heads: (oldest offset, next offset) by lane; nothing where the log is gone.
        read: gives what is new in the only lane, up to its end; None where nothing is, or it is to be read stretch by stretch.
        start: from where.
    """

    heads: Heads
    read: Callable[[], LogRange] | None = None
    start: int = 0


async def heads(connection: Connection, followed: Followed) -> Heads:
    """Return (oldest offset, next offset) by lane; nothing where a log is gone, or the database was put back since.

    Raises:
        Unavailable: ``relation_changing``: the relation has got other columns or parts since; who asks again gets them.
    """
    (found,) = await heads_of(connection, [followed])
    if isinstance(found, Unavailable):
        raise found
    return found


async def heads_of(connection: Connection, followed: Sequence[Followed]) -> list[Heads | Unavailable]:
    """Return what ``heads`` gives or raises for each of several, by one statement."""
    found = await _load_rows(connection, followed, [None] * len(followed), from_oldest=False)
    return [_of_lanes([_checked_heads(log, rows) for log, rows in lanes]) for lanes in found]


async def new_entries_of(
    connection: Connection,
    followed: Sequence[Followed],
    ends: Sequence[Sequence[int] | None],
    has_text_numbers: Sequence[bool],
    *,
    from_oldest: bool = False,
) -> list[NewEntries | Unavailable]:
    """Return where each of several logs ends, by one statement, and what is new in those of one lane of numbers.

    Args:
        connection: to the database.
        followed: the logs.
        ends: how far each is known, by lane; None: what is new is not wanted.
        has_text_numbers: how the changes of each are written.
        from_oldest: where what is new has been removed in part, the rest of it is wanted.
    """
    starts = [
        known[0] if known is not None and each.is_derived and not each.parts else None
        for each, known in zip(followed, ends, strict=True)
    ]
    found = await _load_rows(connection, followed, starts, from_oldest=from_oldest)
    return [
        _entries_of(lanes, start, has_text_numbers=is_text)
        for lanes, start, is_text in zip(found, starts, has_text_numbers, strict=True)
    ]


async def _load_rows(
    connection: Connection, followed: Sequence[Followed], starts: Sequence[int | None], *, from_oldest: bool
) -> list[list[tuple[Followed, list[tuple[Any, ...]]]]]:
    """Return the rows of each log and of its parts."""
    logs = [log for each in followed for log in (each, *each.parts)]
    params = {
        "feeds": [log.feed_id for log in logs],
        "relations": [log.relation_id for log in logs],
        "incarnations": [log.incarnation for log in logs],
        "rewound": [log.rewound for log in logs],
        "numbered": [log.is_derived for log in logs],
        "streams": [log.kind == "stream" for log in logs],
        "starts": [start for each, own in zip(followed, starts, strict=True) for start in (own, *(None for _ in each.parts))],
        "from_oldest": from_oldest,
        "rows": STRETCH_ROWS,
        "bytes": SMALL_BYTES,
    }
    async with connection.cursor(binary=True) as cursor:
        rows = await (await cursor.execute(_NEWS_SQL, params)).fetchall()
    by_place = (list(own) for _, own in groupby(rows, key=itemgetter(0)))
    return [[(log, next(by_place)) for log in (each, *each.parts)] for each in followed]


def _entries_of(
    lanes: Sequence[tuple[Followed, list[tuple[Any, ...]]]], known: int | None, *, has_text_numbers: bool
) -> NewEntries | Unavailable:
    found = _of_lanes([_checked_heads(log, rows) for log, rows in lanes])
    if isinstance(found, Unavailable):
        return found
    followed, rows = lanes[0]
    blocks = [row[_BLOCK] for row in rows if row[_BLOCK.start] is not None]
    if known is None or not blocks or not found:
        return NewEntries(found)
    oldest, end = found[0]
    start = max(known, oldest)

    def read() -> LogRange:
        few = few_changes(followed, blocks, start, end, has_text_numbers=has_text_numbers)
        if few is not None:
            return few
        frame = numbered_frame(followed, blocks, start, end)
        return encode_changes(followed, 0, frame, end, has_text_numbers=has_text_numbers)

    return NewEntries(found, read, start)


def _checked_heads(log: Followed, rows: Sequence[tuple[Any, ...]]) -> Heads | Unavailable:
    _, _, _, columns, parts, *_ = rows[0]
    if columns is not None and _columns(columns) != log.stored_columns:
        return Unavailable("relation_changing", f"'{log.name}' has other columns since; go on from the cursor")
    if parts is not None and set(parts) != {part.relation_id for part in log.parts}:
        return Unavailable("relation_changing", f"other queries append to '{log.name}' since; go on from the cursor")
    # A log that is read by numbers has one lane, and a row for each batch that is new.
    return [(row[1], row[2]) for row in (rows[:1] if log.is_derived else rows) if row[1] is not None]


@lru_cache(COLUMNS_KEPT)
def _columns(text: str) -> Any:
    return json.loads(text)


def _of_lanes(found: Sequence[Heads | Unavailable]) -> Heads | Unavailable:
    """Put the heads of a log and of its parts together."""
    lanes: Heads = []
    for own in found:
        if isinstance(own, Unavailable):
            return own
        if not own:
            return []
        lanes += own
    return lanes
