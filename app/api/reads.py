"""GET …/rows: pull reads of materialised tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Request, Response

from app.api.deps import DEFAULT_LIMIT, Limit, Name, Services, ServicesOf, known_parameters, unknown_parameter
from app.api.documented import answered, problems
from app.api.examples import ROWS
from app.api.negotiation import described, lines_documented, page_response
from app.api.paging import Cursor, bad_cursor, decode_cursor, encode_cursor
from app.api.schemas import RowsAnswer
from app.domain.values import parse_instant_ms, parse_value
from app.errors import BadRequest, Conflict, Fault, NotFound, Unavailable, Unprocessable
from app.store.catalog import output_of
from app.store.relations import RelationRow, of_kind
from app.store.results import result_position
from app.store.rows import WINDOW_END, WINDOW_START, RowsRequest, find_rows
from app.store.targets import find_relation_async
from engine.plan.model import Output

KEY_PREFIX = "key."
# Parameters that a later release brings: refused by name, never ignored.
LATER = ("as_of", "from", "to", "order", "state", "min_position", "max_staleness")
router = APIRouter(prefix="/v1/tables", tags=["reads"], dependencies=[known_parameters(KEY_PREFIX, LATER)])

Bigints = Annotated[
    Literal["number", "string"],
    Query(description="How bigint and decimal values are written: many clients lose digits of numbers beyond 2^53."),
]
WindowBound = Annotated[str | None, Query(max_length=64, description="RFC 3339, or milliseconds since 1970.")]
_OK = answered(ROWS, "Rows in key order, as of the last commit.")
_OK["content"] |= lines_documented('{"origin":"JFK","window_start":"2013-01-01T10:00:00Z","flights":17}\n')
_RESPONSES = {200: _OK, **problems(400, 404, 409, 422)}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a request asks of a table; nothing of it is checked against the table's columns yet."""

    table: str
    filters: list[tuple[str, str]]
    single_key: str | None
    window_from_ms: int | None
    window_to_ms: int | None
    has_text_numbers: bool
    limit: int
    cursor: str | None


@router.get("/{name}/rows", summary="Read a table's rows", response_model=RowsAnswer, responses=_RESPONSES)
async def get_rows(
    name: Name,
    request: Request,
    services: ServicesOf,
    window_from: WindowBound = None,
    window_to: WindowBound = None,
    bigints: Bigints = "number",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Rows as of the query's last commit, in every state of the query: `stale` is true while it does not run.

    Filter by key columns (`?key.origin=JFK&key.carrier=B6`) and, in a windowed table, by the start of the window: from `window_from`
    up to, not including, `window_to`. Pages go on with `cursor`. With `Accept: application/x-ndjson` rows come as lines.
    """
    bounds = _bound("window_from", window_from), _bound("window_to", window_to)
    wanted = _Wanted(name, _filters(request), None, *bounds, bigints == "string", limit, cursor)
    return await _answer(services, request, wanted)


@router.get("/{name}/rows/{key:path}", summary="Read one key's rows", response_model=RowsAnswer, responses=_RESPONSES)
async def get_rows_of_key(
    name: Name,
    key: Annotated[str, Path(description="Value of the key column.", examples=["JFK"], max_length=4096)],
    request: Request,
    services: ServicesOf,
    window_from: WindowBound = None,
    window_to: WindowBound = None,
    bigints: Bigints = "number",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    """The row of one key, or its windows: the same answer as `?key.<column>=…`, but 404 `row_not_found` where there is none.

    For tables with one key column beside the window; composite keys are asked for as `/rows?key.a=…&key.b=…`.
    """
    bounds = _bound("window_from", window_from), _bound("window_to", window_to)
    wanted = _Wanted(name, _filters(request), key, *bounds, bigints == "string", limit, cursor)
    return await _answer(services, request, wanted)


def _filters(request: Request) -> list[tuple[str, str]]:
    for name in LATER:
        if name in request.query_params:
            detail = f"`{name}` comes in a later release; leave it out to read the rows of now"
            raise Unprocessable("not_supported_yet", detail, [Fault(f"?{name}", "not_supported_yet", detail)])
    return [
        (name.removeprefix(KEY_PREFIX), value)
        for name, value in request.query_params.multi_items()
        if name.startswith(KEY_PREFIX)
    ]


async def _answer(services: Services, request: Request, wanted: _Wanted) -> Response:
    async with services.database.reads.connect() as connection:
        # One snapshot: the position must be that of the rows.
        await connection.execution_options(isolation_level="REPEATABLE READ")
        relation = of_kind(await find_relation_async(connection, wanted.table), "table", wanted.table)
        if relation.origin == "source":
            raise _not_materialised(relation)
        output = output_of(relation.definition)
        rows_request = _rows_request(output, wanted)
        result = await result_position(connection, relation)
        try:
            found = await find_rows(connection, rows_request)
        except sa.exc.DataError as error:  # values of filters were parsed before; a cursor's can only be tried
            raise bad_cursor() from error
        except sa.exc.ProgrammingError as error:  # a query was deleted or began anew after it had been looked up
            raise Unavailable(
                "relation_changing", f"'{wanted.table}' is being changed; try again", headers={"Retry-After": "1"}
            ) from error
    if wanted.single_key is not None and not found:
        raise NotFound("row_not_found", f"'{wanted.table}' has no row for this key; rows appear with the query's commits")
    following = encode_cursor(found[wanted.limit - 1].key) if len(found) > wanted.limit and output.key else None
    rest = {"table": wanted.table, **described(result), "next": following}
    return page_response(request, "rows", [row.json for row in found[: wanted.limit]], rest)


def _not_materialised(relation: RelationRow) -> Conflict:
    return Conflict(
        "not_materialised",
        f"'{relation.name}' is a source: its records are in the log, its rows nowhere. A query makes rows: POST /v1/queries with "
        f'"into": {{"table": …}}, then read that table; what was appended is counted at GET /v1/tables/{relation.name}',
    )


def _rows_request(output: Output, wanted: _Wanted) -> RowsRequest:
    filters = [*wanted.filters, *_single_key(output, wanted)]
    if not output.is_windowed and (wanted.window_from_ms, wanted.window_to_ms) != (None, None):
        raise BadRequest("not_windowed", f"'{output.name}' has no windows; leave `window_from` and `window_to` out")
    after = decode_cursor(wanted.cursor, [str] * len(output.key))
    return RowsRequest(
        name=output.name,
        columns=output.columns,
        key=output.key,
        equal=_equal(output, filters),
        window_from_ms=wanted.window_from_ms,
        window_to_ms=wanted.window_to_ms,
        after=None if after is None else [str(part) for part in after],
        limit=wanted.limit + 1,
        has_text_numbers=wanted.has_text_numbers,
    )


def _single_key(output: Output, wanted: _Wanted) -> list[tuple[str, str]]:
    if wanted.single_key is None:
        return []
    columns = [name for name in output.key if not (output.is_windowed and name in (WINDOW_START, WINDOW_END))]
    if len(columns) != 1:
        asked = "&".join(f"{KEY_PREFIX}{name}=…" for name in columns)
        raise BadRequest(
            "composite_key",
            f"the key of '{output.name}' has {len(columns)} columns; ask for /v1/tables/{output.name}/rows?{asked}",
        )
    return [(columns[0], wanted.single_key)]


def _equal(output: Output, filters: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Parse filters into values of their columns' types."""
    unknown = [f"{KEY_PREFIX}{name}" for name, _ in filters if name not in output.key]
    if unknown:
        raise unknown_parameter(unknown, [f"{KEY_PREFIX}{name}" for name in output.key])
    equal: dict[str, object] = {}
    for name, text in filters:
        try:
            if name in equal:
                raise ValueError("is given twice")
            equal[name] = parse_value(text, output.columns[name])
        except ValueError as error:
            raise _bad_parameter(f"{KEY_PREFIX}{name}", str(error)) from error
    return equal


def _bound(parameter: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise _bad_parameter(parameter, str(error)) from error


def _bad_parameter(parameter: str, detail: str) -> BadRequest:
    return BadRequest("bad_parameter", f"{parameter}: {detail}", [Fault(f"?{parameter}", "bad_parameter", detail)])
