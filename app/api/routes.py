"""Every route of the service, made ready once for a process: FastAPI takes as long for that as for a hundred requests."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter
from starlette.routing import BaseRoute

from app.api import (
    api_keys,
    appending,
    audit,
    changes,
    comparisons,
    connections,
    debezium,
    error_pages,
    explain,
    forks,
    functions,
    history,
    late_records,
    lateness,
    lineage,
    me,
    overview,
    queries,
    query_events,
    reads,
    records,
    relations,
    rewinds,
    service,
    statements,
    status,
    system,
    validations,
)
from app.api.access import guards
from app.api.deps import PageRead
from app.api.documented import problems
from app.api.plain_route import PlainRoute

ROUTERS = (
    reads.keys,  # first, for routers are tried in turn
    relations.streams,
    relations.tables,
    appending.router,
    debezium.router,
    records.router,
    reads.router,
    changes.streams,
    changes.tables,
    queries.router,
    forks.router,
    rewinds.router,
    statements.router,
    status.router,
    overview.router,
    query_events.router,
    history.router,
    lineage.router,
    lateness.router,
    explain.router,
    late_records.router,
    validations.router,
    comparisons.router,
    functions.router,
    error_pages.router,
    connections.router,
    me.router,
    api_keys.router,
    audit.router,
    system.router,
    service.router,
)
PLAIN: tuple[PlainRoute, ...] = tuple(
    route for router in (reads.keys, appending.router) for route in router.routes if isinstance(route, PlainRoute)
)
"""Routes that are tried before all others: no other one has their paths and methods."""

PAGED = (
    audit.router,
    records.router,
    history.router,
    lineage.router,
    overview.router,
    lateness.router,
    explain.router,
    late_records.router,
)


@cache
def routes(*, is_key_required: bool) -> tuple[BaseRoute, ...]:
    """Return the routes, which find everything of an application in its state, so that applications share them."""
    first = guards(is_key_required=is_key_required)
    made = APIRouter(generate_unique_id_function=lambda route: route.name)
    for router in ROUTERS:
        is_paged = router in PAGED
        dependencies = [*first, PageRead] if is_paged else first
        made.include_router(router, dependencies=dependencies, responses=problems(429) if is_paged else None)
    return tuple(made.routes)
