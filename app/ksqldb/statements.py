"""POST /ksql: statements other than queries."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.errors.app_errors import AppError
from app.http.answers.database_errors import DATABASE_ERRORS, translate_and_log
from app.http.answers.problems import from_engine
from app.http.parameters import Services
from app.ksqldb.entities import entities_of
from app.ksqldb.requests import QUERY_ENDPOINT, Refused, statement_request
from app.sql.answers import Progress
from app.sql.scripts import ScriptRunner
from engine.errors import EngineError
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import Select

router = APIRouter()


@router.post("/ksql")
async def post_ksql(request: Request) -> JSONResponse:
    """Execute statements, in order. The first that is refused ends the request; the answer has the entities of earlier ones."""
    services: Services = request.app.state.services
    body = await statement_request(request, "ksql")
    runner = ScriptRunner(services, body.words(), "ksqldb")
    try:
        script = await runner.read(body.text)
    except AppError as error:
        raise Refused(error, body.text) from error
    entities: list[dict[str, Any]] = []
    progress = Progress(script.statements)
    for parsed in script.statements:
        if isinstance(parsed.tree, Select):
            return JSONResponse({**_of_query(parsed, _how_far(progress)), "entities": entities}, 400)
        try:
            outcome = await runner.run_one(parsed)
            session = await runner.inspected(parsed, lambda known: known)
        except (AppError, EngineError, *DATABASE_ERRORS) as error:
            refusal = _refusal(error, services.settings.limits.read_timeout_ms)
            raise Refused(refusal, f"{parsed.text};", entities, _how_far(progress)) from error
        progress.outcomes.append(outcome)
        entities += entities_of(outcome, session)
    return JSONResponse(entities)


def _refusal(error: Exception, read_timeout_ms: int) -> AppError:
    match error:
        case AppError():
            return error
        case EngineError():
            return from_engine(error)
    return translate_and_log(error, "/ksql", read_timeout_ms)


def _how_far(progress: Progress) -> str:
    """Return the progress of a script of several statements; empty for a single statement."""
    return "" if len(progress.statements) == 1 else f"\n{progress.sentence()}"


def _of_query(parsed: Parsed, how_far: str) -> dict[str, Any]:
    return {
        "@type": "statement_error",
        "error_code": QUERY_ENDPOINT,
        "message": f"a SELECT goes to /query or /query-stream{how_far}",
        "statementText": f"{parsed.text};",
    }
