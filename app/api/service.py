"""Whether the service lives, is ready, what it measures, which version it is."""

from __future__ import annotations

import platform

import psycopg
import sqlalchemy as sa
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app import __version__
from app.api.deps import OnlyKnownParameters, ServicesOf
from app.api.documented import answered, problems
from app.api.schemas import Health, Readiness, Version
from app.api.scraping import Scraper
from app.errors import Unavailable
from app.store.schema_version import find_schema
from app.store.statuses import find_fleet

READY = {"status": "ready", "checks": {"database": "ok", "schema": "0008", "driver": "ready"}}
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
    """Answers 200 when the database answers and its schema is this version's: the readiness probe.

    `driver` says whether one is `ready`, `starting`, or there is `none`; results can be read either way, so it is ready without one.
    """
    try:
        async with services.database.reads.connect() as connection:
            schema = await find_schema(connection)
            fleet, starting = await find_fleet(connection, services.settings.driver.lease_ttl_ms)
    except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
        raise _not_ready(f"the database is not usable: {type(error).__name__}") from error
    if schema.is_behind:
        raise _not_ready(
            f"the database's schema is at {schema.found}, this version needs {schema.needed}: run `slackwater migrate`"
        )
    driver = "ready" if fleet.drivers else "starting" if starting else "none"
    return Readiness(status="ready", checks={"database": "ok", "schema": schema.found, "driver": driver})


def _not_ready(detail: str) -> Unavailable:
    return Unavailable("not_ready", detail, headers={"Retry-After": "1"})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"example": 'slackwater_queries{state="running"} 2.0\n'}}}, **problems(400)},
)
async def metrics(request: Request) -> Response:
    """Requests and records of this process; of every query rates, lag, clocks, what waits, what was late, batches, state; drivers.

    While the database is away, `slackwater_database_up` is 0 and what only the database knows is absent.
    """
    scraper: Scraper = request.app.state.scraper
    return Response(await scraper.scrape(), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/v1/version", summary="Which version is this?", response_model=Version, responses={200: answered(VERSION), **problems(400)}
)
async def version() -> Version:
    """The service's version, the Python below it, the version of its interface."""
    return Version(version=__version__, python=platform.python_version(), api="v1")
