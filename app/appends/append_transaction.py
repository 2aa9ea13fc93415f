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

from app.access.idempotency.rules import TTL_MS, key_reused
from app.appends.append_targets import Target
from app.appends.change_positions import lock_origins, newer_alone
from app.appends.rules import warnings_of
from app.appends.shared_appends import MOST_BYTES, SharedAppends, SmallAppend
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

# An answer names this many refused records; all of them can be read at …/rejects.
LISTED_REJECTS = 1_000
# More rows than this are routed and encoded in a thread: they would hold up every other request for milliseconds.
INLINE_ROWS = 4_096
_ITEM = "_item"

_APPEND_TO_SAME_SQL = append_behind(
    "SELECT FROM slackwater.relation WHERE id = %(relation_id)s AND version = %(version)s FOR SHARE"
)

Connection = psycopg.AsyncConnection[Any]
Cursor = psycopg.AsyncCursor[Any]


class StaleTarget(Exception):
    """The relation was changed or deleted after the records had been judged: judge them again."""


@dataclass(frozen=True, slots=True)
class AppendItem:
    """What one request wants appended.

    Attributes:
        target: the relation, as it was when the records were judged.
        accepted: canonical records; may be empty.
        rejects: refused ones; ``offset`` is the index in the request.
        key: idempotency key, or None.
        digest: of the request; means nothing without a key.
        now_ms: when it arrived.
        changes: where each accepted record stands in its database's log; None: these are no change events.
        older: events that were left out, because a newer change of their key, or the same one, came before.
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
        warnings: what is strange about the accepted ones.
        older: change events that were left out (``AppendItem``).
        is_stopping: a record was refused, and the relation says ``on_bad_record: stop``.
        is_repeated: nothing was appended now: this is the answer of an earlier request with the same idempotency key.
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
            "warnings": [list(astuple(warning)) for warning in self.warnings],
            "older": self.older,
            "is_stopping": self.is_stopping,
        }

    @staticmethod
    def repeated(kept: dict[str, Any]) -> Appended:
        """Read what ``to_json`` made."""
        ranges = tuple(Range(*part) for part in kept["ranges"])
        rejected = tuple(Rejected(*record) for record in kept["rejected"])
        warnings = tuple(DefinitionWarning(*values) for values in kept["warnings"])
        return Appended(
            ranges, rejected, kept["reasons"], warnings, older=kept["older"], is_stopping=kept["is_stopping"], is_repeated=True
        )


Outcome = Appended | StaleTarget | Unprocessable


async def append_group(connection: Connection, items: Sequence[AppendItem]) -> list[Outcome]:
    """Append the records of several requests to one feed, all or none.

    Args:
        connection: in autocommit mode.
        items: in order of arrival, all with the same ``target.feed_id``.

    Returns:
        One outcome per item: its answer, or ``StaleTarget`` or ``Unprocessable`` for it alone.

    Raises:
        StaleTarget: the feed was made again; holds for all items.
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
    """Append the records of several requests to one feed together with what others append to others.

    Args:
        shared: who does it.
        items: as for ``append_group``.

    Returns:
        One outcome per item; None where they need more than one small batch, or are locked or changed: nothing was appended then.
    """
    if not _is_of_one_relation(items) or sum(item.accepted.height for item in items) > INLINE_ROWS:
        return None
    batches = _batches(items, range(len(items)))
    if len(batches) != 1 or len(batches[0].params["payload"]) > MOST_BYTES or batches[0].params["marks"] is not None:
        return None
    target, (batch,) = items[0].target, batches
    names = ("partition", "rows", "min_ts", "max_ts", "payload")
    own = {name: batch.params[name] for name in names}
    base = await shared.append(SmallAppend(target.relation_id, target.version, target.feed_id, **own))
    if base is None:
        return None
    ranges = _ranges(batch, base)
    return [_answer(item, ranges.get(index, ())) for index, item in enumerate(items)]


def _is_of_one_relation(items: Sequence[AppendItem]) -> bool:
    """Whether nothing but records of one relation is to be written."""
    targets = {(item.target.relation_id, item.target.version) for item in items}
    return len(targets) == 1 and not any(
        item.rejects.height or item.key is not None or item.changes is not None for item in items
    )


async def _append_one(connection: Connection, items: Sequence[AppendItem], batch: _Batch) -> list[Outcome]:
    """Append what is one batch and nothing else: by one statement, which is its own transaction."""
    target = items[0].target
    params = {**batch.params, "relation_id": target.relation_id, "version": target.version}
    row = await (await connection.execute(_APPEND_TO_SAME_SQL, params)).fetchone()
    if row is None:
        raise StaleTarget
    ranges = _ranges(batch, row[0])
    return [_answer(item, ranges.get(index, ())) for index, item in enumerate(items)]


async def _fresh_relations(cursor: Cursor, items: Sequence[AppendItem]) -> set[tuple[UUID, int]]:
    """Return (id, version) of the relations as they are now, and keep them from being changed or deleted until the commit."""
    ids = list({item.target.relation_id for item in items})
    await cursor.execute("SELECT id, version FROM slackwater.relation WHERE id = ANY(%s) ORDER BY id FOR SHARE", (ids,))
    return {(row[0], row[1]) for row in await cursor.fetchall()}


async def _claim_keys(cursor: Cursor, items: Sequence[AppendItem], outcomes: dict[int, Outcome]) -> dict[int, int]:
    """Claim each idempotency key once, in sorted order; requests answered before get their outcome.

    Returns:
        Item to the item of this group that appends in its stead: the same key came twice at the same time.
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
        kept = Appended.repeated(row[1])
        for index in (leader, *others):
            outcomes[index] = _same_answer(items[index], row[0], kept)
    return followers


def _same_answer(item: AppendItem, digest: bytes, outcome: Outcome) -> Outcome:
    """Return the outcome of the request that had this key first, or the refusal of a key that was used for another body."""
    if item.digest != digest:
        return key_reused(item.key or "")
    return replace(outcome, is_repeated=True) if isinstance(outcome, Appended) else outcome


async def _newer_alone(cursor: Cursor, items: Sequence[AppendItem], writing: Sequence[int]) -> list[AppendItem]:
    """Leave change events out that are older than what came before, in the order of arrival."""
    found = list(items)
    changing = [(index, items[index], items[index].changes) for index in writing if items[index].accepted.height]
    judged = [(index, item, changes) for index, item, changes in changing if changes is not None]
    sources = await lock_origins(cursor, [(item.target.relation_id, changes) for _, item, changes in judged])
    for index, item, changes in judged:
        accepted, forgotten = await newer_alone(cursor, item.target.relation_id, item.accepted, changes, sources)
        left_out = item.accepted.height - accepted.height - forgotten.height
        rejects = pl.concat([item.rejects, forgotten]).sort("offset", maintain_order=True) if forgotten.height else item.rejects
        found[index] = replace(item, accepted=accepted, rejects=rejects, older=left_out)
    return found


@dataclass(frozen=True, slots=True)
class _Batch:
    """A record batch to insert, and which item has how many of its records, in order."""

    partition: int
    params: dict[str, Any]
    counts: tuple[tuple[int, int], ...]


async def _made(items: Sequence[AppendItem], writing: Sequence[int]) -> list[_Batch]:
    """Put the records of these items into batches, one per relation and partition where they are few."""
    is_small = sum(items[index].accepted.height for index in writing) <= INLINE_ROWS
    return _batches(items, writing) if is_small else await anyio.to_thread.run_sync(_batches, items, writing)


async def _append_records(cursor: Cursor, batches: Iterable[_Batch]) -> dict[int, list[Range]]:
    """Append batches.

    Returns:
        Item to where its records went.
    """
    ranges: dict[int, list[Range]] = {}
    for batch in batches:
        await cursor.execute(APPEND_SQL, batch.params)
        row = await cursor.fetchone()
        if row is None:
            raise StaleTarget
        for index, found in _ranges(batch, row[0]).items():
            ranges.setdefault(index, []).extend(found)
    return ranges


def _ranges(batch: _Batch, offset: int) -> dict[int, list[Range]]:
    """Return where the records of each item are, in a batch that begins at an offset."""
    ranges = {}
    for index, count in batch.counts:
        ranges[index] = [Range(batch.partition, offset, count)]
        offset += count
    return ranges


def _batches(items: Sequence[AppendItem], writing: Sequence[int]) -> list[_Batch]:
    """Put the items' records into batches, in the order of partitions: heads are locked in it, by every writer."""
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
    if origins[0] == origins[-1]:  # they rise: all are of one item
        return ((origins[0], len(origins)),)
    items, counts = np.unique(origins.to_numpy(), return_counts=True)
    return tuple(zip(items.tolist(), counts.tolist(), strict=True))


def _together(frames: Sequence[pl.DataFrame], indexes: Sequence[int]) -> pl.DataFrame:
    """Put the records of several items one behind the other; ``_item`` says which item each is of, and rises."""
    frame = frames[0].clone() if len(frames) == 1 else pl.concat(frames)
    origins = np.repeat(np.array(indexes, dtype=np.int32), [part.height for part in frames])
    # Added in place: an expression for each of many one-record frames would cost more than everything else here.
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
    """Keep the answer for a repeat."""
    if item.key is not None:
        params = {"response": Jsonb(answer.to_json()), "feed_id": item.target.feed_id, "key": item.key}
        await cursor.execute(STORE_RESPONSE_SQL, params)
