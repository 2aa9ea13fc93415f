"""POST …/records: append records to a source in the built-in log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.guard import recheck_of
from app.access.rules import refuse_beyond_scope
from app.appends.append_transaction import Appended
from app.appends.appender import Appender, Posted
from app.catalog.connections.registries import Registries
from app.catalog.warned import shown_warnings
from app.db.admission import Passing
from app.errors.app_errors import BadRequest, Fault, Unprocessable, UnsupportedMediaType
from app.http.answers.documented import answered, body_examples, problems
from app.http.answers.negotiation import JSON_TYPE
from app.http.examples import APPENDED, DELETE_BODY, RECORDS_BODY
from app.http.guards.plain_route import PlainRoute
from app.http.parameters import (
    MAX_NAME_LENGTH,
    Name,
    OnlyKnownParameters,
    ParameterFaults,
    Services,
    ServicesOf,
    bad_parameter,
    is_name,
)
from app.http.requests.bodies import media_type_of, refuse_encoding
from app.http.requests.conditions import IdempotencyKey
from app.http.schemas import AppendAnswer, AppendedRange, RejectedRecord
from engine.formats.bodies.bodies import ARROW_TYPES, JSON_TYPES, MEDIA_TYPES
from engine.formats.bodies.body_formats import POSTED, BodyOptions, option_faults
from engine.formats.json.json_records import BodyMalformed
from engine.formats.port import FormatInvalid, RegistryRefused


class AppendRoute(PlainRoute):
    """Appends the body of a request without an idempotency key."""

    def is_plain(self, request: Request) -> bool:
        return super().is_plain(request) and "idempotency-key" not in request.headers

    async def answer(self, request: Request) -> Response:
        kind = "stream" if self.path_format.startswith("/v1/streams/") else "table"
        answer = await _append(kind, request.path_params["name"], request, request.app.state.services, None, None)
        return Response(answer.model_dump_json(), media_type=JSON_TYPE)


router = APIRouter(prefix="/v1", tags=["records"], dependencies=[OnlyKnownParameters], route_class=AppendRoute)

# Fault pointers of a request whose records are all rejected; a partly rejected request lists more.
LISTED_FAULTS = 100

# The approximate cost of a request while it waits, whatever its size: a bound on bytes also bounds the number of requests.
LEAST_BYTES = 16_384

_RECORD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Columns by name. `$op`: `upsert` or `delete`; in a stream, a delete is a record with a key and no value. `$event_time_ms`: "
    "event time of a delete without its event-time column.",
    "additionalProperties": True,
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Records. Bigints beyond 2^53 and decimals may be strings.",
        "content": {
            "application/json": {
                # Only an array: for a union with a single record, generators make clients that send neither.
                "schema": {
                    "type": "array",
                    "items": _RECORD_SCHEMA,
                    "description": "A single record needs no array.",
                },
                "examples": body_examples(
                    several=("An array of records", RECORDS_BODY),
                    delete=("A delete from a table", [DELETE_BODY]),
                ),
            },
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "One JSON object per line."},
                "example": '{"origin": "JFK", "flight": 725, "departed_at": "2013-01-01T10:44:00Z"}\n',
            },
            "application/vnd.apache.arrow.stream": {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "An Arrow IPC stream with the relation's columns.",
                }
            },
        },
    }
}
_RESPONSES = {200: answered(APPENDED, "The accepted records are appended."), **problems(400, 404, 409, 413, 415, 422, 429)}

_FORMATS: Final = ", ".join(f"`{name}`" for name in POSTED)
_TEXT: Final[dict[str, Any]] = {"max_length": MAX_NAME_LENGTH, "pattern": r"^[^\x00]+$"}

Format = Annotated[
    str | None,
    Query(
        **_TEXT,
        description=f"Format of the body, one of {_FORMATS}; absent: its media type gives the format, strictly. `json`, `json_lenient` (as "
        "ksqlDB reads) and `debezium` (change events, to tables): an array, one value, or lines (`application/x-ndjson`). `avro`: an object "
        "container file (codecs null and deflate). `protobuf`: messages with their lengths before them, as writeDelimitedTo writes; their "
        "schema is the newest of `subject`. `delimited` and `string`: lines. `bytes` and `kafka` (as Kafka's serialisers write numbers): "
        "the body is one record. With `registry` the body is one payload as in a topic, after the id of its schema. Undeclared fields "
        "are left out.",
    ),
]
RegistryName = Annotated[
    str | None,
    Query(**_TEXT, description="For json, json_lenient, avro, protobuf and debezium: the connection of a schema registry."),
]
Subject = Annotated[
    str | None, Query(**_TEXT, description="For protobuf, with `registry`: the subject whose newest schema the messages have.")
]
Message = Annotated[
    str | None, Query(**_TEXT, description="For protobuf, with `subject`: full name of the message; absent: the first.")
]
Delimiter = Annotated[str | None, Query(**_TEXT, description="For delimited: one character, TAB or SPACE; absent: a comma.")]
Encoding = Annotated[str | None, Query(**_TEXT, description="For debezium: `json`, or `avro` with `registry`; absent: json.")]
TimeUnit = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the unit of numbers in columns of time and timestamp where an event has no schema: `ms`, `us`, `ns`; "
        "absent: ms.",
    ),
]
DecimalForm = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the meaning of texts in decimal columns where an event has no schema: `bytes` "
        "(decimal.handling.mode=precise) or `text` (string); absent: such an event is rejected.",
    ),
]
Absent = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: columns that changes may lack, separated by commas. They were dropped in the database, and are null from "
        "then on. Without it, a change without a column that earlier changes had is rejected (`column_gone`).",
    ),
]
SourceTable = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the tables of the database that the rows are of, with their schemas, separated by commas "
        "(`public.orders`); absent: the table of the first change. Changes of other tables are rejected (`other_table`).",
    ),
]


async def _body_options(
    request: Request,
    format: Format = None,  # noqa: A002 - the parameter's name
    registry: RegistryName = None,
    subject: Subject = None,
    message: Message = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    time_unit: TimeUnit = None,
    decimals: DecimalForm = None,
    absent: Absent = None,
    source_table: SourceTable = None,
) -> BodyOptions | None:
    parameters = {
        "registry": registry, "subject": subject, "message": message, "delimiter": delimiter, "encoding": encoding,
        "time_unit": time_unit, "decimals": decimals, "absent": absent, "source_table": source_table,
    }  # fmt: skip
    options = tuple((name, value) for name, value in parameters.items() if value is not None)
    faults = ParameterFaults()
    if format is None:
        for name, _ in options:
            faults.add(bad_parameter(name, f"belongs to a format; name it: format={' or '.join(POSTED)}"))
        faults.raise_all()
        return None
    known = POSTED.get(format)
    body_options = BodyOptions(format, media_type_of(request, *(MEDIA_TYPES if known is None else known.media_types)), options)
    for fault in option_faults(body_options):
        faults.add(bad_parameter(fault.setting, str(fault)))
    faults.raise_all()
    if known is not None and body_options.media_type not in known.media_types:
        raise UnsupportedMediaType(
            "unsupported_media_type", f"{format} can be sent as {', '.join(known.media_types)}, not as {body_options.media_type}"
        )
    return body_options


AskedFormat = Annotated[BodyOptions | None, Depends(_body_options)]
"""The format that the request names; None: none."""


@router.post(
    "/streams/{name}/records",
    summary="Append records to a stream",
    response_model=AppendAnswer,
    responses=_RESPONSES,
    openapi_extra=_BODY,
)
async def post_stream_records(
    name: Name, request: Request, services: ServicesOf, body_options: AskedFormat, idempotency_key: IdempotencyKey = None
) -> AppendAnswer:
    """Append records. They are durable when the answer arrives with their offsets.

    A record with `"$op": "delete"` has its key and no value. A `select` forwards it, and no condition holds for it. Joins and aggregations drop
    and count it (`null_value`). In a table that a query writes, it deletes the row of its key.

    A record that cannot be read does not block the others. It is stored as a reject, and the answer has its index and reason. If all records
    are rejected, the answer is 422 `records_rejected`. `warnings` describes unusual values in the appended records.
    """
    return await _append("stream", name, request, services, body_options, idempotency_key)


@router.post(
    "/tables/{name}/records",
    summary="Append records to a table",
    response_model=AppendAnswer,
    responses=_RESPONSES,
    openapi_extra=_BODY,
)
async def post_table_records(
    name: Name, request: Request, services: ServicesOf, body_options: AskedFormat, idempotency_key: IdempotencyKey = None
) -> AppendAnswer:
    """Append upserts and deletes (`"$op": "delete"`). They are durable when the answer arrives with their offsets.

    A delete's event time is its event-time column, else `$event_time_ms`. Without either it is rejected as `event_time_missing` if the
    table names an event-time column. A table without one uses the time of arrival.

    A record that cannot be read does not block the others. It is stored as a reject, and the answer has its index and reason. If all records
    are rejected, the answer is 422 `records_rejected`. `warnings` describes unusual values in the appended records.

    With `format=debezium` the body has change events, as Debezium Server's HTTP sink posts them. An event that is the same as an earlier one of
    its key, or older in the database's log, is left out (`older_count`), however long ago that one came. So a repeated request appends nothing.
    An event that cannot be read is stored as a reject and answered with 200, because Debezium would send it again for ever. With
    `on_bad_record: stop` the answer is 422, and Debezium does send it again.
    """
    return await _append("table", name, request, services, body_options, idempotency_key)


async def _append(
    kind: str, name: str, request: Request, services: Services, body_options: BodyOptions | None, idempotency_key: str | None
) -> AppendAnswer:
    refuse_encoding(request)
    media_type = media_type_of(request, *MEDIA_TYPES)
    if body_options is None and media_type not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            "unsupported_media_type",
            f"records can be sent as {', '.join(MEDIA_TYPES)}, not as {media_type}; name other formats with `format`",
        )
    try:
        with services.gates.append_bytes.passed(_declared_bytes(request, services.settings.max_body_bytes)) as passing:
            body = await _body(request, passing)
            await recheck_of(request)()  # the key may be revoked while a body arrives
            async with with_registry(services, body_options) as posted:
                appended = await services.of(Appender).append(kind, name, body, media_type, idempotency_key, posted)
    except BodyMalformed as error:
        code = _malformed_code(media_type, body_options)
        raise BadRequest(code, str(error), [Fault("", code, str(error))]) from error
    return _answer(appended, is_resent=body_options is not None and body_options.format == "debezium")


def _malformed_code(media_type: str, body_options: BodyOptions | None) -> str:
    if body_options is not None and media_type not in JSON_TYPES:
        return "malformed_records"
    return "malformed_arrow" if media_type in ARROW_TYPES else "malformed_json"


def _declared_bytes(request: Request, max_body_bytes: int) -> int:
    declared = request.headers.get("content-length", "")
    return max(LEAST_BYTES, min(int(declared), max_body_bytes) if declared.isdecimal() else 0)


async def _body(request: Request, passing: Passing) -> bytes:
    """Read the body; a body without a declared length is counted as it arrives."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        passing.grow(size)
        parts.append(part)
    return b"".join(parts)


def _answer(appended: Appended, *, is_resent: bool) -> AppendAnswer:
    """Answer. ``is_resent``: the sender repeats everything until the answer is 200."""
    has_none = not appended.ranges and not appended.older
    if appended.rejected_count and (appended.is_stopping if is_resent else has_none):
        raise _all_refused(appended)
    return AppendAnswer(
        appended=appended.count,
        offsets=[
            AppendedRange(
                partition=part.partition,
                first_offset=part.first_offset,
                last_offset=part.first_offset + part.count - 1,
                count=part.count,
            )
            for part in appended.ranges
        ],
        rejected_count=appended.rejected_count,
        rejected=[RejectedRecord(index=record.index, code=record.code, detail=record.detail) for record in appended.rejected],
        older_count=appended.older,
        warnings=shown_warnings(appended.warnings),
    )


def _all_refused(appended: Appended) -> Unprocessable:
    reasons = ", ".join(f"{reason} ({number})" for reason, number in appended.reasons.items())
    return Unprocessable(
        "records_rejected",
        f"none of the {appended.rejected_count} records was appended: {reasons}; …/rejects has them",
        [Fault(f"/{record.index}", record.code, record.detail) for record in appended.rejected[:LISTED_FAULTS]],
    )


@asynccontextmanager
async def with_registry(services: Services, asked: BodyOptions | None) -> AsyncIterator[Posted | None]:
    """Return the format with the registry that a request names. At most so many bodies at once use registries.

    Raises:
        NotFound: ``connection_not_found``.
        Forbidden: ``out_of_scope``.
        TooManyRequests: too many bodies wait for registries.
        Unprocessable: ``registry_refused``, ``format_unfit``.
    """
    name = None if asked is None else asked.option("registry")
    try:
        if asked is None:
            yield None
        elif name is None:
            yield Posted(asked, None)
        else:
            refuse_beyond_scope([("?registry", name)])
            if not is_name(name):
                raise bad_parameter("registry", "is not a name")
            with services.gates.registries.passed():
                registry = await services.of(Registries).get(name)
                yield Posted(asked, registry)
    except FormatInvalid as error:
        pointer = f"{error.setting}: " if error.setting else ""
        raise Unprocessable("format_unfit", f"{pointer}{error}") from error
    except RegistryRefused:
        if name is not None:
            services.of(Registries).forget(name)
        raise
