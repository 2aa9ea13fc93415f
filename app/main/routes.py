"""Every route of the service, built once per process: FastAPI needs as much time for this as for a hundred requests."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter
from starlette.routing import BaseRoute

from app.access import me
from app.access.audit import routes as audit
from app.access.guard import guards
from app.access.keys import routes as api_keys
from app.access.tokens import debezium
from app.appends import routes as appending
from app.catalog.connections import routes as connections
from app.catalog.history import fork_routes as forks
from app.catalog.history import rewind_routes as rewinds
from app.catalog.query_routes import routes as queries
from app.catalog.query_routes import validations
from app.catalog.relations import routes as relations
from app.comparisons import routes as comparisons
from app.explain import routes as explain
from app.following import query_events
from app.following import routes as changes
from app.http.answers.documented import problems
from app.http.guards.plain_route import PlainRoute
from app.http.parameters import PageRead
from app.lateness import record_routes as late_records
from app.lateness import routes as lateness
from app.main import functions, guide
from app.reads import record_routes as records
from app.reads import routes as reads
from app.sql import routes as statements
from app.status import drivers as system
from app.status import history, service
from app.status import overview_routes as overview
from app.status import routes as status
from app.status.lineage import routes as lineage

ROUTERS = (
    reads.keys,  # first, because routers are tried in turn
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
    guide.router,
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
"""Routes that are tried before all others; no other route has their paths and methods."""

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
    """Return the routes. Applications share them, because each route finds everything in the state of its application."""
    first = guards(is_key_required=is_key_required)
    router_of_all = APIRouter(generate_unique_id_function=lambda route: route.name)
    for router in ROUTERS:
        is_paged = router in PAGED
        dependencies = [*first, PageRead] if is_paged else first
        router_of_all.include_router(router, dependencies=dependencies, responses=problems(429) if is_paged else None)
    return tuple(router_of_all.routes)
