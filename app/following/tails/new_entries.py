"""Where followed logs end, and their new entries: one statement for any number of logs.

Many new entries are read range by range instead (``change_log.read_range``), so that other followers do not wait for a long log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from app.catalog.stored.feeds_read import Connection
from app.errors.app_errors import Unavailable
from app.following.change_log import STRETCH_ROWS, Heads, LogRange, encode_changes, few_changes, numbered_frame
from app.following.followed import Followed

SMALL_BYTES = 64 * 1024
"""New entries of a log up to this size are read together with its end. Hundreds of logs may have some at the same moment."""

COLUMNS_KEPT = 4_096

# A dropped feed exists until it is swept, but has no numbers any more. The columns are read in the same snapshot as the ends.
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
    """The result of one poll of a log.

    Attributes:
        heads: (oldest offset, next offset) by lane; empty if the log is gone.
        read: returns the new entries of the only lane, up to its end; None: there are none, or they must be read range by range.
        start: where the new entries begin.
    """

    heads: Heads
    read: Callable[[], LogRange] | None = None
    start: int = 0


async def heads(connection: Connection, followed: Followed) -> Heads:
    """Return (oldest offset, next offset) by lane; empty if a log is gone, or the database was restored since.

    Raises:
        Unavailable: ``relation_changing``: the relation has other columns or parts since. A new request succeeds.
    """
    (result,) = await heads_of(connection, [followed])
    if isinstance(result, Unavailable):
        raise result
    return result


async def heads_of(connection: Connection, followed: Sequence[Followed]) -> list[Heads | Unavailable]:
    """Return the result or the error of ``heads`` for several logs, with one statement."""
    rows_of_logs = await _load_rows(connection, followed, [None] * len(followed), from_oldest=False)
    return [_of_lanes([_checked_heads(log, rows) for log, rows in lanes]) for lanes in rows_of_logs]


async def new_entries_of(
    connection: Connection,
    followed: Sequence[Followed],
    ends: Sequence[Sequence[int] | None],
    has_text_numbers: Sequence[bool],
    *,
    from_oldest: bool = False,
) -> list[NewEntries | Unavailable]:
    """Return where several logs end, with one statement, and the new entries of those with one lane of numbers.

    Args:
        connection: to the database.
        followed: the logs.
        ends: the known end of each, by lane; None: do not read new entries.
        has_text_numbers: how the changes of each are written.
        from_oldest: if retention removed a part of the new entries, read the rest of them.
    """
    starts = [
        known[0] if known is not None and each.is_derived and not each.parts else None
        for each, known in zip(followed, ends, strict=True)
    ]
    rows_of_logs = await _load_rows(connection, followed, starts, from_oldest=from_oldest)
    return [
        _entries_of(lanes, start, has_text_numbers=is_text)
        for lanes, start, is_text in zip(rows_of_logs, starts, has_text_numbers, strict=True)
    ]


async def _load_rows(
    connection: Connection, followed: Sequence[Followed], starts: Sequence[int | None], *, from_oldest: bool
) -> list[list[tuple[Followed, list[tuple[Any, ...]]]]]:
    logs = [log for each in followed for log in (each, *each.parts)]
    params = {
        "feeds": [log.feed_id for log in logs],
        "relations": [log.relation_id for log in logs],
        "incarnations": [log.incarnation for log in logs],
        "rewound": [log.rewound for log in logs],
        "numbered": [log.is_derived for log in logs],
        "streams": [log.kind == "stream" for log in logs],
        "starts": [
            start
            for each, start_of_log in zip(followed, starts, strict=True)
            for start in (start_of_log, *(None for _ in each.parts))
        ],
        "from_oldest": from_oldest,
        "rows": STRETCH_ROWS,
        "bytes": SMALL_BYTES,
    }
    async with connection.cursor(binary=True) as cursor:
        rows = await (await cursor.execute(_NEWS_SQL, params)).fetchall()
    by_place = (list(group) for _, group in groupby(rows, key=itemgetter(0)))
    return [[(log, next(by_place)) for log in (each, *each.parts)] for each in followed]


def _entries_of(
    lanes: Sequence[tuple[Followed, list[tuple[Any, ...]]]], known: int | None, *, has_text_numbers: bool
) -> NewEntries | Unavailable:
    heads = _of_lanes([_checked_heads(log, rows) for log, rows in lanes])
    if isinstance(heads, Unavailable):
        return heads
    followed, rows = lanes[0]
    blocks = [row[_BLOCK] for row in rows if row[_BLOCK.start] is not None]
    if known is None or not blocks or not heads:
        return NewEntries(heads)
    oldest, end = heads[0]
    start = max(known, oldest)

    def read() -> LogRange:
        few = few_changes(followed, blocks, start, end, has_text_numbers=has_text_numbers)
        if few is not None:
            return few
        frame = numbered_frame(followed, blocks, start, end)
        return encode_changes(followed, 0, frame, end, has_text_numbers=has_text_numbers)

    return NewEntries(heads, read, start)


def _checked_heads(log: Followed, rows: Sequence[tuple[Any, ...]]) -> Heads | Unavailable:
    _, _, _, columns, parts, *_ = rows[0]
    if columns is not None and _columns(columns) != log.stored_columns:
        return Unavailable("relation_changing", f"'{log.name}' has other columns since; go on from the cursor")
    if parts is not None and set(parts) != {part.relation_id for part in log.parts}:
        return Unavailable("relation_changing", f"other queries append to '{log.name}' since; go on from the cursor")
    # A log that is read by numbers has one lane, and one row for each new batch.
    return [(row[1], row[2]) for row in (rows[:1] if log.is_derived else rows) if row[1] is not None]


@lru_cache(COLUMNS_KEPT)
def _columns(text: str) -> Any:
    return json.loads(text)


def _of_lanes(heads_of_logs: Sequence[Heads | Unavailable]) -> Heads | Unavailable:
    """Return the heads of a log and of its parts as one list."""
    lanes: Heads = []
    for heads in heads_of_logs:
        if isinstance(heads, Unavailable):
            return heads
        if not heads:
            return []
        lanes += heads
    return lanes
