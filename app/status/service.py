"""Whether the service lives, is ready, what it measures, which version it is."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Annotated, Literal

import psycopg
import sqlalchemy as sa
from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app import __version__
from app.catalog.drivers.ready_drivers import find_drivers
from app.db.schema_version import find_schema
from app.db.write_probe import TIMEOUT_MS, WriteProbe
from app.errors.app_errors import Fault, Unavailable
from app.http.answers.database_errors import DATABASE_ERRORS, from_database
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.http.schemas import Health, Readiness, Version
from app.status.scraping import Scraper

READY = {"status": "ready", "checks": {"database": "ok", "schema": "0001_initial", "driver": "ready"}}
VERSION = {"version": __version__, "python": "3.12.4", "api": "v1"}
Purpose = Annotated[
    Literal["all", "reads", "driver"],
    Query(
        alias="for",
        description="What it is to be ready for: `reads` leaves the driver out, for results can be read without one; `driver` needs that the "
        "driver of this very service takes queries.",
    ),
]
_OWN_DRIVER = "the driver of this service does not take queries: it starts, or the service was started without one (--no-driver)"
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
async def readyz(request: Request, services: ServicesOf, purpose: Purpose = "all") -> Readiness:
    """The readiness probe: answers 200 when the database takes writes, its schema fits, and nothing keeps the driver from coming up.

    It tries a write, once a second at most. `/readyz?for=reads` tries none, since results can be read from a replica or beside a full disk.

    `driver` says whether one is `ready`, `starting`, `failing`, or there is `none`. A service that starts no driver itself (`--no-driver`) is
    ready without one. One whose driver ends again and again, or does not become ready, answers 503 `driver_not_ready` with the reason, unless
    another driver is ready. Results can be read all the same: a load balancer of readers asks `/readyz?for=reads`. `/readyz?for=driver` answers
    503 until this service's own driver takes queries, whatever others do: who replaces one service by another waits for that, so that queries
    have somewhere to go.
    """
    try:
        async with services.database.reads.connect() as connection:
            schema = await find_schema(connection)
            if schema.problem is not None:
                raise _not_ready("schema", schema.problem)
            fleet, starting = await find_drivers(connection, services.settings.driver.lease_ttl_ms)
        if purpose != "reads":
            write_probe: WriteProbe = request.app.state.write_probe
            await write_probe.check()
    except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
        raise _not_ready("database", _trouble_of(error)) from error
    driver_trouble: Callable[[], str | None] = request.app.state.driver_trouble
    if purpose == "driver" and not request.app.state.has_ready_driver():
        raise _not_ready("driver", driver_trouble() or _OWN_DRIVER, code="driver_not_ready")
    trouble = None if fleet.drivers else driver_trouble()
    if trouble is not None and purpose == "all":
        raise _not_ready("driver", f"queries do not run: {trouble}. Results can be read", code="driver_not_ready")
    driver = "ready" if fleet.drivers else "failing" if trouble is not None else "starting" if starting else "none"
    return Readiness(status="ready", checks={"database": "ok", "schema": str(schema.found), "driver": driver})


def _trouble_of(error: Exception) -> str:
    if isinstance(error, DATABASE_ERRORS):
        return from_database(error, "/readyz", TIMEOUT_MS).detail
    return f"the database is not usable: {str(error) if isinstance(error, TimeoutError) else type(error).__name__}"


def _not_ready(check: str, detail: str, code: str = "not_ready") -> Unavailable:
    return Unavailable(code, detail, [Fault(f"/checks/{check}", code, detail)], {"Retry-After": "1"})


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
