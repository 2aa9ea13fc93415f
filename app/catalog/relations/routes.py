"""Streams and tables: register, look at, list, delete."""

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
from app.catalog.relations.inferring import inference_request, inferred, spelled_out, warnings_of
from app.catalog.relations.parts import parts_of
from app.catalog.relations.rules import read_source, source_warnings
from app.catalog.stored.catalog import entry_of
from app.catalog.stored.relations import Kind, RelationRow, get_relation, list_relations, readers_of
from app.catalog.warned import shown_warnings
from app.db.page_bounds import Most
from app.db.service_context import service_context_of
from app.db.transactions import raw
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
from app.http.requests.conditions import NOT_MODIFIED, IfChanged, OfPut, OfWrite, not_modified, set_etag, set_read_headers
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.requests.preconditions import Preconditions
from app.http.schemas import PartitionRange, RegisteredAnswer, RelationAnswer, RelationPage
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.names import NAME_PATTERN
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
        description="Only say what it would do: nothing stays. What lies outside (brokers, directories) is asked, as it would be."
    ),
]
_NAME = re.compile(NAME_PATTERN)
_PUT_ERRORS = problems(400, 409, 412, 413, 415, 422)
_ETAG = {"ETag": "The version."}
_ANSWERED_STREAM: dict[int | str, dict[str, Any]] = {
    200: answered(REGISTERED_STREAM, "It was there; now as asked for.", _ETAG),
    201: {"model": RegisteredAnswer, **answered(REGISTERED_STREAM, "Registered.", {**_ETAG, "Location": "Its path."})},
}
_ANSWERED_TABLE: dict[int | str, dict[str, Any]] = {
    200: answered(REGISTERED_TABLE, "It was there; now as asked for.", _ETAG),
    201: {"model": RegisteredAnswer, **answered(REGISTERED_TABLE, "Registered.", {**_ETAG, "Location": "Its path."})},
}


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """A definition that a PUT asks for, and what may surprise of it."""

    definition: SourceDefinition
    warnings: list[DefinitionWarning]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        detail = f"{name[:80]!r} is no name: lower case letters, digits and _, starting with a letter, at most 63"
        raise DefinitionInvalid([Problem("", "malformed_name", detail)])


def _read(model: type[SourceDefinition], body: Any) -> SourceDefinition:
    definition = read_source(model, body)
    refuse_beyond_scope(feeds_in(definition))
    return definition


async def _looked_at(name: str, model: type[SourceDefinition], body: Any, services: Services) -> _LookedAt:
    _check_name(name)
    site = service_context_of(services.settings)
    warnings: list[DefinitionWarning] = []
    asked = await planned(services, lambda: inference_request(name, model, body))
    if asked is not None:
        found = await looked_outside(services, lambda: inferred(asked, site))
        body, warnings = spelled_out(body, found), warnings_of(found)
    definition = await planned(services, lambda: _read(model, body))
    feed = feed_of(name, definition)
    await looked_outside(services, lambda: control_of(feed).check(feed, site, relation_schema(name, definition)))
    return _LookedAt(definition, [*warnings, *source_warnings(definition)])


async def _stream_looked_at(name: Name, body: JsonBody, services: ServicesOf) -> _LookedAt:
    return await _looked_at(name, StreamDefinition, body, services)


async def _table_looked_at(name: Name, body: JsonBody, services: ServicesOf) -> _LookedAt:
    return await _looked_at(name, TableDefinition, body, services)


# Before the transaction begins and before the turn that it needs: systems outside of the database are asked, and may be away.
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
    response: Response,
    conditions: OfPut,
    validate: Validate = False,
) -> RegisteredAnswer:
    """Register a source of records, or change the one there is as far as its records and readers allow.

    With records in it, it may get further columns, which these have as null, and columns may get types that hold all values of theirs (int:
    bigint, double; decimals with more digits). Queries that take all columns go on with those they have, in a `select` that is spelled out.
    The answer spells out every default. An equal definition changes nothing, so this can be repeated. `"columns": "infer"` takes columns, and
    the key where the records say it, from the connector: a topic's schema or newest records, a directory's newest file. What was found is stored
    and shown; `warnings` names fields that are no columns. With `validate=true` all is judged and answered, and nothing is stored.
    """
    wanted = _SourceRequest("stream", name, looked_at)
    return _rehearsed(transaction, wanted, conditions) if validate else _put(transaction, wanted, conditions, response)


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
    response: Response,
    conditions: OfPut,
    validate: Validate = False,
) -> RegisteredAnswer:
    """Register a source of upserts and deletes by key, or change the one there is as far as its records and readers allow.

    With `versioned` it keeps every version of a key for its history retention. Without, it keeps one row per key: what came last, or with
    `conflict: latest_event_time` what has the latest event time, deletes remembered for ever. `warnings` names a choice that was left open.
    What columns may become while there are records is as of streams, and so are `"columns": "infer"` and `validate=true`. The answer spells
    out every default.
    """
    wanted = _SourceRequest("table", name, looked_at)
    return _rehearsed(transaction, wanted, conditions) if validate else _put(transaction, wanted, conditions, response)


@streams.get(
    "",
    summary="List streams",
    response_model=RelationPage,
    responses={200: answered({"items": [STREAM], "next": None}, "Streams, by name."), **problems(400)},
)
def get_streams(
    services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> RelationPage:
    """Sources and results alike."""
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
    """Sources and results alike."""
    return listed(transaction, "table", Most(limit, services.settings.limits.page_bytes), cursor)


@streams.get(
    "/{name}",
    summary="Look at a stream",
    response_model=RelationAnswer,
    responses={200: answered(STREAM, "The stream.", _ETAG), **NOT_MODIFIED, **problems(400, 404)},
)
def get_stream(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> RelationAnswer | Response:
    """Columns, connector, who writes it, who reads it, where its log begins and ends."""
    return _get(transaction, "stream", name, response, if_none_match)


@tables.get(
    "/{name}",
    summary="Look at a table",
    response_model=RelationAnswer,
    responses={200: answered(TABLE, "The table.", _ETAG), **NOT_MODIFIED, **problems(400, 404)},
)
def get_table(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> RelationAnswer | Response:
    """Columns, key, connector, who writes it, who reads it, where its log begins and ends."""
    return _get(transaction, "table", name, response, if_none_match)


@streams.delete(
    "/{name}",
    summary="Delete a stream",
    status_code=204,
    responses={204: {"description": "Deleted."}, **problems(400, 404, 409, 412)},
)
def delete_stream(name: Name, transaction: Transaction, conditions: OfWrite) -> None:
    """Delete a source with its records, or a result that its deleted query has left. Refused while a query reads it.

    The result of a query goes with the query.
    """
    delete_source(transaction, "stream", name, conditions)


@tables.delete(
    "/{name}",
    summary="Delete a table",
    status_code=204,
    responses={204: {"description": "Deleted."}, **problems(400, 404, 409, 412)},
)
def delete_table(name: Name, transaction: Transaction, conditions: OfWrite) -> None:
    """Delete a source with its records, or a result that its deleted query has left. Refused while a query reads it.

    The result of a query goes with the query.
    """
    delete_source(transaction, "table", name, conditions)


@dataclass(frozen=True, slots=True)
class _SourceRequest:
    """The source that a PUT asks for."""

    kind: Kind
    name: str
    looked_at: _LookedAt


def _put(connection: sa.Connection, wanted: _SourceRequest, conditions: Preconditions, response: Response) -> RegisteredAnswer:
    result = put_source(connection, wanted.kind, wanted.name, wanted.looked_at.definition, conditions)
    if result.is_created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/{wanted.kind}s/{wanted.name}"
    set_etag(response, result.row.version)
    return _registered(connection, wanted, result.row)


def _rehearsed(connection: sa.Connection, wanted: _SourceRequest, conditions: Preconditions) -> RegisteredAnswer:
    """Answer as a PUT would; what it changed on the way is undone."""
    with connection.begin_nested() as undone:
        result = put_source(connection, wanted.kind, wanted.name, wanted.looked_at.definition, conditions)
        answer = _registered(connection, wanted, result.row)
        undone.rollback()
    return answer


def _registered(connection: sa.Connection, wanted: _SourceRequest, row: RelationRow) -> RegisteredAnswer:
    answer = _answers(connection, [row])[0]
    return RegisteredAnswer(
        **dict(answer),
        warnings=shown_warnings(wanted.looked_at.warnings),
        sql=source_statement_of(wanted.name, wanted.looked_at.definition),
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
    """Return a page of relations, in a number of statements that does not depend on theirs."""
    after = decode_cursor(cursor, [str])
    wanted = Most(most.items + 1, most.bytes)
    found, is_beyond = list_relations(connection, kind, wanted, None if after is None else str(after[0]))
    rows, following = page(found, most.items, lambda row: [row.name], is_last_beyond=is_beyond)
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
    row: RelationRow, entry: CatalogEntry, beside: tuple[list[str], list[str]], heads: Sequence[Head] | None
) -> RelationAnswer:
    readers, parts = beside
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
