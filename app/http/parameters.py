"""Dependencies of endpoints: the services of the application, transactions, admission, refusal of unknown parameters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, cast

import sqlalchemy as sa
from anyio import to_thread
from fastapi import Depends, Path, Query, Request
from fastapi.concurrency import contextmanager_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.params import Depends as Dependency
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from app.db.admission import AdmissionLimits
from app.db.database import Database
from app.db.notifications import Notifications
from app.errors.app_errors import BadRequest, Fault, Unavailable
from app.http.leaving import cancel_statements_on_client_disconnect
from app.settings.settings import Settings
from app.telemetry.setup import Metrics
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.cpu_deadline import cpu_deadline
from engine.expressions.suggestions import meant

Found = TypeVar("Found")
Feature = TypeVar("Feature")
DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
MAX_NAME_LENGTH = 255
MAX_KEY_LENGTH = 4_096
OUTSIDE: Final = 8
"""Limit of concurrent requests to sources and targets outside of the database: a fifth of the threads that serve requests."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a request may use, built once by ``create_app``.

    Attributes:
        planning: permits to check definitions. This is pure Python work, so more threads would only slow the others down.
        outside: permits to ask other systems, each in a thread. Slow systems thus leave threads and planning permits to others.
        features: objects of single features, by class, for the whole application; ``app.main.main`` builds them.
    """

    settings: Settings
    database: Database
    bell: Notifications
    metrics: Metrics
    gates: AdmissionLimits
    planning: asyncio.Semaphore
    outside: asyncio.Semaphore
    features: Mapping[type, object]

    def of(self, kind: type[Feature]) -> Feature:
        """Return the object of this class that a feature has in this application."""
        return cast("Feature", self.features[kind])


async def services_of(request: Request) -> Services:
    """Return the services of the application. Asynchronous, because FastAPI runs synchronous dependencies in a thread."""
    services: Services = request.app.state.services
    return services


ServicesOf = Annotated[Services, Depends(services_of)]


async def _transaction(services: ServicesOf) -> AsyncIterator[sa.Connection]:
    database = services.database
    async with database.control_turns.taken(), contextmanager_in_threadpool(database.control.begin()) as connection:
        yield connection


# Scope "function": committed before the answer is sent, so that a client can read its own write.
Transaction = Annotated[sa.Connection, Depends(_transaction, scope="function")]


async def _inspection(services: ServicesOf) -> AsyncIterator[sa.Connection]:
    database = services.database
    async with database.inspection_turns.taken(), contextmanager_in_threadpool(database.inspection.begin()) as connection:
        yield connection


async def _long_inspection(request: Request, services: ServicesOf) -> AsyncIterator[sa.Connection]:
    database = services.database
    async with (
        database.inspection_turns.taken(is_long=True),
        contextmanager_in_threadpool(database.inspection.begin()) as connection,
        cancel_statements_on_client_disconnect(request, connection),
    ):
        yield connection


Inspection = Annotated[sa.Connection, Depends(_inspection, scope="function")]
"""A short read-only transaction."""

LongInspection = Annotated[sa.Connection, Depends(_long_inspection, scope="function")]
"""A read-only transaction that may take long; it ends when its client disconnects. It must come after the body in an endpoint's parameters."""


@asynccontextmanager
async def planning_turn(services: Services) -> AsyncIterator[None]:
    """Wait for a planning permit; inside the block, the CPU deadline applies.

    Raises:
        Unavailable: ``planning_busy``.
    """
    detail = "many definitions are being checked; try again in a moment (SLACKWATER_LIMITS__PLANNING)"
    limits = services.settings.limits
    busy = Unavailable("planning_busy", detail, headers={"Retry-After": "1"})
    async with _permit(services.planning, limits.planning_wait_s, busy):
        with cpu_deadline(_Deadline(limits.planning_cpu_s)):
            yield


async def planned(services: Services, work: Callable[[], Found]) -> Found:
    """Run work in a thread under a planning permit, for example binding and compiling. Other requests run meanwhile.

    Raises:
        Unavailable: ``planning_busy``.
    """
    async with planning_turn(services):
        return await to_thread.run_sync(work)


async def looked_outside(services: Services, work: Callable[[], Found]) -> Found:
    """Ask other systems in a thread, with a limit on their number, so that requests without such questions never wait for them.

    Raises:
        Unavailable: ``sources_busy``.
    """
    detail = f"{OUTSIDE} sources are being read, and the systems behind them answer slowly; try again in a moment"
    busy = Unavailable("sources_busy", detail, headers={"Retry-After": "1"})
    async with _permit(services.outside, services.settings.limits.planning_wait_s, busy):
        return await to_thread.run_sync(work)


@asynccontextmanager
async def _permit(permits: asyncio.Semaphore, wait_s: float, busy: Unavailable) -> AsyncIterator[None]:
    """Use one of a few permits for the length of the block.

    Raises:
        Unavailable: ``busy``: no permit became free in time.
    """
    try:
        async with asyncio.timeout(wait_s):
            await permits.acquire()
    except TimeoutError as error:
        raise busy from error
    try:
        yield
    finally:
        permits.release()


class _Deadline:
    """Ends the check of a definition by the CPU time of its thread, because the machine may be busy with other work."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._began_s: float | None = None

    def begin(self) -> None:
        self._began_s = time.thread_time()

    def ask(self) -> None:
        if self._began_s is None:
            self.begin()
        elif time.thread_time() - self._began_s > self._most_s:
            bound = f"more than {self._most_s:g} s of CPU (SLACKWATER_LIMITS__PLANNING_CPU_S)"
            detail = f"checking it took {bound}; compute parts of it in another query first"
            raise DefinitionInvalid([Problem("", "definition_too_expensive", detail)])


async def _planning(services: ServicesOf) -> AsyncIterator[None]:
    async with planning_turn(services):
        yield


PlanningTurn = Annotated[None, Depends(_planning, scope="function")]
"""For routes that check definitions. As a parameter, it must come after the body, which may arrive slowly, and before the transaction."""


async def _admitted(services: ServicesOf) -> AsyncIterator[None]:
    with services.gates.pages.passed():
        yield


PageRead: Dependency = Depends(_admitted, scope="function")
"""For routes that read pages: limits how many of them run at once."""


def known_parameters(prefixes: tuple[str, ...] = ()) -> Any:
    """Refuse unknown and repeated query parameters: a misspelt filter must not return everything.

    Args:
        prefixes: the endpoint itself checks names that start with one of them.
    """

    async def check(request: Request) -> None:
        if not request.query_params:
            return
        dependant = request.scope["route"].dependant
        known, faults = set(_parameter_names(dependant)), ParameterFaults()
        for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
            if times > 1 and name in known:
                faults.add(bad_parameter(name, f"is given {times} times; give it once"))
        unknown = [name for name in request.query_params if name not in known and not name.startswith(prefixes)]
        if unknown:
            faults.add(unknown_parameter(unknown, [*sorted(known), *(f"{prefix}<column>" for prefix in prefixes)]))
        if faults.listed:  # else FastAPI reports wrong values, all of them
            for error in _wrong_values(dependant, request.query_params):
                faults.add(bad_parameter(str(error["loc"][-1]), error["msg"]))
        faults.raise_all()

    return Depends(check)


def _wrong_values(dependant: Dependant, given: QueryParams) -> Iterator[Mapping[str, Any]]:
    yield from request_params_to_args(dependant.query_params, given)[1]
    for nested in dependant.dependencies:
        yield from _wrong_values(nested, given)


def _parameter_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        model = parameter.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (field.alias or name for name, field in model.model_fields.items())
        else:
            yield parameter.alias
    for nested in dependant.dependencies:
        yield from _parameter_names(nested)


class ParameterFaults:
    """The faults of one request's parameters, gathered part by part: a parameter is checked although another one is wrong.

    Attributes:
        listed: so far.
    """

    def __init__(self) -> None:
        self.listed: list[BadRequest] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Gather the fault of the block instead of raising it. A variable that the block should assign keeps its value."""
        try:
            yield
        except BadRequest as error:
            self.add(error)

    def add(self, error: BadRequest) -> None:
        """Gather a fault, or several that are one error."""
        self.listed.append(error)

    def raise_all(self) -> None:
        """Raise them as one error; without faults do nothing.

        Raises:
            BadRequest: with the code of all of them, ``bad_parameter`` where they differ.
        """
        if not self.listed:
            return
        codes = {error.code for error in self.listed}
        code = codes.pop() if len(codes) == 1 else "bad_parameter"
        detail = "; ".join(error.detail for error in self.listed)
        raise BadRequest(code, detail, [fault for error in self.listed for fault in error.faults])


def unknown_parameter(unknown: list[str], known: list[str]) -> BadRequest:
    allowed = f"This path takes {', '.join(known)}" if known else "This path takes none"
    faults, named = [], []
    for name in unknown:
        near = meant(name, known)
        ending = "" if near is None else f"did you mean {near}? "
        faults.append(Fault(f"?{name}", "unknown_parameter", ending + allowed))
        named.append(name if near is None else f"{name} (did you mean {near}?)")
    return BadRequest("unknown_parameter", f"unknown parameter {', '.join(named)}; {allowed[0].lower()}{allowed[1:]}", faults)


def bad_parameter(name: str, detail: str) -> BadRequest:
    return BadRequest("bad_parameter", f"{name}: {detail}", [Fault(f"?{name}", "bad_parameter", detail)])


def parameters_below(request: Request, prefix: str) -> list[tuple[str, str]]:
    """Return the query parameters whose names begin with a prefix, without it."""
    return [(name.removeprefix(prefix), value) for name, value in request.query_params.multi_items() if name.startswith(prefix)]


def is_name(text: str) -> bool:
    """Return whether a part of a path can be a name at all."""
    return len(text) <= MAX_NAME_LENGTH and "\0" not in text


OnlyKnownParameters = known_parameters()

Name = Annotated[
    str, Path(description="Name of the resource.", examples=["departures"], max_length=MAX_NAME_LENGTH, pattern=r"^[^\x00]+$")
]
MOST_OF_PAGE = "Items in a page, at most. A page of large items has fewer (16 MiB, `SLACKWATER_LIMITS__PAGE_BYTES`)."
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description=MOST_OF_PAGE)]


def example(value: Any, summary: str) -> dict[str, Any]:
    return {"summary": summary, "value": value}
