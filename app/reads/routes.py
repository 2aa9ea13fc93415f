"""GET …/rows and POST …/rows:lookup: pull reads of materialised tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.errors.app_errors import BadRequest, Fault, Unprocessable
from app.http.answers.documented import answered, body_examples, problems
from app.http.answers.negotiation import SEPARATORS, arrow_documented, joined_response, lines_documented, requested_form
from app.http.guards.plain_route import PlainRoute
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import DEFAULT_LIMIT, MAX_KEY_LENGTH, Name, OnlyKnownParameters, ServicesOf, known_parameters
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.schemas import Answer, Position
from app.reads.freshness import ANY_FRESHNESS, read_fresh
from app.reads.parameters import AskedRead, Fresh, Rows, RowsParameters
from app.reads.readable import TOO_LARGE, Ask, Readables, ReadableTable
from app.reads.row_filters import COLUMN_PREFIX, KEY_PREFIX, is_filter, parse_key
from app.reads.row_reads import FOUND, ReadRequest, answer_rows, lookup_ask, members, not_versioned
from engine.expressions.limits import FewFields
from engine.plan.model import Output

MAX_LOOKUP_KEYS = 1_000

_AT = "2025-01-01T00:00:00Z"
_POSITION = {"log:departures": {"0": 9000, "1": 18004}}
ROWS: dict[str, Any] = {
    "table": "delays_by_airport",
    "position": _POSITION,
    "stream_time_ms": 1357041600000,
    "committed_at": _AT,
    "stale": False,
    "as_of_ms": None,
    "history_starts_at_ms": None,
    "truncated": False,
    "next": None,
    "rows": [
        {
            "origin": "JFK", "window_start": "2013-01-01T10:00:00Z", "window_end": "2013-01-01T11:00:00Z", "flights": 17,
            "mean_delay": 4.2, "worst": 48, "$state": "final",
        }
    ],
}  # fmt: skip
LOOKUP_BODY: dict[str, Any] = {"keys": [{"origin": "JFK"}, {"origin": "XXX"}]}
LOOKUP: dict[str, Any] = {
    "table": "weather",
    "position": {"log:weather": {"0": 2209}},
    "stream_time_ms": 1357041600000,
    "committed_at": _AT,
    "stale": False,
    "as_of_ms": 1357038000000,
    "history_starts_at_ms": 1356868800000,
    "results": [
        {"found": True, "reason": None, "row": {"origin": "JFK", "temp": 39.02, "observed_at": "2013-01-01T10:51:00Z"}},
        {"found": False, "reason": "row_not_found", "row": None},
    ],
}


class ReadAnswer(Answer):
    """Fields of every answer to a pull read."""

    table: str = Field(description="Name of the table.")
    position: Position = Field(
        description="Feed, partition, next offset: the records that this includes.", examples=[{"log:departures": {"0": 27004}}]
    )
    stream_time_ms: int | None = Field(
        description="Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."
    )
    committed_at: str | None = Field(
        description="Time of its query's last commit; null before the first commit.", json_schema_extra={"format": "date-time"}
    )
    stale: bool = Field(description="True while the query does not run.")
    as_of_ms: int | None = Field(description="The requested event time; null for now.")
    history_starts_at_ms: int | None = Field(
        description="Before this event time only a key's latest version can answer; null if the table is not versioned."
    )


class RowsAnswer(ReadAnswer):
    """Rows of a table. Rows of windowed tables have `$state`; versions have `$valid_from_ms` and `$valid_to_ms`."""

    truncated: bool = Field(description="The requested range of versions begins before the retained history.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    rows: list[dict[str, Any]] = Field(description="Rows, or versions, as columns by name.")


class LookupResult(BaseModel):
    """The result for one key."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    found: bool = Field(description="Whether there is a row for the key.")
    reason: Literal["row_not_found", "row_deleted", "history_expired"] | None = Field(description="Why there is no row.")
    row: dict[str, Any] | None = Field(description="The row, as columns by name; null if there is none.")


class LookupAnswer(ReadAnswer):
    """One result for each key, in order."""

    results: list[LookupResult] = Field(description="One for each key, in the order of the keys.")


class LookupBody(FewFields):
    """The keys to look up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: list[Any] = Field(
        min_length=1,
        max_length=MAX_LOOKUP_KEYS,
        description="Objects with every key column; for a key of one column, also bare values.",
    )


class KeyRoute(PlainRoute):
    """Reads the row. It does not watch for a disconnect of its client, which would cost more than the read."""

    def is_plain(self, request: Request) -> bool:
        return super().is_plain(request) and len(request.path_params["key"]) <= MAX_KEY_LENGTH

    async def answer(self, request: Request) -> Response:
        name, key = request.path_params["name"], request.path_params["key"]
        read_request = ReadRequest(name, DEFAULT_LIMIT, requested_form(request), key)
        return await answer_rows(request.app.state.services, read_request, ANY_FRESHNESS)


router = APIRouter(prefix="/v1/tables", tags=["reads"])
keys = APIRouter(prefix="/v1/tables", tags=["reads"], route_class=KeyRoute)

Bigints = Annotated[
    Literal["number", "string"],
    Query(description="Form of bigint and decimal values: many clients lose digits of numbers beyond 2^53."),
]
_OK = answered(ROWS, "Rows in key order, as of the last commit.")
_OK["content"] |= lines_documented('{"origin":"JFK","window_start":"2013-01-01T10:00:00Z","flights":17,"$state":"final"}\n')
_OK["content"] |= arrow_documented()
_RESPONSES = {200: _OK, **problems(400, 404, 409, 410, 422, 429, 504)}
_FILTERS = [known_parameters((KEY_PREFIX, COLUMN_PREFIX))]


@router.get("/{name}/rows", summary="Read a table's rows", response_model=RowsAnswer, responses=_RESPONSES, dependencies=_FILTERS)
@cancel_on_client_disconnect
async def get_rows(name: Name, request: Request, services: ServicesOf, parameters: Rows) -> Response:
    """Rows as of the query's last commit, in every state of the query: `stale` is true while it does not run.

    **Conditions** must all hold: `key.<column>=value` on key columns, `where.<column>=value` on any column; an operator may follow the column:
    `.eq .ne .gt .ge .lt .le .in .null`: `where.delay.ge=15`, `where.carrier.in=B6,AA` (a JSON array if values have commas),
    `where.temp.null=false`. `ne` also matches nulls. In a windowed table `window_from` and `window_to` bound the start of the window.

    **Time.** `as_of` returns rows as of an event time; `from` and `to` return every version that is valid in the range, each
    with `$valid_from_ms` and `$valid_to_ms` (null: still valid); both need a versioned table. Times before the retained history
    answer 410 `history_expired`; a range that begins there has `truncated` true. Rows of windowed tables have `$state`: `final` or
    `open`.

    Rows come in key order, page by page with `cursor`; as JSON, with `Accept: application/x-ndjson` as lines, with
    `Accept: application/vnd.apache.arrow.stream` as Arrow.
    """
    asked = parameters.asked()
    return await answer_rows(services, _read_request(name, request, parameters, asked, None), asked.freshness)


@keys.get(
    "/{name}/rows/{key:path}",
    summary="Read one key's rows",
    response_model=RowsAnswer,
    responses=_RESPONSES,
    dependencies=_FILTERS,
)
@cancel_on_client_disconnect
async def get_rows_of_key(
    name: Name,
    key: Annotated[str, Path(description="Value of the key column.", examples=["JFK"], max_length=MAX_KEY_LENGTH)],
    request: Request,
    services: ServicesOf,
    parameters: Rows,
) -> Response:
    """The row of one key, or its windows: the same answer as `?key.<column>=…`, but 404 if there is no row.

    `row_not_found`: there is no row; `row_deleted`: a versioned table had a row, and it was deleted; 410 `history_expired`: unknown,
    because the requested time is before the retained history and the key's latest version began later. With `from`
    or `to`: the key's versions; an empty list is not an error. Only for tables with one key column beside the window; for composite keys use
    `/rows?key.a=…&key.b=…`.
    """
    asked = parameters.asked()
    return await answer_rows(services, _read_request(name, request, parameters, asked, key), asked.freshness)


@router.post(
    "/{name}/rows:lookup",
    summary="Look many keys up",
    response_model=LookupAnswer,
    responses={
        200: answered(LOOKUP, "One result for each key, in order."),
        **problems(400, 404, 409, 413, 415, 422, 429, 504),
    },
    openapi_extra=request_body(
        "LookupBody",
        body_examples(
            keys=("Whole keys", LOOKUP_BODY),
            values=("Bare values, if the key has one column", {"keys": ["JFK", "EWR"]}),
        ),
    ),
    dependencies=[OnlyKnownParameters],
)
@cancel_on_client_disconnect
async def post_lookup(name: Name, body: JsonBody, request: Request, services: ServicesOf, parameters: Fresh) -> Response:
    """Up to 1,000 keys in one consistent read, each with its row or the reason why there is none.

    A key is an object with every key column (in a windowed table, with the window's bounds too); for a key of one column, the bare value
    is sufficient. `reason` is `row_not_found`, or for a versioned table `row_deleted` or `history_expired`. With
    `Accept: application/x-ndjson` results come as lines.
    """
    requested_keys = validated(LookupBody, body).keys
    asked, has_text_numbers = parameters.asked(), parameters.bigints == "string"

    def ask(table: ReadableTable) -> Ask:
        if asked.at_ms is not None and table.output.history_retention_ms is None:
            raise not_versioned(table.output, "as_of")
        return lookup_ask(_keys(table.output, requested_keys), asked.at_ms, has_text_numbers=has_text_numbers)(table)

    reading = await read_fresh(services, name, asked.freshness, lambda: services.of(Readables).read(name, ask))
    outcomes, rows = reading.values
    if TOO_LARGE in outcomes:
        raise services.of(Readables).too_large(name, "/keys", "ask for fewer keys, or keep less in a row")
    results = [_result(outcome, row) for outcome, row in zip(outcomes, rows, strict=True)]
    form = "lines" if requested_form(request) == "lines" else "json"
    rest = members(name, reading.head, reading.table.output, asked.at_ms)
    return joined_response(form, "results", SEPARATORS[form].join(results), rest)  # type: ignore[index,arg-type]


def _read_request(name: str, request: Request, parameters: RowsParameters, asked: AskedRead, key: str | None) -> ReadRequest:
    return ReadRequest(
        table=name,
        filters=[(parameter, text) for parameter, text in request.query_params.multi_items() if is_filter(parameter)],
        single_key=key,
        at_ms=asked.at_ms,
        range_ms=asked.range_ms,
        state=parameters.state,
        bounds_ms=asked.bounds_ms,
        is_descending=parameters.order == "desc",
        has_text_numbers=parameters.bigints == "string",
        limit=parameters.limit,
        cursor=parameters.cursor,
        form=requested_form(request),
    )


def _keys(output: Output, values: Sequence[Any]) -> list[tuple[object, ...]]:
    """Parse the keys of a lookup; each fault has its pointer."""
    if not output.key:
        raise BadRequest("table_without_key", f"'{output.name}' has one row and no key; GET /v1/tables/{output.name}/rows")
    keys, faults = [], []
    for place, one in enumerate(values):
        try:
            keys.append(parse_key(one, output.columns, output.key))
        except ValueError as error:
            faults.append(Fault(f"/keys/{place}", "bad_key", str(error)))
    if faults:
        raise Unprocessable("bad_key", f"{len(faults)} of {len(values)} keys: {faults[0].pointer}: {faults[0].detail}", faults)
    return keys


def _result(outcome: str, row: str | None) -> str:
    if outcome == FOUND:
        return f'{{"found":true,"reason":null,"row":{row}}}'
    return f'{{"found":false,"reason":{json.dumps(outcome)},"row":null}}'
