"""POST /inserts-stream: one record per line after a line that names the stream; each is acknowledged."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app.access.rules import Role, refuse_below
from app.errors.app_errors import AppError, BadRequest, Fault, Forbidden
from app.http.parameters import Services
from app.http.requests.bodies import parse_json, parse_request
from app.ksqldb.queries import DELIMITED, JSON
from app.ksqldb.requests import body_of, error_body, in_pieces
from app.sql.scripts import ScriptRunner, Words
from engine.sql.lexing.places import Lines, Origin
from engine.sql.lexing.splitting import Filled
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import InsertValues, Row
from engine.sql.tree import ArrayOf, Boolean, FieldValue, Identifier, Negative, Node, Null, Number, StructOf, Text
from engine.statements.context.scope import relation_of
from engine.statements.inserts.inserting import check_writable

MOST_RECORDS: Final = 20_000
"""Records in one body. Half a million invalid lines take a minute, and their acknowledgements 76 MB."""

MOST_NESTED: Final = 32
"""Limit of nesting. Types nest less deep; beyond a thousand, Python's own limit would end the request."""

router = APIRouter()


@router.post("/inserts-stream")
async def post_inserts(request: Request) -> Response:
    """Insert records. Each refused one has an error at its place, and the others are inserted. A read-only relation refuses all."""
    services: Services = request.app.state.services
    refuse_below(Role.WRITE, "inserting")
    target, lines = await asyncio.to_thread(_read, await body_of(request))
    runner = ScriptRunner(services, Words(), "ksqldb")
    await runner.inspected(
        _parsed(InsertValues(target, (), ())), lambda session: check_writable(relation_of(target, session), target)
    )
    acks = [json.dumps(await _inserted(runner, target, number, _record(line))).encode() for number, line in enumerate(lines)]
    if JSON in request.headers.get("accept", ""):
        return Response(b"[" + b", ".join(acks) + b"]", media_type=JSON)
    return StreamingResponse(in_pieces([ack + b"\n" for ack in acks]), media_type=DELIMITED)


def _read(body: bytes) -> tuple[Identifier, list[bytes]]:
    """Return the target, and the lines of the records.

    Raises:
        BadRequest: the first line names no target, or there are too many lines.
    """
    lines = [line for line in body.splitlines() if line.strip()]
    target = _target(lines)
    if len(lines) > MOST_RECORDS + 1:
        detail = f"a body has at most {MOST_RECORDS} records: send them in several requests"
        raise BadRequest("malformed_body", detail, [Fault("", "malformed_body", detail)])
    return target, lines[1:]


def _target(lines: list[bytes]) -> Identifier:
    value = parse_request(lines[0]) if lines else None
    target = value.get("target") if isinstance(value, dict) else None
    if not isinstance(target, str):
        detail = 'the first line names the stream: {"target": "ORDERS"}'
        raise BadRequest("malformed_body", detail, [Fault("/target", "malformed_body", detail)])
    is_quoted = target.startswith(("`", '"'))
    return Identifier(target.strip('`"'), is_quoted)


def _record(line: bytes) -> dict[str, Any] | AppError:
    try:
        record = parse_json(line)
    except AppError as error:
        return error
    if isinstance(record, dict):
        return record
    detail = "a record is a JSON object"
    return BadRequest("malformed_body", detail, [Fault("", "malformed_body", detail)])


async def _inserted(runner: ScriptRunner, target: Identifier, number: int, record: dict[str, Any] | AppError) -> dict[str, Any]:
    try:
        if isinstance(record, AppError):
            await asyncio.sleep(0)  # let other tasks run
            raise record
        names = tuple(Identifier(name.strip("`"), name.startswith("`")) for name in record)
        tree = InsertValues(target, names, (Row(tuple(literal(value) for value in record.values())),))
        await runner.run_one(_parsed(tree))
    except Forbidden:
        raise  # this concerns the stream, not one record
    except AppError as error:
        return {"status": "error", "seq": number, **error_body(error)}
    return {"status": "ok", "seq": number}


def _parsed(tree: InsertValues) -> Parsed:
    text = f"INSERT INTO {tree.name.text}"
    return Parsed(tree, text, Origin(Lines(text), 0, Filled(text)))


def literal(value: Any, depth: int = 0) -> Node:
    """Return a JSON value as a literal of the language.

    Raises:
        BadRequest: it is nested too deeply.
    """
    if depth > MOST_NESTED:
        detail = f"the value is nested more than {MOST_NESTED} deep"
        raise BadRequest("malformed_body", detail, [Fault("", "malformed_body", detail)])
    match value:
        case None:
            return Null()
        case bool():
            return Boolean(value)
        case str():
            return Text(value)
        case int() | float():
            return Negative(Number(repr(-value))) if value < 0 else Number(repr(value))
        case list():
            return ArrayOf(tuple(literal(each, depth + 1) for each in value))
        case dict():
            return StructOf(
                tuple(FieldValue(Identifier(name, is_quoted=True), literal(each, depth + 1)) for name, each in value.items())
            )
    raise TypeError(f"{type(value).__name__} is no JSON value")
