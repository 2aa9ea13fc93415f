"""One transaction of the appender: the records of many requests to one feed, their rejects, and their idempotency keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import polars as pl
import psycopg
from psycopg.types.json import Jsonb

from app.domain.values import instant
from app.errors import Unprocessable
from app.store.append_targets import Target
from engine.connectors.log import APPEND_KEY_TTL_MS, APPEND_SQL, CLAIM_KEY_SQL, STORE_RESPONSE_SQL, append_params, encode_batch, route

# An answer names this many refused records; all of them can be read at …/rejects.
LISTED_REJECTS = 1_000
_ITEM = "_item"

Connection = psycopg.AsyncConnection[Any]


class StaleTarget(Exception):
    """The relation was changed or deleted after the records had been judged: judge them anew."""


@dataclass(frozen=True, slots=True)
class AppendItem:
    """What one request wants appended.

    Attributes:
        target: the relation, as it was when the records were judged.
        accepted: canonical records; may be empty.
        rejects: refused ones; ``offset`` is the index in the request.
        key: idempotency key, or None.
        digest: of the request, hex; means nothing without a key.
        now_ms: when it arrived.
    """

    target: Target
    accepted: pl.DataFrame
    rejects: pl.DataFrame
    key: str | None
    digest: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` consecutive offsets of one partition."""

    partition: int
    first_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """One refused record."""

    index: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one request.

    Attributes:
        rejected: the first ``LISTED_REJECTS`` refused records.
        reasons: reason to number of refused records.
        is_repeated: nothing was appended now: this is the answer of an earlier request with the same idempotency key.
    """

    ranges: tuple[Range, ...]
    rejected: tuple[Rejected, ...]
    reasons: dict[str, int] = field(default_factory=dict)
    is_repeated: bool = False

    @property
    def count(self) -> int:
        """How many records were appended."""
        return sum(part.count for part in self.ranges)

    @property
    def rejected_count(self) -> int:
        """How many records were refused."""
        return sum(self.reasons.values())

    def to_json(self) -> dict[str, Any]:
        """Return the form in which the answer is kept for a repeat."""
        return {
            "ranges": [[part.partition, part.first_offset, part.count] for part in self.ranges],
            "rejected": [[record.index, record.code, record.detail] for record in self.rejected],
            "reasons": self.reasons,
        }

    @staticmethod
    def repeated(kept: dict[str, Any]) -> Appended:
        """Read what ``to_json`` made."""
        ranges = tuple(Range(*part) for part in kept["ranges"])
        return Appended(ranges, tuple(Rejected(*record) for record in kept["rejected"]), kept["reasons"], is_repeated=True)


Outcome = Appended | Exception


async def append_group(connection: Connection, items: Sequence[AppendItem]) -> list[Outcome]:
    """Append the records of several requests to one feed, all or none.

    Args:
        connection: one outside a transaction.
        items: in order of arrival, all with the same ``target.feed_id``.

    Returns:
        One outcome per item: its answer, or ``StaleTarget`` or ``Unprocessable`` for it alone.
    """
    outcomes: list[Outcome | None] = [None] * len(items)
    async with connection.transaction(), connection.cursor(binary=True) as cursor:
        await _refuse_stale(cursor, items, outcomes)
        leaders = await _claim_keys(cursor, items, outcomes)
        writing = [index for index, outcome in enumerate(outcomes) if outcome is None and index not in leaders.values()]
        writing = [index for index in writing if leaders.get(index) is None]
        ranges = await _append(cursor, items, writing)
        await _keep_rejects(cursor, [items[index] for index in writing])
        for index in writing:
            item = items[index]
            appended = _answer(item, ranges.get(index, ()))
            outcomes[index] = appended
            if item.key is not None:
                params = {"response": Jsonb(appended.to_json()), "feed_id": item.target.feed_id, "key": item.key}
                await cursor.execute(STORE_RESPONSE_SQL, params)
    return []
