"""POST /query and /query-stream: SELECTs, pull and push, and PRINT; POST /close-query ends a push query."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID, uuid4

import polars as pl
import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.guard import recheck_of
from app.catalog.stored.feeds_read import feeds_read, log_ends
from app.db.tables import commit, query, query_status
from app.errors.app_errors import AppError, BadRequest, Fault
from app.http.answers.negotiation import ClosingResponse
from app.http.answers.record_json import encode_values
from app.http.parameters import Services
from app.http.requests.bodies import parse_request
from app.ksqldb.entities import schema_text, type_text
from app.ksqldb.printing import print_topic
from app.ksqldb.requests import Refused, StatementRequest, body_of, error_body, in_pieces, statement_request
from app.sql.pushes import Push, PushedRows, pushing
from app.sql.reads.pulls import pull
from app.sql.scripts import ScriptRunner
from engine.expressions.types.types import ColumnType, Schema
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Print, Select
from engine.statements.context.session import Session, SqlRelation
from engine.statements.reads.scans import pull_of

router = APIRouter()
V1: Final = "application/vnd.ksql.v1+json"
DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
JSON: Final = "application/json"
FRESH_WITHIN_S: Final = 10.0
"""Time that a pull query waits for earlier appends: ksqlDB's users expect to find what they wrote."""

Form = Literal["v1", "delimited", "array"]


@dataclass(slots=True)
class OpenQueries:
    """Running push queries by their ids, so that another request can end one."""

    ends: dict[str, asyncio.Event] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a SELECT, pull or push.

    Attributes:
        batches: rows, and whether each is deleted.
        ending: message after the last row; None: none.
    """

    id: str
    columns: Schema
    key: tuple[str, ...]
    batches: AsyncIterator[list[tuple[list[Any], bool]]]
    ending: Callable[[], str | None]
    close: Callable[[], Any]


@router.post("/query")
async def post_query(request: Request) -> Response:
    """Answer a SELECT as an array of objects, one per line."""
    return await _answer(request, await statement_request(request, "ksql", "sql"), "v1")


@router.post("/query-stream")
async def post_query_stream(request: Request) -> Response:
    """Answer a SELECT in the form that ``Accept`` asks for; lines of JSON by default."""
    accepted = request.headers.get("accept", "")
    form: Form = "v1" if V1 in accepted else "delimited" if DELIMITED in accepted or JSON not in accepted else "array"
    return await _answer(request, await statement_request(request, "sql", "ksql"), form)


@router.post("/close-query")
async def post_close_query(request: Request) -> Response:
    """End a push query."""
    value = parse_request(await body_of(request))
    query_id = value.get("queryId") if isinstance(value, dict) else None
    queries: OpenQueries = request.app.state.queries
    end = queries.ends.get(str(query_id))
    if end is None:
        detail = f"no query that sends rows has the id {query_id}"
        raise BadRequest("query_not_found", detail, [Fault("/queryId", "query_not_found", detail)])
    end.set()
    return Response(status_code=200)


async def _answer(request: Request, statement: StatementRequest, form: Form) -> Response:
    services: Services = request.app.state.services
    runner = ScriptRunner(services, statement.words(), "ksqldb")
    try:
        parsed = await _read(runner, statement)
        if isinstance(parsed.tree, Print):
            return await _printed(request, runner, parsed, parsed.tree, form)
        result = await _run(services, runner, parsed, request.app.state.queries)
    except AppError as error:
        raise Refused(error, statement.text) from error
    media_type = {"v1": V1, "delimited": DELIMITED, "array": JSON}[form]
    lines = _lines(result, form, recheck_of(request))
    return ClosingResponse(lines, result.close, services.settings.push.write_timeout_s, media_type)


async def _read(runner: ScriptRunner, statement: StatementRequest) -> Parsed:
    statements = (await runner.read(statement.text)).statements
    if len(statements) != 1 or not isinstance(statements[0].tree, Select | Print):
        detail = "one SELECT or PRINT is expected here; other statements go to /ksql"
        raise BadRequest("not_a_query", detail, [Fault("", "not_a_query", detail)])
    return statements[0]


async def _printed(request: Request, runner: ScriptRunner, parsed: Parsed, tree: Print, form: Form) -> Response:
    if form != "v1":
        detail = "PRINT is answered as lines of text at /query; /query-stream answers SELECTs"
        raise BadRequest("not_a_query", detail, [Fault("", "not_a_query", detail)])
    return await print_topic(request.app.state.services, runner, parsed, tree, recheck_of(request))


async def _run(services: Services, runner: ScriptRunner, parsed: Parsed, queries: OpenQueries) -> QueryResult:
    select = parsed.tree
    if isinstance(select, Select) and select.emit is None:
        return await _pulled(services, runner, parsed, select)
    opening = pushing(services, runner, parsed)
    push = await opening.__aenter__()
    end = asyncio.Event()
    is_direct = push.query is None
    name = f"{'SCALABLE_PUSH_QUERY' if is_direct else 'transient'}_{uuid4().hex}"
    queries.ends[name] = end
    endings: list[str] = []

    async def close() -> None:
        queries.ends.pop(name, None)
        await opening.__aexit__(None, None, None)

    return QueryResult(name, push.columns, (), _pushed(push, end, endings), lambda: endings[0] if endings else None, close)


async def _pulled(services: Services, runner: ScriptRunner, parsed: Parsed, select: Select) -> QueryResult:
    select_read = await runner.inspected(parsed, lambda known: pull_of(select, known))
    session = await runner.inspected(parsed, lambda known: known)
    await wait_until_current(services, session, select_read.relation, FRESH_WITHIN_S)
    rows = await pull(services, select_read)
    shown = await asyncio.to_thread(rows_of, rows.frame, rows.columns)
    ending = "Query Completed" if select_read.relation.kind == "stream" else None

    async def batches() -> AsyncIterator[list[tuple[list[Any], bool]]]:
        yield [(row, False) for row in shown]

    async def close() -> None:
        return

    is_keyed = select_read.relation.kind == "table"
    return QueryResult(f"query_{uuid4().hex}", rows.columns, rows.key if is_keyed else (), batches(), lambda: ending, close)


async def _pushed(push: Push, end: asyncio.Event, endings: list[str]) -> AsyncIterator[list[tuple[list[Any], bool]]]:
    left = push.limit
    ended = asyncio.create_task(end.wait())
    try:
        while left is None or left > 0:
            batch = await _next(push, ended)
            if batch is None:
                return
            shown = (await asyncio.to_thread(rows_of, batch.frame, push.columns))[:left]
            left = None if left is None else left - len(shown)
            yield list(zip(shown, batch.deleted, strict=False))
        endings.append("Limit Reached")
    finally:
        ended.cancel()


async def _next(push: Push, ended: asyncio.Task[Any]) -> PushedRows | None:
    """Return the next rows; None if there are no more, or the query was closed."""
    coming = asyncio.ensure_future(anext(push.rows, None))
    try:
        await asyncio.wait((coming, ended), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() and not ended.done() else None
    finally:
        if not coming.done():
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming


async def _lines(result: QueryResult, form: Form, recheck: Callable[[], Awaitable[None]]) -> AsyncGenerator[bytes]:
    try:
        async for piece in in_pieces([_begin(result, form)]):
            yield piece
        async for batch in result.batches:
            await recheck()
            lines = [_row(row, form, is_gone=gone) for row, gone in batch]
            async for piece in in_pieces(lines if form == "delimited" else [b"".join(lines)]):
                yield piece
        yield _end(result.ending(), form)
    except AppError as error:
        yield _line(error_body(error), form)


def _begin(result: QueryResult, form: Form) -> bytes:
    if form == "v1":
        return b"[" + _text({"header": {"queryId": result.id, "schema": schema_text(result.columns, result.key)}})
    types = [type_text(kind) for kind in result.columns.types]
    header = {"queryId": result.id, "columnNames": list(result.columns.names), "columnTypes": types}
    return b"[" + _text(header) if form == "array" else _text(header) + b"\n"


def _row(row: list[Any], form: Form, *, is_gone: bool) -> bytes:
    if form != "v1":
        return _line(row, form)
    return _line({"row": {"columns": row, "tombstone": True} if is_gone else {"columns": row}}, form)


def _line(value: Any, form: Form) -> bytes:
    return _text(value) + b"\n" if form == "delimited" else b",\n" + _text(value)


def _end(ending: str | None, form: Form) -> bytes:
    if form == "v1" and ending is not None:
        return b",\n" + _text({"finalMessage": ending}) + b"]\n"
    return b"" if form == "delimited" else b"]\n"


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def rows_of(frame: pl.DataFrame, columns: Schema) -> list[list[Any]]:
    """Return the values of each row, in the order of the columns."""
    if not frame.height:
        return []
    kinds = columns.types
    texts = encode_values(frame, columns, has_text_numbers=False)
    return [[_value(value, kind) for value, kind in zip(json.loads(text).values(), kinds, strict=True)] for text in texts]


def _value(value: Any, kind: ColumnType) -> Any:
    """Return a timestamp in ksqlDB's form: to the millisecond, without a zone; other values are JSON already."""
    if kind.kind == "timestamp" and isinstance(value, str):
        whole, _, part = value.removesuffix("Z").partition(".")
        return f"{whole}.{part[:3]:0<3}"
    return value


LOOK_EVERY_S = 0.1


async def wait_until_current(services: Services, session: Session, relation: SqlRelation, most_s: float) -> None:
    """Wait until every query upstream of a relation has read the current end of its feeds, the furthest upstream first; at most this long.

    Queries that do not run are skipped.
    """
    deadline = time.monotonic() + most_s
    for name in _upstream(session, relation):
        async with services.database.reads.connect() as connection:
            query_id = await _query(connection, name)
            ends = {} if query_id is None else await _ends(connection, query_id)
        if query_id is None:
            continue
        while time.monotonic() < deadline:
            async with services.database.reads.connect() as connection:
                if await _has_read(connection, query_id, ends):
                    break
            await asyncio.sleep(LOOK_EVERY_S)


def _upstream(session: Session, relation: SqlRelation) -> Iterator[str]:
    """Yield the queries upstream of a relation, each after the queries whose results it reads."""
    by_name = {each.definition_name: each for each in session.relations.values()}
    visited: set[str] = set()

    def walk(each: SqlRelation) -> Iterator[str]:
        for writer in each.writers:
            if writer in visited:
                continue
            visited.add(writer)
            for read in sorted(each.entry.reads):
                if read in by_name:
                    yield from walk(by_name[read])
            yield writer

    yield from walk(relation)


async def _query(connection: AsyncConnection, name: str) -> UUID | None:
    statement = (
        sa.select(query.c.id)
        .join_from(query, query_status)
        .where(
            query.c.name == name,
            query.c.deleted_at.is_(None),
            query.c.desired_state == "running",
            query_status.c.state != "failed",
        )
    )
    query_id: UUID | None = (await connection.execute(statement)).scalar_one_or_none()
    return query_id


async def _ends(connection: AsyncConnection, query_id: UUID) -> dict[str, dict[int, int]]:
    feeds = [feed for feed in await feeds_read(connection, query_id) if feed.traits.is_kept_here]
    ends = await log_ends(connection, [feed.log_feed for feed in feeds])
    return {feed.name: ends.get(feed.log_feed, {}) for feed in feeds}


async def _has_read(connection: AsyncConnection, query_id: UUID, ends_by_feed: dict[str, dict[int, int]]) -> bool:
    position = (
        await connection.execute(sa.select(commit.c.position).where(commit.c.query_id == query_id))
    ).scalar_one_or_none() or {}
    return all(
        position.get(feed, {}).get(str(part), 0) >= end for feed, ends in ends_by_feed.items() for part, end in ends.items()
    )
