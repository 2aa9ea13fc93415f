"""Identity and health of the server, which clients ask first; POST /ksql: statements other than queries."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse

from app import __version__
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

SPOKEN_VERSION: Final = "7.9.0"
"""The release of ksqlDB with this protocol; clients refuse a server below 6.0."""

_ID: Final = "slackwater"


@router.get("/")
async def get_root() -> RedirectResponse:
    """Redirect to the information about the server."""
    return RedirectResponse("/info", 307)


@router.get("/info")
async def get_info(request: Request) -> dict[str, Any]:
    """Return the version of the protocol, and the server's own."""
    services: Services = request.app.state.services
    host = (request.url.hostname or "localhost") if ":" not in (request.url.hostname or "") else f"[{request.url.hostname}]"
    server = {"version": __version__, "url": f"http://{host}:{services.settings.port}"}
    about = {"version": SPOKEN_VERSION, "kafkaClusterId": _ID, "ksqlServiceId": _ID, "serverStatus": "RUNNING"}
    return {"KsqlServerInfo": {**about, "slackwater": server}}


@router.get("/healthcheck")
async def get_health(request: Request) -> dict[str, Any]:
    """Return whether the database answers."""
    services: Services = request.app.state.services
    is_well = True
    async with services.database.reads.connect() as connection:
        await connection.exec_driver_sql("SELECT 1")
    part = {"isHealthy": is_well}
    return {"isHealthy": is_well, "details": {"metastore": part, "kafka": part, "commandRunner": part}, "serverState": "READY"}


@router.get("/clusterStatus")
async def get_cluster(request: Request) -> dict[str, Any]:
    """Return this one host as the cluster."""
    host = request.headers.get("host", "localhost")
    alive = {"hostAlive": True, "lastStatusUpdateMs": 0, "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": 0}}
    return {"clusterStatus": {host: {**alive, "activeStandbyPerQuery": {}}}}


@router.get("/status")
async def get_statuses() -> dict[str, Any]:
    """Commands are executed before they are answered, so none is running."""
    return {"commandStatuses": {}}


@router.get("/status/{kind}/{entity}/{action}")
async def get_status(kind: str, entity: str, action: str) -> dict[str, Any]:
    """See ``get_statuses``."""
    return {"status": "SUCCESS", "message": f"{kind} {entity} {action}: carried out", "queryId": ""}


@router.get("/is_valid_property/{name}")
async def get_is_valid_property(name: str) -> bool:
    """Return whether a property may be set: those of ksqlDB and of Kafka Streams are accepted as hints."""
    return name.startswith(("ksql.", "auto.offset.reset", "sql.")) or "." in name


@router.get("/v1/metadata")
async def get_metadata() -> dict[str, Any]:
    """Return the id of the cluster."""
    return {"id": "", "scope": {"path": [], "clusters": {"kafka-cluster": _ID, "ksql-cluster": _ID}}}


@router.get("/v1/metadata/id")
async def get_metadata_id() -> dict[str, Any]:
    """Return the id of the cluster."""
    return {"id": _ID, "scope": {"path": [], "clusters": {}}}


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
