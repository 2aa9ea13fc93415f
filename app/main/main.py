"""Composition: ``create_app`` builds every object of the service, once, and nothing happens at import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import structlog
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from app import __version__
from app.access.audit.refusals import RefusalLog
from app.access.guard import guards, note_refusal
from app.access.keys.sql import KeyCache
from app.access.tokens.verifying import Authenticator, TokenReader
from app.appends.appender import Appender
from app.catalog.connections.registries import Registries
from app.db.admission import AdmissionLimits
from app.db.database import Database
from app.db.notifications import Notifications
from app.db.write_probe import WriteProbe
from app.driver.supervisor.supervisor import Supervisor
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.answers.problems import install_error_handlers
from app.http.guards.plain_route import PlainRoutes
from app.http.parameters import OUTSIDE, Services
from app.http.servers.ports import guard, open_port, serve_beside, server_config
from app.ksqldb.listener import create_listener
from app.main.console import console_routes
from app.main.guide import guide_routes
from app.main.openapi import DESCRIPTION, TAGS, complete_openapi
from app.main.routes import PLAIN, routes
from app.reads.readable import Readables
from app.settings.settings import Settings
from app.sql.catalog import transient
from app.status.scraping import Scraper
from app.telemetry.setup import Metrics
from app.telemetry.tracing import Tracing, tracing_of
from app.upkeep.retention import RetentionLimits, trim_periodically
from engine.processes import python_functions

log = structlog.stdlib.get_logger(__name__)


def create_app(settings: Settings, *, has_driver: bool = False) -> FastAPI:
    """Build the service.

    Args:
        settings: with a ``database_url`` whose schema is current (``migrate``).
        has_driver: start and supervise a driver process; without it, a driver of another machine must run the queries.

    Raises:
        ValueError: there is no database URL; ``slackwater serve`` starts the embedded database first.
        TracingMissing: an endpoint for spans is set, but the extra ``otel`` is not installed.
    """
    if (dsn := settings.dsn) is None:
        raise ValueError("create_app needs a database_url; `slackwater serve` starts an embedded database and passes its own")
    metrics = Metrics()
    tracing = tracing_of(settings, "slackwater")
    database = Database.create(dsn, settings.pool_size, settings.limits.read_timeout_ms)
    bell = Notifications(dsn)
    gates = AdmissionLimits.of(settings.limits, metrics.refused)
    features = (
        Appender(database.appends, metrics),
        Readables(database, gates, settings.limits),
        Followables(database.reads),
        Tails(dsn, bell, settings.limits.read_timeout_ms),
        Registries(database, settings.secret_sources),
    )
    services = Services(
        settings,
        database,
        bell,
        metrics,
        gates,
        asyncio.Semaphore(settings.limits.planning),
        asyncio.Semaphore(OUTSIDE),
        {type(each): each for each in features},
    )
    supervisor = Supervisor(settings, dsn) if has_driver else None
    app = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        static_url="/docs/assets",
        title="Slackwater",
        version=__version__,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        lifespan=_lifespan(services, supervisor, tracing),
        redirect_slashes=False,  # a Location would repeat the name in Host
    )
    app.state.services = services
    app.state.close_streams = services.of(Tails).close
    tokens = None if settings.oidc.issuer is None else TokenReader(settings.oidc)
    app.state.door = Authenticator(KeyCache(database.reads), tokens)
    app.state.guards = guards(is_key_required=settings.is_key_required)
    app.state.refusals = RefusalLog(database.reads)
    app.state.driver_trouble = supervisor.trouble if supervisor is not None else lambda: None
    app.state.has_ready_driver = (lambda: supervisor.is_ready) if supervisor is not None else lambda: False
    app.state.write_probe = WriteProbe(database.reads)
    app.state.scraper = Scraper(database.reads, metrics.registry, settings.checkpoints_dir)
    install_error_handlers(app, settings.limits.read_timeout_ms, note_refusal)
    app.add_middleware(PlainRoutes, routes=PLAIN, handlers=app.exception_handlers)
    guard(app, settings, metrics, tracing)
    app.router.routes.extend(routes(is_key_required=settings.is_key_required))
    app.router.routes.extend(guide_routes())
    app.router.routes.extend(console_routes())
    complete_openapi(app)
    return app


def _lifespan(
    services: Services, supervisor: AbstractAsyncContextManager[object] | None, tracing: Tracing | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if tracing is not None:
                stack.push_async_callback(asyncio.to_thread, tracing.close)
            await services.database.open()
            stack.push_async_callback(services.database.close)
            stack.callback(services.of(Registries).close)
            stack.callback(python_functions.close_all)
            stack.push_async_callback(app.state.refusals.close)
            background = await stack.enter_async_context(asyncio.TaskGroup())
            tasks = [
                background.create_task(services.bell.run()),
                background.create_task(app.state.refusals.run()),
                background.create_task(
                    trim_periodically(
                        services.database.dsn,
                        services.metrics,
                        services.settings.trim_interval_s,
                        RetentionLimits(
                            services.settings.changes_retention_ms,
                            services.settings.undelivered_retention_ms,
                            services.settings.history_rows,
                            services.settings.audit_retention_ms,
                            services.settings.audit_rows,
                        ),
                    )
                ),
            ]
            stack.callback(lambda: [task.cancel() for task in tasks])
            tasks.append(background.create_task(transient.sweep_periodically(services.database)))
            await stack.enter_async_context(services.of(Appender))
            await stack.enter_async_context(services.of(Tails))
            if (port := services.settings.ksql_port) is not None:
                opened = open_port(services.settings.host, port, "SLACKWATER_KSQL_PORT")
                stopping = asyncio.Event()
                listener = create_listener(services, app.state.door, app.state.refusals, tracing)
                serving = server_config(listener, services.settings, graceful_s=1, speaks_http2=True, lifespan="off")
                listening = background.create_task(serve_beside(serving, opened, stopping))
                stack.push_async_callback(asyncio.wait, [listening])
                stack.callback(stopping.set)
                log.info("ksqldb_listener_started", host=services.settings.host, port=port)
            if supervisor is not None:
                await stack.enter_async_context(supervisor)
            log.info("service_started", version=__version__, has_driver=supervisor is not None)
            if not services.settings.is_key_required:
                log.warning("api_keys_not_required", host=services.settings.host, auth=services.settings.auth)
            yield
        log.info("service_stopped")

    return lifespan
