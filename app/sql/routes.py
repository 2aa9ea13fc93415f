"""POST /v1/statements: SQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.guard import recheck_of
from app.errors.app_errors import AppError, BadRequest, Fault, NotAcceptable, Unprocessable, UnsupportedMediaType
from app.following.push import EVENT_STREAM
from app.http.answers.documented import answered, body_examples, problems
from app.http.answers.negotiation import NDJSON_TYPE, ClosingResponse
from app.http.answers.record_json import encode_values
from app.http.parameters import OnlyKnownParameters, Services, ServicesOf
from app.http.requests.bodies import JSON_TYPE, media_type_of, parse_request, refuse_encoding, request_body, validated
from app.http.requests.stored_texts import refuse_unstorable
from app.sql.answers import Progress, StatementsAnswer, StatementsBody, answer_of, values_of
from app.sql.pushes import Push, PushedRows, pushing
from app.sql.scripts import ScriptRunner, Words
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Select

SQL_TYPE = "application/sql"


async def _read_body(request: Request) -> Any:
    """Read a body: JSON, or only the text of the statements."""
    kind = media_type_of(request, JSON_TYPE, SQL_TYPE)
    refuse_encoding(request)
    if kind == SQL_TYPE:
        try:
            text = (await request.body()).decode()
        except UnicodeDecodeError as error:
            raise BadRequest("malformed_body", f"the statements are not UTF-8 at byte {error.start}") from error
        body = {"sql": text}
        refuse_unstorable(body)
        return body
    if kind != JSON_TYPE and not kind.endswith("+json"):
        raise UnsupportedMediaType("unsupported_media_type", f"send {JSON_TYPE} or {SQL_TYPE}, not {kind}")
    return parse_request(await request.body())


ScriptBody = Annotated[Any, Depends(_read_body)]
router = APIRouter(prefix="/v1", tags=["sql"], dependencies=[OnlyKnownParameters])

_BODY = request_body(
    "StatementsBody",
    body_examples(
        create=(
            "A stream, and final counts per hour",
            {
                "sql": "CREATE STREAM departures (origin STRING KEY, flight INT, departed TIMESTAMP) WITH (KAFKA_TOPIC='departures', "
                "VALUE_FORMAT='JSON', TIMESTAMP='departed');\nCREATE TABLE hourly AS SELECT origin, COUNT(*) AS flights FROM departures WINDOW "
                "TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES) GROUP BY origin EMIT FINAL;"
            },
        ),
        look=("Rows of a table", {"sql": "SELECT * FROM hourly WHERE origin = ?;", "parameters": ["JFK"]}),
    ),
)
_ANSWER = {
    "results": [
        {
            "statement": "SELECT * FROM hourly WHERE origin = 'JFK'",
            "line": 1,
            "kind": "rows",
            "message": "1 row",
            "columns": [{"name": "ORIGIN", "type": "string"}, {"name": "WINDOWSTART", "type": "bigint"}],
            "rows": [["JFK", 1357034400000]],
            "position": {"log:departures": {"0": 17}},
            "notes": [],
            "warnings": [],
        }
    ]
}
_BODY["requestBody"]["content"][SQL_TYPE] = {
    "schema": {"type": "string", "description": "Only the text of the statements; parameters and properties need JSON."},
    "example": "SHOW STREAMS;",
}
Validate = Annotated[bool, Query(description="Return what would happen, and change nothing.")]


@router.post(
    "/statements",
    summary="Execute SQL statements",
    response_model=StatementsAnswer,
    response_model_exclude_none=True,
    responses={
        200: answered(_ANSWER, "The outcome of each statement; for a SELECT with EMIT, its rows as they come."),
        **problems(400, 406, 409, 413, 415, 422, 429),
    },
    openapi_extra=_BODY,
)
async def post_statements(
    body: ScriptBody, request: Request, services: ServicesOf, validate: Validate = False
) -> Response | StatementsAnswer:
    """Execute a script: statements of ksqlDB's language, and the extensions of this service (`/guide/reference/sql/`).

    If statements cannot be parsed, the answer has all these faults with line and column, and nothing is executed. Otherwise each statement
    is executed by itself, in order. The first that fails ends the script; earlier ones stay in force: `statements` of the
    problem has the state of each. A SELECT without EMIT
    answers once. One with EMIT must be the last; its answer is `application/x-ndjson` or `text/event-stream`, as `Accept`
    asks: first the columns, then rows as they come, until its LIMIT or until the client disconnects.
    """
    statements_body = validated(StatementsBody, body)
    words = Words({name: _text(value) for name, value in statements_body.properties.items()}, dict(statements_body.variables))
    runner = ScriptRunner(services, words)
    script = await runner.read(statements_body.sql, statements_body.parameters)
    if not script.statements:
        detail = "there is no statement in `sql`"
        raise Unprocessable("missing_statement", detail, [Fault("/sql", "missing_statement", detail)])
    if validate:
        return StatementsAnswer(results=[answer_of(each) for each in await runner.preview(script)])
    progress = Progress(script.statements)
    *before, last = script.statements
    is_push = isinstance(last.tree, Select) and last.tree.emit is not None
    form = _form(request) if is_push else None
    if before:
        request.state.script = progress
    await runner.run(before if form is not None else script.statements, progress)
    if form is not None:
        return await _pushed(request, services, runner, last, form)
    return StatementsAnswer(results=[answer_of(each) for each in progress.outcomes])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _form(request: Request) -> str:
    accepted = request.headers.get("accept", "")
    media_type = next((form for form in (EVENT_STREAM, NDJSON_TYPE) if form in accepted), None)
    if media_type is None:
        detail = (
            f"a SELECT with EMIT goes on: ask for it with Accept: {NDJSON_TYPE} or {EVENT_STREAM}, or leave EMIT out to read once"
        )
        raise NotAcceptable("not_acceptable", detail)
    return media_type


async def _pushed(request: Request, services: Services, runner: ScriptRunner, parsed: Parsed, form: str) -> Response:
    """Answer a push query; faults before the first row are answered as problems."""
    opened = AsyncExitStack()
    push = await opened.enter_async_context(pushing(services, runner, parsed))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    lines = _lines(push, form, recheck_of(request))
    return ClosingResponse(lines, opened.aclose, services.settings.push.write_timeout_s, form, headers)


async def _lines(push: Push, form: str, recheck: Callable[[], Awaitable[None]]) -> AsyncGenerator[bytes]:
    yield _line(form, "header", _header(push))
    left = push.limit
    try:
        while left is None or left > 0:
            rows = await anext(push.rows, None)
            if rows is None:
                yield _line(form, "end", {"reason": "stopping"})
                return
            await recheck()
            shown = await asyncio.to_thread(_shown, push, rows, left)
            yield b"".join(_line(form, "row", each) for each in shown) or _line(form, "quiet", {})
            left = None if left is None else left - len(shown)
        yield _line(form, "end", {"reason": "limit"})
    except AppError as error:
        yield _line(form, "error", {"code": error.code, "detail": error.detail})


def _header(push: Push) -> dict[str, Any]:
    columns = [{"name": name, "type": str(kind)} for name, kind in push.columns.items()]
    return {"columns": columns, "query": push.query}


def _shown(push: Push, rows: PushedRows, left: int | None) -> list[dict[str, Any]]:
    values = values_of(encode_values(rows.frame, push.columns, has_text_numbers=False)) if rows.frame.height else []
    changes = zip(values, rows.times_ms, rows.deleted, strict=True)
    shown = [{"op": "delete" if gone else "upsert", "event_time_ms": at_ms, "values": row} for row, at_ms, gone in changes]
    return shown if left is None else shown[:left]


def _line(form: str, kind: str, content: dict[str, Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    if form == EVENT_STREAM:
        return f": {kind}\n\n".encode() if kind == "quiet" else f"event: {kind}\ndata: {text}\n\n".encode()
    return b"\n" if kind == "quiet" else f'{{"{kind}":{text}}}\n'.encode()
