"""One transaction of the appender: the records of many requests to one feed, their rejects, and their idempotency keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import anyio.to_thread
import numpy as np
import polars as pl
import psycopg
from psycopg.types.json import Jsonb

from app.access.idempotency import TTL_MS, key_reused
from app.appends.append_targets import Target
from app.appends.change_positions import lock_origins, newer_alone
from app.appends.shared_appends import MOST_BYTES, SharedAppends, SmallAppend
from app.appends.validation import warnings_of
from app.errors.app_errors import Unprocessable
from app.http.values import instant
from engine.frames.slicing import slices
from engine.log.storage import (
    APPEND_SQL,
    BATCH_BYTES,
    CLAIM_KEY_SQL,
    STORE_RESPONSE_SQL,
    append_behind,
    append_params,
    encode_batch,
    route,
)
from engine.plan.warnings import DefinitionWarning

# An answer lists at most this many rejected records; …/rejects lists all.
LISTED_REJECTS = 1_000
# More rows than this are routed and encoded in a thread. They would delay every other request for milliseconds.
INLINE_ROWS = 4_096
_ITEM = "_item"

_APPEND_TO_SAME_SQL = append_behind(
    "SELECT FROM slackwater.relation WHERE id = %(relation_id)s AND version = %(version)s FOR SHARE"
)

Connection = psycopg.AsyncConnection[Any]
Cursor = psycopg.AsyncCursor[Any]


class StaleTarget(Exception):
    """The relation was changed or deleted after the records were validated; validate them again."""


@dataclass(frozen=True, slots=True)
class AppendItem:
    """The records of one request.

    Attributes:
        target: the relation, as it was when the records were validated.
        accepted: canonical records; may be empty.
        rejects: rejected records; ``offset`` is the index in the request.
        key: idempotency key, or None.
        digest: of the request; unused without a key.
        now_ms: when the request arrived.
        changes: position of each accepted record in its database's log; None: the records are no change events.
        older: number of events that are left out, because the same or a newer change of their key came before.
    """

    target: Target
    accepted: pl.DataFrame
    rejects: pl.DataFrame
    key: str | None
    digest: bytes
    now_ms: int
    changes: pl.DataFrame | None = None
    older: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` consecutive offsets of one partition."""

    partition: int
    first_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """One rejected record."""

    index: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of one request.

    Attributes:
        rejected: the first ``LISTED_REJECTS`` rejected records.
        reasons: reason → number of rejected records.
        older: number of change events that were left out (``AppendItem``).
        is_stopping: a record was rejected, and the relation has ``on_bad_record: stop``.
        is_repeated: this request appended nothing; this is the answer of an earlier request with the same idempotency key.
    """

    ranges: tuple[Range, ...]
    rejected: tuple[Rejected, ...]
    reasons: dict[str, int] = field(default_factory=dict)
    warnings: tuple[DefinitionWarning, ...] = ()
    older: int = 0
    is_stopping: bool = False
    is_repeated: bool = False

    @property
    def count(self) -> int:
        return sum(part.count for part in self.ranges)

    @property
    def rejected_count(self) -> int:
        return sum(self.reasons.values())

    def to_json(self) -> dict[str, Any]:
        """Return the form in which the answer is stored for a repeated request."""
        return {
            "ranges": [[part.partition, part.first_offset, part.count] for part in self.ranges],
            "rejected": [[record.index, record.code, record.detail] for record in self.rejected],
            "reasons": self.reasons,
            "warnings": [list(astuple(warning)) for warning in self.warnings],
            "older": self.older,
            "is_stopping": self.is_stopping,
        }

    @staticmethod
    def repeated(stored: dict[str, Any]) -> Appended:
        """Read the form that ``to_json`` writes."""
        ranges = tuple(Range(*part) for part in stored["ranges"])
        rejected = tuple(Rejected(*record) for record in stored["rejected"])
        warnings = tuple(DefinitionWarning(*values) for values in stored["warnings"])
        return Appended(
            ranges,
            rejected,
            stored["reasons"],
            warnings,
            older=stored["older"],
            is_stopping=stored["is_stopping"],
            is_repeated=True,
        )


Outcome = Appended | StaleTarget | Unprocessable


async def append_group(connection: Connection, items: Sequence[AppendItem]) -> list[Outcome]:
    """Append the records of several requests to one feed, all or none.

    Args:
        connection: in autocommit mode.
        items: in order of arrival, all with the same ``target.feed_id``.

    Returns:
        One outcome per item: its answer, or ``StaleTarget`` or ``Unprocessable`` for this item only.

    Raises:
        StaleTarget: the feed was deleted and created again; this holds for all items.
    """
    batches = await _made(items, range(len(items))) if all(item.changes is None for item in items) else None
    if batches is not None and len(batches) == 1 and _is_of_one_relation(items):
        return await _append_one(connection, items, batches[0])
    outcomes: dict[int, Outcome] = {}
    async with connection.transaction(), connection.cursor() as cursor:
        fresh = await _fresh_relations(cursor, items)
        for index, item in enumerate(items):
            if (item.target.relation_id, item.target.version) not in fresh:
                outcomes[index] = StaleTarget()
        followers = await _claim_keys(cursor, items, outcomes)
        writing = [index for index in range(len(items)) if index not in outcomes and index not in followers]
        items = await _newer_alone(cursor, items, writing)
        if batches is None or len(writing) < len(items):
            batches = await _made(items, writing)
        ranges = await _append_records(cursor, batches)
        await _keep_rejects(cursor, [items[index] for index in writing])
        for index in writing:
            outcomes[index] = answer = _answer(items[index], ranges.get(index, ()))
            await _keep_answer(cursor, items[index], answer)
    for index, leader in followers.items():
        outcomes[index] = _same_answer(items[index], items[leader].digest, outcomes[leader])
    return [outcomes[index] for index in range(len(items))]


async def append_small(shared: SharedAppends, items: Sequence[AppendItem]) -> list[Outcome] | None:
    """Append the records of several requests to one feed, in one commit with the appends to other feeds.

    Args:
        shared: commits them.
        items: as for ``append_group``.

    Returns:
        One outcome per item. None: they need more than one small batch, or a lock is not free, or the relation changed; nothing was appended.
    """
    if not _is_of_one_relation(items) or sum(item.accepted.height for item in items) > INLINE_ROWS:
        return None
    batches = _batches(items, range(len(items)))
    if len(batches) != 1 or len(batches[0].params["payload"]) > MOST_BYTES or batches[0].params["marks"] is not None:
        return None
    target, (batch,) = items[0].target, batches
    names = ("partition", "rows", "min_ts", "max_ts", "payload")
    columns = {name: batch.params[name] for name in names}
    base = await shared.append(SmallAppend(target.relation_id, target.version, target.feed_id, **columns))
    if base is None:
        return None
    ranges = _ranges(batch, base)
    return [_answer(item, ranges.get(index, ())) for index, item in enumerate(items)]


def _is_of_one_relation(items: Sequence[AppendItem]) -> bool:
    """Whether the items have only records of one relation: no rejects, keys or change events."""
    targets = {(item.target.relation_id, item.target.version) for item in items}
    return len(targets) == 1 and not any(
        item.rejects.height or item.key is not None or item.changes is not None for item in items
    )


async def _append_one(connection: Connection, items: Sequence[AppendItem], batch: _Batch) -> list[Outcome]:
    """Append one batch by one statement, which is its own transaction."""
    target = items[0].target
    params = {**batch.params, "relation_id": target.relation_id, "version": target.version}
    row = await (await connection.execute(_APPEND_TO_SAME_SQL, params)).fetchone()
    if row is None:
        raise StaleTarget
    ranges = _ranges(batch, row[0])
    return [_answer(item, ranges.get(index, ())) for index, item in enumerate(items)]


async def _fresh_relations(cursor: Cursor, items: Sequence[AppendItem]) -> set[tuple[UUID, int]]:
    """Return (id, version) of the relations as they are now, and lock them against changes and deletes until the commit."""
    ids = list({item.target.relation_id for item in items})
    await cursor.execute("SELECT id, version FROM slackwater.relation WHERE id = ANY(%s) ORDER BY id FOR SHARE", (ids,))
    return {(row[0], row[1]) for row in await cursor.fetchall()}


async def _claim_keys(cursor: Cursor, items: Sequence[AppendItem], outcomes: dict[int, Outcome]) -> dict[int, int]:
    """Claim each idempotency key once, in sorted order; repeated requests get their stored outcome.

    Returns:
        Item → the item of this group with the same key that appends for both.
    """
    by_key: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if item.key is not None and index not in outcomes:
            by_key.setdefault(item.key, []).append(index)
    followers: dict[int, int] = {}
    for key, (leader, *others) in sorted(by_key.items()):
        item = items[leader]
        params = {"feed_id": item.target.feed_id, "key": key, "digest": item.digest, "ttl_ms": TTL_MS}
        await cursor.execute(CLAIM_KEY_SQL, params)
        row = await cursor.fetchone()
        if row is None or row[1] is None:
            followers |= dict.fromkeys(others, leader)
            continue
        stored = Appended.repeated(row[1])
        for index in (leader, *others):
            outcomes[index] = _same_answer(items[index], row[0], stored)
    return followers


def _same_answer(item: AppendItem, digest: bytes, outcome: Outcome) -> Outcome:
    """Return the outcome of the first request with this key, or the error for a key that was used for another body."""
    if item.digest != digest:
        return key_reused(item.key or "")
    return replace(outcome, is_repeated=True) if isinstance(outcome, Appended) else outcome


async def _newer_alone(cursor: Cursor, items: Sequence[AppendItem], writing: Sequence[int]) -> list[AppendItem]:
    """Leave out change events that are older than an earlier event of their key."""
    result = list(items)
    changing = [(index, items[index], items[index].changes) for index in writing if items[index].accepted.height]
    with_changes = [(index, item, changes) for index, item, changes in changing if changes is not None]
    sources = await lock_origins(cursor, [(item.target.relation_id, changes) for _, item, changes in with_changes])
    for index, item, changes in with_changes:
        accepted, forgotten = await newer_alone(cursor, item.target.relation_id, item.accepted, changes, sources)
        left_out = item.accepted.height - accepted.height - forgotten.height
        rejects = pl.concat([item.rejects, forgotten]).sort("offset", maintain_order=True) if forgotten.height else item.rejects
        result[index] = replace(item, accepted=accepted, rejects=rejects, older=left_out)
    return result


@dataclass(frozen=True, slots=True)
class _Batch:
    """A record batch to insert, and the number of records of each item in it, in order."""

    partition: int
    params: dict[str, Any]
    counts: tuple[tuple[int, int], ...]


async def _made(items: Sequence[AppendItem], writing: Sequence[int]) -> list[_Batch]:
    """Encode the records of these items as batches; few records give one batch per relation and partition."""
    is_small = sum(items[index].accepted.height for index in writing) <= INLINE_ROWS
    return _batches(items, writing) if is_small else await anyio.to_thread.run_sync(_batches, items, writing)


async def _append_records(cursor: Cursor, batches: Iterable[_Batch]) -> dict[int, list[Range]]:
    """Append batches.

    Returns:
        Item → the ranges of its records.
    """
    ranges: dict[int, list[Range]] = {}
    for batch in batches:
        await cursor.execute(APPEND_SQL, batch.params)
        row = await cursor.fetchone()
        if row is None:
            raise StaleTarget
        for index, item_ranges in _ranges(batch, row[0]).items():
            ranges.setdefault(index, []).extend(item_ranges)
    return ranges


def _ranges(batch: _Batch, offset: int) -> dict[int, list[Range]]:
    """Return the ranges of each item's records in a batch that begins at an offset."""
    ranges = {}
    for index, count in batch.counts:
        ranges[index] = [Range(batch.partition, offset, count)]
        offset += count
    return ranges


def _batches(items: Sequence[AppendItem], writing: Sequence[int]) -> list[_Batch]:
    """Encode the items' records as batches, ordered by partition: every writer locks heads in this order."""
    by_relation: dict[UUID, list[int]] = {}
    for index in writing:
        if items[index].accepted.height:
            by_relation.setdefault(items[index].target.relation_id, []).append(index)
    batches: list[_Batch] = []
    for indexes in by_relation.values():
        first = items[indexes[0]]
        frame = _together([items[index].accepted for index in indexes], indexes)
        for partition, part in route(frame, first.target.schema.key, first.target.partitions):
            for rows in slices(part, len(part), BATCH_BYTES):
                counts = _counts(rows.drop_in_place(_ITEM))
                params = append_params(first.target.feed_id, partition, encode_batch(rows, first.now_ms))
                batches.append(_Batch(partition, params, counts))
    return sorted(batches, key=lambda batch: batch.partition)


def _counts(origins: pl.Series) -> tuple[tuple[int, int], ...]:
    if origins[0] == origins[-1]:  # origins are sorted, so all are of one item
        return ((origins[0], len(origins)),)
    items, counts = np.unique(origins.to_numpy(), return_counts=True)
    return tuple(zip(items.tolist(), counts.tolist(), strict=True))


def _together(frames: Sequence[pl.DataFrame], indexes: Sequence[int]) -> pl.DataFrame:
    """Concatenate the records of several items; ``_item`` has the index of each record's item, in ascending order."""
    frame = frames[0].clone() if len(frames) == 1 else pl.concat(frames)
    origins = np.repeat(np.array(indexes, dtype=np.int32), [part.height for part in frames])
    # In place: an expression for each of many one-record frames would cost more than the rest of this function.
    return frame.insert_column(frame.width, pl.Series(_ITEM, origins))


async def _keep_rejects(cursor: Cursor, items: Iterable[AppendItem]) -> None:
    refused = [item for item in items if item.rejects.height]
    if not refused:
        return
    async with cursor.copy("COPY log.reject (owner, feed, reason, detail, excerpt, at) FROM STDIN") as copy:
        for item in refused:
            at = instant(item.now_ms)
            for row in item.rejects.select("reason", "detail", "excerpt").iter_rows():
                await copy.write_row((item.target.schema.name, item.target.feed_name, *row, at))


def _answer(item: AppendItem, ranges: Iterable[Range]) -> Appended:
    warnings = warnings_of(item.target.schema, cast("int | None", item.accepted["_ts"].max()))
    appended = Appended(tuple(ranges), (), warnings=warnings, older=item.older)
    if not item.rejects.height:
        return appended
    listed = item.rejects.head(LISTED_REJECTS).select("offset", "reason", "detail")
    reasons = item.rejects.group_by("reason").len().sort("reason")
    is_stopping = item.target.schema.is_stop_on_bad_record
    rejected = tuple(Rejected(*row) for row in listed.iter_rows())
    return replace(appended, rejected=rejected, reasons=dict(reasons.iter_rows()), is_stopping=is_stopping)


async def _keep_answer(cursor: Cursor, item: AppendItem, answer: Appended) -> None:
    if item.key is not None:
        params = {"response": Jsonb(answer.to_json()), "feed_id": item.target.feed_id, "key": item.key}
        await cursor.execute(STORE_RESPONSE_SQL, params)
