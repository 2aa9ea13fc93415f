"""GET /v1/streams/{name}/records: a stream's records by partition and offset."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import visible, visible_position
from app.catalog.relations.parts import parts_in_order
from app.catalog.stored.relations import RelationRow, entry_of_row, find_relation_async, of_kind
from app.db.page_bounds import Most
from app.db.tables import commit, query, query_status
from app.errors.app_errors import BadRequest, Fault
from app.http.answers.documented import answered, problems
from app.http.answers.negotiation import lines_documented, page_response
from app.http.answers.record_json import encode_records
from app.http.examples import RECORDS
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import DEFAULT_LIMIT, MAX_NAME_LENGTH, Limit, Name, OnlyKnownParameters, ServicesOf
from app.http.schemas import RecordsAnswer
from app.reads.records import read_records
from app.reads.routes import Bigints

router = APIRouter(prefix="/v1/streams", tags=["records"], dependencies=[OnlyKnownParameters])

MAX_OFFSET = 2**62
Partition = Annotated[
    int | None,
    Query(
        ge=0,
        le=100_000,
        description="Partition; each is read separately. Absent: for a source, partition 0 alone (`partition_count` of the answer is the "
        "number of partitions); for a derived stream, all records in the order "
        "in which its query emitted them, and offsets count over all of its partitions.",
    ),
]
Offset = Annotated[int | None, Query(ge=0, le=MAX_OFFSET, description="First offset; absent: the oldest one.")]
_OK = answered(RECORDS, "Records in offset order.")
_OK["content"] |= lines_documented('{"$offset":0,"$event_time_ms":1357035420000,"origin":"EWR","flight":1545}\n')


PartOf = Annotated[
    str | None,
    Query(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00]+$",
        description="Read one of the answer's `parts`: results that a query appended to this stream, with the columns and the event times of "
        "this stream. Offsets are the part's. Absent: the stream's own log.",
    ),
]


@router.get(
    "/{name}/records",
    summary="Read a stream's records",
    response_model=RecordsAnswer,
    responses={200: _OK, **problems(400, 404, 409, 410)},
)
@cancel_on_client_disconnect
async def get_records(
    name: Name,
    request: Request,
    services: ServicesOf,
    partition: Partition = None,
    offset: Offset = None,
    part: PartOf = None,
    bigints: Bigints = "number",
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Records of one partition from `offset` on; continue with `next_offset`. For sources and results.

    An answer of large records ends before `limit` (16 MiB, `SLACKWATER_LIMITS__PAGE_BYTES`): there are more records
    while `next_offset` is less than `end_offset`.

    If queries append to the stream (`into.append_to`), each part has its own offsets: `parts` has their names, `part` reads one. `/changes`
    has all records together, and can be resumed.

    A stream that shares its feed skips records of other relations, so offsets can have gaps. With `Accept: application/x-ndjson` records
    come as lines.
    """
    async with services.database.reads.connect() as connection:
        relation = of_kind(await find_relation_async(connection, name), "stream", name)
        parts = (await connection.execute(parts_in_order(name))).scalars().all()
        writer = relation if part is None else await _part(connection, name, part, parts)
        result = await result_position(connection, writer)
    entry = entry_of_row(relation)
    entry = entry if part is None else replace(entry, feed=entry_of_row(writer).feed)
    async with services.database.scans.connection() as scanning, scanning.transaction():
        most = Most(limit, services.settings.limits.page_bytes)
        page = await read_records(scanning, entry, partition, offset, most, time.time_ns() // 1_000_000)
    records = encode_records(page.frame, entry.relation.columns, has_text_numbers=bigints == "string")
    rest = {
        "stream": name,
        "part": part,
        "parts": [visible(each) for each in parts],
        "partition": page.partition,
        "partition_count": page.partition_count,
        "next_offset": page.next_offset,
        "end_offset": page.end_offset,
        **described(result),
    }
    return page_response(request, "records", records, rest)


async def _part(connection: AsyncConnection, name: str, part: str, parts: Sequence[str]) -> RelationRow:
    """Return a part of a stream. A part whose name the caller may not see counts as unknown."""
    if part not in parts or visible(part) != part:
        has = f"its parts are {', '.join(map(visible, parts))}" if parts else "no query appends to it"
        detail = f"'{name}' has no part '{part}'; {has}"
        raise BadRequest("bad_parameter", f"part: {detail}", [Fault("?part", "bad_parameter", detail)])
    return of_kind(await find_relation_async(connection, part), "stream", part)


def described(result: ResultPosition) -> dict[str, Any]:
    """Return the members of an answer about the position of the result."""
    return {
        "position": visible_position(result.position),
        "stream_time_ms": result.stream_time_ms,
        "committed_at": None if result.committed_at is None else result.committed_at.isoformat().replace("+00:00", "Z"),
        "stale": result.is_stale,
    }


@dataclass(frozen=True, slots=True)
class ResultPosition:
    """Facts of the last commit.

    Attributes:
        position: feed → partition → next offset.
        is_stale: whether its query does not run.
    """

    position: dict[str, dict[str, int]]
    stream_time_ms: int | None
    committed_at: datetime | None
    is_stale: bool


IS_ALIVE = sa.and_(
    query_status.c.state == "running", sa.func.coalesce(query_status.c.lease_expires_at > sa.func.now(), sa.false())
)
"""The query runs, and its driver sends heartbeats: a killed driver leaves "running" behind."""

NOTHING_YET = ResultPosition({}, None, None, is_stale=True)


async def result_position(connection: AsyncConnection, row: RelationRow) -> ResultPosition:
    """Return the position of a relation's content. A source has none and is never stale; a result without its query is always stale."""
    if row.kept is not None:
        retained = row.kept
        committed_at = None if retained["committed_at"] is None else datetime.fromisoformat(retained["committed_at"])
        return ResultPosition(retained["position"], retained["stream_time_ms"], committed_at, is_stale=True)
    if row.produced_by is None:
        return ResultPosition({}, None, None, is_stale=False)
    statement = (
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at, IS_ALIVE.label("is_alive"))
        .join_from(query, query_status)
        .join(commit, sa.and_(commit.c.query_id == query.c.id, commit.c.checkpoint_id == query.c.checkpoint_id), isouter=True)
        .where(query.c.name == row.produced_by, query.c.deleted_at.is_(None))
    )
    status_row = (await connection.execute(statement)).one_or_none()
    if status_row is None:
        return NOTHING_YET
    return ResultPosition(
        status_row.position or {}, status_row.stream_time_ms, status_row.committed_at, is_stale=not status_row.is_alive
    )
