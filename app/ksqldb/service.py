"""Identity and health of the server: what clients ask first."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from app import __version__
from app.http.parameters import Services

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
