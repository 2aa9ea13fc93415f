"""Whether the service lives, is ready, what it measures, which version it is."""

from __future__ import annotations

import platform

import psycopg
import sqlalchemy as sa
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app import __version__
from app.api.deps import OnlyKnownParameters, ServicesOf
from app.api.documented import answered, problems
from app.api.schemas import Health, Readiness, Version
from app.errors import Unavailable
from app.store.statuses import states_of_queries

READY = {"status": "ready", "checks": {"database": "ok"}}
VERSION = {"version": __version__, "python": "3.12.4", "api": "v1"}
router = APIRouter(tags=["service"], dependencies=[OnlyKnownParameters])


@router.get(
    "/healthz",
    summary="Is the process alive?",
    response_model=Health,
    responses={200: answered({"status": "ok"}), **problems(400)},
)
async def healthz() -> Health:
    """Answers without looking at anything else: the liveness probe."""
    return Health(status="ok")


@router.get("/readyz", summary="Can it serve?", response_model=Readiness, responses={200: answered(READY), **problems(400)})
async def readyz(services: ServicesOf) -> Readiness:
    """Answers 200 when the database answers and its schema is there: the readiness probe."""
    try:
        async with services.database.reads.connect() as connection:
            await connection.execute(sa.text("SELECT 1 FROM slackwater.query LIMIT 1"))
    except (sa.exc.DBAPIError, psycopg.Error, OSError) as error:
        raise Unavailable(
            "not_ready", f"the database is not usable: {type(error).__name__}", headers={"Retry-After": "1"}
        ) from error
    return Readiness(status="ready", checks={"database": "ok"})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"example": 'slackwater_queries{state="running"} 2.0\n'}}}, **problems(400, 503)},
)
async def metrics(services: ServicesOf) -> Response:
    """Requests, appended and refused records, queries by state."""
    async with services.database.reads.connect() as connection:
        states = await states_of_queries(connection)
    services.metrics.show_states(states)
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/v1/version", summary="Which version is this?", response_model=Version, responses={200: answered(VERSION), **problems(400)}
)
async def version() -> Version:
    """The service's version, the Python below it, the version of its interface."""
    return Version(version=__version__, python=platform.python_version(), api="v1")
