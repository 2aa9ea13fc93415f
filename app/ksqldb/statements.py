"""POST /ksql: statements that are no queries."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.api.database_errors import DATABASE_ERRORS, from_database
from app.api.deps import Services
from app.api.problems import from_engine
from app.api.sql.progress import Progress
from app.api.sql.scripts import ScriptRunner
from app.errors import AppError
from app.ksqldb.entities import entities_of
from app.ksqldb.errors import QUERY_ENDPOINT, error_body, error_response, status_of
from app.ksqldb.requests import asked_of
from engine.errors import EngineError
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Select

router = APIRouter()


@router.post("/ksql")
async def post_ksql(request: Request) -> JSONResponse:
    """Carry statements out, in order; the first that is refused ends the request, and the answer has the entities of those before it."""
    services: Services = request.app.state.services
    asked = await asked_of(request, "ksql")
    runner = ScriptRunner(services, asked.words(), "ksqldb")
    try:
        script = await runner.read(asked.text)
    except AppError as error:
        return error_response(error, asked.text)
    entities: list[dict[str, Any]] = []
    progress = Progress(script.statements)
    for parsed in script.statements:
        if isinstance(parsed.tree, Select):
            return JSONResponse({**_ended(_of_query(parsed), progress), "entities": entities}, 400)
        try:
            outcome = await runner.run_one(parsed)
            session = await runner.inspected(parsed, lambda known: known)
        except (AppError, EngineError, *DATABASE_ERRORS) as error:
            refusal = _refusal(error, services.settings.limits.read_timeout_ms)
            body = _ended(error_body(refusal, f"{parsed.text};"), progress)
            return JSONResponse({**body, "entities": entities}, status_of(refusal), refusal.headers)
        progress.outcomes.append(outcome)
        entities += entities_of(outcome, session)
    return JSONResponse(entities)


def _refusal(error: Exception, read_timeout_ms: int) -> AppError:
    match error:
        case AppError():
            return error
        case EngineError():
            return from_engine(error)
    return from_database(error, "/ksql", read_timeout_ms)


def _ended(body: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Say in the message of an error how far a script of several statements has come."""
    return body if len(progress.statements) == 1 else {**body, "message": f"{body['message']}\n{progress.sentence()}"}


def _of_query(parsed: Parsed) -> dict[str, Any]:
    return {
        "@type": "statement_error",
        "error_code": QUERY_ENDPOINT,
        "message": "a SELECT goes to /query or /query-stream",
        "statementText": f"{parsed.text};",
    }
