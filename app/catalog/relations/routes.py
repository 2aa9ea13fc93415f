"""Streams and tables: register, get, list, delete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Response

from app.access.rules import refuse_beyond_scope, visible
from app.access.scopes import feeds_in
from app.catalog.relations.edits import delete_source, put_source
from app.catalog.relations.parts import parts_of
from app.catalog.relations.rules import inference_request, inferred, read_source, source_warnings, spelled_out, warnings_of
from app.catalog.stored.catalog import entry_of
from app.catalog.stored.relations import Kind, RelationRow, get_relation, list_relations, readers_of
from app.catalog.warned import shown_warnings
from app.db.database import raw, service_context_of
from app.db.page_bounds import Most
from app.http.answers.documented import answered, body_examples, problems
from app.http.examples import (
    REGISTERED_STREAM,
    REGISTERED_TABLE,
    STREAM,
    STREAM_DEFINITION,
    STREAM_SHARED,
    TABLE,
    TABLE_BY_EVENT_TIME,
    TABLE_DEFINITION,
    TABLE_FILES,
)
from app.http.parameters import (
    DEFAULT_LIMIT,
    Inspection,
    Limit,
    Name,
    OnlyKnownParameters,
    PlanningTurn,
    Services,
    ServicesOf,
    Transaction,
    looked_outside,
    planned,
)
from app.http.requests.bodies import JsonBody, request_body
from app.http.requests.conditions import (
    NOT_MODIFIED,
    IfChanged,
    OfPut,
    OfWrite,
    Preconditions,
    not_modified,
    set_etag,
    set_read_headers,
)
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import PartitionRange, RegisteredAnswer, RelationAnswer, RelationPage
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.model import NAME_PATTERN
from engine.log.storage import Head
from engine.plan.catalog import CatalogEntry, feed_of, relation_schema
from engine.plan.warnings import DefinitionWarning
from engine.sources.connector_kinds import control_of, heads_of
from engine.statements.writing.writing_sources import source_statement_of

streams = APIRouter(prefix="/v1/streams", tags=["streams"], dependencies=[OnlyKnownParameters])
tables = APIRouter(prefix="/v1/tables", tags=["tables"], dependencies=[OnlyKnownParameters])

Validate = Annotated[
    bool,
    Query(
        description="Only show the result: nothing is stored. External systems (brokers, directories) are read as in a real request."
    ),
]
_NAME = re.compile(NAME_PATTERN)
_PUT_ERRORS = problems(400, 409, 412, 413, 415, 422)
_ETAG = {"ETag": "The version."}
_ANSWERED_STREAM: dict[int | str, dict[str, Any]] = {
    200: answered(REGISTERED_STREAM, "It existed; it has this definition now.", _ETAG),
    201: {"model": RegisteredAnswer, **answered(REGISTERED_STREAM, "Registered.", {**_ETAG, "Location": "Its path."})},
}
_ANSWERED_TABLE: dict[int | str, dict[str, Any]] = {
    200: answered(REGISTERED_TABLE, "It existed; it has this definition now.", _ETAG),
    201: {"model": RegisteredAnswer, **answered(REGISTERED_TABLE, "Registered.", {**_ETAG, "Location": "Its path."})},
}


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """The definition of a PUT, and its warnings."""

    definition: SourceDefinition
    warnings: list[DefinitionWarning]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        detail = f"{name[:80]!r} is not a valid name: use lower case letters, digits and _, starting with a letter, at most 63"
        raise DefinitionInvalid([Problem("", "malformed_name", detail)])


def _read(model: type[SourceDefinition], body: Any) -> SourceDefinition:
    definition = read_source(model, body)
    refuse_beyond_scope(feeds_in(definition))
    return definition


async def _looked_at(name: str, model: type[SourceDefinition], body: Any, services: Services) -> _LookedAt:
    _check_name(name)
    site = service_context_of(services.settings)
    warnings: list[DefinitionWarning] = []
    request = await planned(services, lambda: inference_request(name, model, body))
    if request is not None:
        inferred_columns = await looked_outside(services, lambda: inferred(request, site))
        body, warnings = spelled_out(body, inferred_columns), warnings_of(inferred_columns)
    definition = await planned(services, lambda: _read(model, body))
    feed = feed_of(name, definition)
    await looked_outside(services, lambda: control_of(feed).check(feed, site, relation_schema(name, definition)))
    return _LookedAt(definition, [*warnings, *source_warnings(definition)])


async def _stream_looked_at(name: Name, body: JsonBody, services: ServicesOf) -> _LookedAt:
    return await _looked_at(name, StreamDefinition, body, services)


async def _table_looked_at(name: Name, body: JsonBody, services: ServicesOf) -> _LookedAt:
    return await _looked_at(name, TableDefinition, body, services)


# Before the transaction begins and before its permit is taken: this reads external systems, which may be unreachable.
_StreamLookedAt = Annotated[_LookedAt, Depends(_stream_looked_at)]
_TableLookedAt = Annotated[_LookedAt, Depends(_table_looked_at)]


@streams.put(
    "/{name}",
    summary="Register a stream",
    response_model=RegisteredAnswer,
    responses={**_ANSWERED_STREAM, **_PUT_ERRORS},
    openapi_extra=request_body(
        "StreamDefinition",
        body_examples(
            log=("A stream in the built-in log", STREAM_DEFINITION),
            shared=("One of several relations in one feed", STREAM_SHARED),
        ),
    ),
)
def put_stream(
    name: Name,
    looked_at: _StreamLookedAt,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    conditions: OfPut,
    validate: Validate = False,
) -> RegisteredAnswer:
    """Register a source of records, or change the existing one as far as its records and readers allow.

    With records in it, new columns are possible, which are null in these records. Columns may get types that fit all their values (int to
    bigint or double; decimals with more digits). Queries that select all columns continue with their present ones, in a spelled-out `select`.
    The answer has every default. An equal definition changes nothing, so the request can be repeated. `"columns": "infer"` takes columns, and
    the key if the records show it, from the connector: a topic's schema or newest records, a directory's newest file. The result is stored
    and shown; `warnings` names fields that are no columns. With `validate=true` everything is checked and answered, and nothing is stored.
    """
    source_request = _SourceRequest("stream", name, looked_at, services.settings.spark.query_cores)
    return _put(transaction, source_request, conditions, None if validate else response)


@tables.put(
    "/{name}",
    summary="Register a table",
    response_model=RegisteredAnswer,
    responses={**_ANSWERED_TABLE, **_PUT_ERRORS},
    openapi_extra=request_body(
        "TableDefinition",
        body_examples(
            versioned=("A versioned table in the built-in log", TABLE_DEFINITION),
            files=("A table read from a directory", TABLE_FILES),
            changes=("Changes of a database's table, of which the latest by event time counts", TABLE_BY_EVENT_TIME),
        ),
    ),
)
def put_table(
    name: Name,
    looked_at: _TableLookedAt,
    _turn: PlanningTurn,
    transaction: Transaction,
    services: ServicesOf,
    response: Response,
    conditions: OfPut,
    validate: Validate = False,
) -> RegisteredAnswer:
    """Register a source of upserts and deletes by key, or change the existing one as far as its records and readers allow.

    With `versioned` it keeps every version of a key for its history retention. Otherwise it keeps one row per key: the last one to arrive, or
    with `conflict: latest_event_time` the one with the latest event time; then deletes are remembered for ever. `warnings` names a choice that
    was left open. Changes of columns with records, `"columns": "infer"` and `validate=true` are as for streams. The answer has every default.
    """
    source_request = _SourceRequest("table", name, looked_at, services.settings.spark.query_cores)
    return _put(transaction, source_request, conditions, None if validate else response)


@streams.get(
    "",
    summary="List streams",
    response_model=RelationPage,
    responses={200: answered({"items": [STREAM], "next": None}, "Streams, by name."), **problems(400)},
)
def get_streams(
    services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> RelationPage:
    """Sources and results."""
    return listed(transaction, "stream", Most(limit, services.settings.limits.page_bytes), cursor)


@tables.get(
    "",
    summary="List tables",
    response_model=RelationPage,
    responses={200: answered({"items": [TABLE], "next": None}, "Tables, by name."), **problems(400)},
)
def get_tables(
    services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> RelationPage:
    """Sources and results."""
    return listed(transaction, "table", Most(limit, services.settings.limits.page_bytes), cursor)


@streams.get(
    "/{name}",
    summary="Get a stream",
    response_model=RelationAnswer,
    responses={200: answered(STREAM, "The stream.", _ETAG), **NOT_MODIFIED, **problems(400, 404)},
)
def get_stream(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> RelationAnswer | Response:
    """Columns, connector, writer, readers, and the ends of its log."""
    return _get(transaction, "stream", name, response, if_none_match)


@tables.get(
    "/{name}",
    summary="Get a table",
    response_model=RelationAnswer,
    responses={200: answered(TABLE, "The table.", _ETAG), **NOT_MODIFIED, **problems(400, 404)},
)
def get_table(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> RelationAnswer | Response:
    """Columns, key, connector, writer, readers, and the ends of its log."""
    return _get(transaction, "table", name, response, if_none_match)


@streams.delete(
    "/{name}",
    summary="Delete a stream",
    status_code=204,
    responses={204: {"description": "Deleted."}, **problems(400, 404, 409, 412)},
)
def delete_stream(name: Name, transaction: Transaction, conditions: OfWrite) -> None:
    """Delete a source with its records, or a result of a deleted query. This is refused while a query reads it.

    The result of an existing query is deleted with the query.
    """
    delete_source(transaction, "stream", name, conditions)


@tables.delete(
    "/{name}",
    summary="Delete a table",
    status_code=204,
    responses={204: {"description": "Deleted."}, **problems(400, 404, 409, 412)},
)
def delete_table(name: Name, transaction: Transaction, conditions: OfWrite) -> None:
    """Delete a source with its records, or a result of a deleted query. This is refused while a query reads it.

    The result of an existing query is deleted with the query.
    """
    delete_source(transaction, "table", name, conditions)


@dataclass(frozen=True, slots=True)
class _SourceRequest:
    """The source of a PUT."""

    kind: Kind
    name: str
    looked_at: _LookedAt
    cores: int


def _put(
    connection: sa.Connection, source_request: _SourceRequest, conditions: Preconditions, response: Response | None
) -> RegisteredAnswer:
    """Register the source, and set the headers of ``response``; None: answer the same, and roll the changes back."""
    name, kind = source_request.name, source_request.kind
    with connection.begin_nested() as savepoint:
        result = put_source(connection, kind, name, source_request.looked_at.definition, conditions, source_request.cores)
        answer = _registered(connection, source_request, result.row)
        if response is None:
            savepoint.rollback()
            return answer
    if result.is_created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/{kind}s/{name}"
    set_etag(response, result.row.version)
    return answer


def _registered(connection: sa.Connection, source_request: _SourceRequest, row: RelationRow) -> RegisteredAnswer:
    answer = _answers(connection, [row])[0]
    return RegisteredAnswer(
        **dict(answer),
        warnings=shown_warnings(source_request.looked_at.warnings),
        sql=source_statement_of(source_request.name, source_request.looked_at.definition),
    )


def _get(
    connection: sa.Connection, kind: Kind, name: str, response: Response, if_none_match: str | None
) -> RelationAnswer | Response:
    row = get_relation(connection, kind, name)
    same = not_modified(if_none_match, row.version)
    if same is not None:
        return same
    set_read_headers(response, row.version)
    return _answers(connection, [row])[0]


def listed(connection: sa.Connection, kind: Kind, most: Most, cursor: str | None) -> RelationPage:
    """Return a page of relations; the number of statements does not depend on their number."""
    after = decode_cursor(cursor, [str])
    bounds = Most(most.items + 1, most.bytes)
    relations, is_beyond = list_relations(connection, kind, bounds, None if after is None else str(after[0]))
    rows, following = page(relations, most.items, lambda row: [row.name], is_last_beyond=is_beyond)
    return RelationPage(items=_answers(connection, rows), next=following)


def _answers(connection: sa.Connection, rows: Sequence[RelationRow]) -> list[RelationAnswer]:
    readers = readers_of(connection, [row.id for row in rows])
    entries = [entry_of(row.name, row.kind, row.origin, row.definition, row.produced_by, []) for row in rows]
    parts = parts_of(connection, [row.name for row in rows])
    heads = heads_of(raw(connection), [entry.feed for entry in entries])
    return [
        _answer(row, entry, (readers.get(row.id, []), parts.get(row.name, [])), heads.get(entry.feed.log_feed))
        for row, entry in zip(rows, entries, strict=True)
    ]


def _answer(
    row: RelationRow, entry: CatalogEntry, names: tuple[list[str], list[str]], heads: Sequence[Head] | None
) -> RelationAnswer:
    readers, parts = names
    partitions = None if heads is None else [
        PartitionRange(partition=head.partition, start_offset=head.start_offset, next_offset=head.next_offset) for head in heads
    ]  # fmt: skip
    return RelationAnswer(
        name=row.name,
        kind=row.kind,
        origin=row.origin,
        key=list(entry.relation.key),
        columns={name: str(declared) for name, declared in entry.relation.columns.items()},
        definition=row.definition if row.origin == "source" else None,
        produced_by=None if row.produced_by is None else visible(row.produced_by),
        read_by=[visible(reader) for reader in readers],
        parts=[visible(part) for part in parts],
        append_to=None if entry.append_to is None else visible(entry.append_to),
        read_only=entry.is_read_only,
        partitions=partitions,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
