"""GET /v1/streams/{name}/records: a stream's records by partition and offset."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.deps import DEFAULT_LIMIT, Limit, Name, OnlyKnownParameters, ServicesOf
from app.api.documented import answered, problems
from app.api.examples import RECORDS
from app.api.leaving import ended_with_client
from app.api.negotiation import described, lines_documented, page_response
from app.api.reads import Bigints
from app.api.schemas import RecordsAnswer
from app.domain.record_json import encode_records
from app.store.page_bounds import Most
from app.store.records import read_records
from app.store.relations import of_kind
from app.store.results import result_position
from app.store.targets import entry_of_row, find_relation_async

router = APIRouter(prefix="/v1/streams", tags=["records"], dependencies=[OnlyKnownParameters])

MAX_OFFSET = 2**62
Partition = Annotated[
    int | None,
    Query(
        ge=0,
        le=100_000,
        description="Which partition; each is read on its own. Absent: partition 0 of a source; a derived stream as a whole, in the order "
        "in which its query emitted the records, and offsets count over all of its partitions.",
    ),
]
Offset = Annotated[int | None, Query(ge=0, le=MAX_OFFSET, description="First offset; absent: the oldest there is.")]
_OK = answered(RECORDS, "Records in offset order.")
_OK["content"] |= lines_documented('{"$offset":0,"$event_time_ms":1357035420000,"origin":"EWR","flight":1545}\n')


@router.get(
    "/{name}/records",
    summary="Read a stream's records",
    response_model=RecordsAnswer,
    responses={200: _OK, **problems(400, 404, 409, 410)},
)
@ended_with_client
async def get_records(
    name: Name,
    request: Request,
    services: ServicesOf,
    partition: Partition = None,
    offset: Offset = None,
    bigints: Bigints = "number",
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Records of one partition from `offset` on; go on with `next_offset`. Sources and results alike.

    An answer ends early, before `limit`, where its records are large together (16 MiB, `SLACKWATER_LIMITS__PAGE_BYTES`): there is more
    as long as `next_offset` is less than `end_offset`.

    A stream that shares its feed skips the records of others, so offsets can have gaps. With `Accept: application/x-ndjson` records come
    as lines.
    """
    async with services.database.reads.connect() as connection:
        relation = of_kind(await find_relation_async(connection, name), "stream", name)
        result = await result_position(connection, relation)
    entry = entry_of_row(relation)
    async with services.database.scans.connection() as scanning, scanning.transaction():
        most = Most(limit, services.settings.limits.page_bytes)
        page = await read_records(scanning, entry, partition, offset, most, time.time_ns() // 1_000_000)
    records = encode_records(page.frame, entry.relation.columns, has_text_numbers=bigints == "string")
    rest = {
        "stream": name,
        "partition": page.partition,
        "next_offset": page.next_offset,
        "end_offset": page.end_offset,
        **described(result),
    }
    return page_response(request, "records", records, rest)
