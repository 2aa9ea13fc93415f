"""POST /ksql: statements that are no queries."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.api.deps import Services
from app.api.sql.scripts import ScriptRunner
from app.errors import AppError
from app.ksqldb.entities import entities_of
from app.ksqldb.errors import QUERY_ENDPOINT, Refused
from app.ksqldb.requests import asked_of
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Select

router = APIRouter()


@router.post("/ksql")
async def post_ksql(request: Request) -> JSONResponse:
    """Carry statements out, in order; the first that is refused ends the request."""
    services: Services = request.app.state.services
    asked = await asked_of(request, "ksql")
    runner = ScriptRunner(services, asked.words(), "ksqldb")
    try:
        script = await runner.read(asked.text)
    except AppError as error:
        raise Refused(error, asked.text) from error
    entities: list[dict[str, Any]] = []
    for parsed in script.statements:
        if isinstance(parsed.tree, Select):
            return JSONResponse(_of_query(parsed), 400)
        try:
            outcome = await runner.run_one(parsed)
            session = await runner.inspected(parsed, lambda known: known)
        except AppError as error:
            raise Refused(error, f"{parsed.text};", entities) from error
        entities += entities_of(outcome, session)
    return JSONResponse(entities)


def _of_query(parsed: Parsed) -> dict[str, Any]:
    return {
        "@type": "statement_error",
        "error_code": QUERY_ENDPOINT,
        "message": "a SELECT goes to /query or /query-stream",
        "statementText": f"{parsed.text};",
        "entities": [],
    }
