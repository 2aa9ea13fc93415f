"""Probes of the service: alive, ready; its metrics and its version."""

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
from app.catalog.drivers.sql import find_drivers
from app.db.schema_version import find_schema
from app.db.write_probe import TIMEOUT_MS, WriteProbe
from app.errors.app_errors import Fault, Unavailable
from app.http.answers.database_errors import DATABASE_ERRORS, from_database
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.http.schemas import Health, Readiness, Version
from app.status.scraping import Scraper

READY = {"status": "ready", "checks": {"database": "ok", "schema": "0001_initial_2", "driver": "ready"}}
VERSION = {"version": __version__, "python": "3.12.4", "api": "v1"}
Purpose = Annotated[
    Literal["all", "reads", "driver"],
    Query(
        alias="for",
        description="Purpose of the probe: `reads` ignores the driver, because results can be read without one; `driver` requires that the "
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
    """Answers without any check: the liveness probe."""
    return Health(status="ok")


@router.get("/readyz", summary="Can it serve?", response_model=Readiness, responses={200: answered(READY), **problems(400)})
async def readyz(request: Request, services: ServicesOf, purpose: Purpose = "all") -> Readiness:
    """The readiness probe: answers 200 if the database accepts writes, its schema is the expected one, and the driver can start.

    It tries a write, at most once a second. `/readyz?for=reads` tries none, since results can be read from a replica or beside a full disk.

    `driver` is `ready`, `starting`, `failing`, or `none`. A service that starts no driver itself (`--no-driver`) is
    ready without one. If its driver ends again and again, or does not become ready, it answers 503 `driver_not_ready` with the reason, unless
    another driver is ready. Results can still be read: a load balancer of readers asks `/readyz?for=reads`. `/readyz?for=driver` answers
    503 until this service's own driver takes queries, whatever other drivers do. To replace one service by another, wait for that, so that
    a driver can take the queries.
    """
    try:
        async with services.database.reads.connect() as connection:
            schema = await find_schema(connection)
            if schema.problem is not None:
                raise _not_ready("schema", schema.problem)
            drivers, starting = await find_drivers(connection, services.settings.driver.lease_ttl_ms)
        if purpose != "reads":
            write_probe: WriteProbe = request.app.state.write_probe
            await write_probe.check()
    except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
        raise _not_ready("database", _problem_of(error)) from error
    driver_problem: Callable[[], str | None] = request.app.state.driver_trouble
    if purpose == "driver" and not request.app.state.has_ready_driver():
        raise _not_ready("driver", driver_problem() or _OWN_DRIVER, code="driver_not_ready")
    problem = None if drivers.drivers else driver_problem()
    if problem is not None and purpose == "all":
        raise _not_ready("driver", f"queries do not run: {problem}. Results can be read", code="driver_not_ready")
    driver = "ready" if drivers.drivers else "failing" if problem is not None else "starting" if starting else "none"
    return Readiness(status="ready", checks={"database": "ok", "schema": str(schema.found), "driver": driver})


def _problem_of(error: Exception) -> str:
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
    """Metrics of this process: requests and records; of every query: rates, lag, clocks, waiting and late records, batches, state; of drivers.

    While the database is not reachable, `slackwater_database_up` is 0 and metrics of the database are absent.
    """
    scraper: Scraper = request.app.state.scraper
    return Response(await scraper.scrape(), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/v1/version", summary="Which version is this?", response_model=Version, responses={200: answered(VERSION), **problems(400)}
)
async def version() -> Version:
    """The version of the service, of Python, and of the API."""
    return Version(version=__version__, python=platform.python_version(), api="v1")
