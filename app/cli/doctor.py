"""Faults that keep the service from running, each with a remedy: the machine (``app.cli.machine``), the database, ports, other systems."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from uuid import uuid4

import httpx
import psycopg

from app.access.tokens.issuer_keys import IssuerAway, IssuerKeys
from app.catalog.connections.sql import look_at_secrets
from app.catalog.stored.state_files import state_store_of
from app.cli.machine import Finding, examine_machine
from app.cli.opening import is_in_use
from app.db.database import CONNECT_TIMEOUT_SECONDS
from app.db.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresMissing
from app.db.schema_version import SchemaVersionUnknown, refuse_unknown
from app.settings.oidc_settings import OidcSettings
from app.settings.settings import Settings
from app.telemetry.tracing import TracingMissing, tracing_of
from engine.errors import EngineError
from engine.postgres.links import LinkedConnection
from engine.postgres.schemas import Schemas
from engine.state.segments.objects import SCHEMES, Objects
from engine.state.segments.ports import FIRST_SEGMENTS, SEGMENT_SUFFIX

# A busy service answers this within milliseconds.
ANSWER_SECONDS = 5.0
# Tokens expire by the service's clock, waits by the wall clock take seconds, and object stores refuse requests with a wrong time.
MOST_CLOCK_DIFFERENCE_S = 5.0


def examine(settings: Settings) -> list[Finding]:
    """Check everything; the checks leave nothing behind."""
    findings = [*examine_machine(settings), *_database(settings)]
    findings += [_port(settings, port, variable) for port, variable in _ports(settings)]
    findings.append(_access(settings))
    if isinstance(store := state_store_of(settings), Objects):
        findings.append(_objects(store))
    if settings.spark.is_cluster:
        findings.append(_master(settings))
    if settings.oidc.issuer is not None:
        findings.append(_issuer(settings.oidc))
    return findings if settings.otel_endpoint is None else [*findings, _tracing(settings)]


def _objects(store: Objects) -> Finding:
    """Write, read, list and remove an object, as a query does."""
    subject, place = "State", store.below(f"doctor-{uuid4().hex}")
    name, content = f"{FIRST_SEGMENTS}/0/0/probe{SEGMENT_SUFFIX}", b"slackwater"
    try:
        place.put(name, content)
        is_whole = place.get(name) == content and [found.name for found in place.listed()] == [name]
        place.clear()
    except EngineError as error:
        variables = f"{SCHEMES[store.url.split(':', 1)[0]]}_…"
        return Finding(
            subject, False, str(error), f"correct SLACKWATER_STATE_URL, or the credentials and endpoint in {variables}"
        )
    if not is_whole:
        return Finding(
            subject, False, f"{store} does not give back what was written", "name another place in SLACKWATER_STATE_URL"
        )
    return Finding(subject, True, f"{store} is readable and writable; copies are in {store.cached.directory}")


def _master(settings: Settings) -> Finding:
    """Check whether a master of the cluster can be reached. The first query shows whether its workers fit."""
    refused = []
    for host, port in settings.spark.masters:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            refused.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return Finding("Spark master", True, f"{host}:{port} answers")
    return Finding("Spark master", False, "; ".join(refused), "start the master, or correct SLACKWATER_SPARK__MASTER")


def _database(settings: Settings) -> list[Finding]:
    if settings.dsn is not None:
        return _looked_at(settings.dsn, "SLACKWATER_DATABASE_URL", settings)
    embedded = EmbeddedPostgres(settings.data_dir / "postgres")
    try:
        dsn = embedded.start()
    except EmbeddedPostgresMissing as error:
        return [Finding("Database", False, "none", str(error))]
    except (OSError, RuntimeError, psycopg.Error) as error:
        remedy = f"look at {settings.data_dir / 'postgres' / 'log'}"
        return [Finding("Database", False, f"the embedded Postgres does not start: {error}", remedy)]
    try:
        return _looked_at(Schemas(settings.schema_prefix).carried_by(dsn), "embedded", settings)
    finally:
        if not embedded.is_adopted:
            embedded.stop()


def _looked_at(dsn: str, origin: str, settings: Settings) -> list[Finding]:
    database = _reachable(dsn, origin)
    return [database, _secrets(dsn, settings), _clock(dsn)] if database.is_ok else [database]


def _clock(dsn: str) -> Finding:
    """Compare this machine's clock with the database's; the duration of the question does not count."""
    try:
        with LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            before = time.time()
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
            after = time.time()
    except psycopg.Error as error:
        return Finding("Clock", False, f"cannot be compared: {type(error).__name__}", "look at the database")
    return clock_finding(before, row[0] if row is not None else before, after)


def clock_finding(before_s: float, there_s: float, after_s: float) -> Finding:
    """Compare the time of another clock with two times of this one, before and after."""
    difference = max(before_s - there_s, there_s - after_s, 0.0)
    if difference > MOST_CLOCK_DIFFERENCE_S:
        side = "behind" if there_s > after_s else "ahead of"
        remedy = "let both be set by NTP: tokens, waits by the wall clock and object stores rely on it"
        return Finding("Clock", False, f"{difference:.0f} s {side} the database's", remedy)
    return Finding("Clock", True, "agrees with the database's")


def _secrets(dsn: str, settings: Settings) -> Finding:
    subject, keys = "Secrets", settings.secret_sources.keys
    try:
        with LinkedConnection.connect(dsn, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            secrets = look_at_secrets(connection, keys)
    except psycopg.Error as error:
        return Finding(
            subject, False, f"cannot be looked at: {type(error).__name__}", "check what the user of the database may read"
        )
    if secrets.unreadable:
        remedy = "set SLACKWATER_SECRET_KEY to the key they were stored with (new,old keeps both), or PUT these connections again"
        return Finding(subject, False, "; ".join(secrets.unreadable), remedy)
    if keys is None:
        return Finding(
            subject, True, "connections keep none; SLACKWATER_SECRET_KEY is not set, so they have env:NAME and file:PATH alone"
        )
    former = f"; PUT {', '.join(secrets.of_former_keys)} again before the former key is removed" if secrets.of_former_keys else ""
    return Finding(subject, True, f"those of {secrets.connections} connections can be decrypted{former}")


def _reachable(dsn: str, origin: str) -> Finding:
    try:
        with LinkedConnection.connect(dsn, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            connection.execute("CREATE TEMPORARY TABLE slackwater_probe (n integer) ON COMMIT DROP")
            may_create = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
            refuse_unknown(connection)
            prefix = connection.schemas.prefix
            server = f"Postgres {connection.info.server_version // 10_000} ({origin})"
    except SchemaVersionUnknown as error:
        return Finding("Database", False, str(error), "install the version of Slackwater that made it")
    except (psycopg.Error, UnicodeError) as error:
        detail = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        return Finding(
            "Database", False, detail, f"check {origin}: host, port, user, password, database; and that the server runs"
        )
    if may_create is None or not may_create[0]:
        return Finding("Database", False, f"{server} may not create schemas", "GRANT CREATE ON DATABASE … TO the user of the URL")
    named = f"; its schemas begin with {prefix} (SLACKWATER_SCHEMA_PREFIX)" if prefix else ""
    return Finding("Database", True, f"{server}, reachable and writable{named}")


def _ports(settings: Settings) -> list[tuple[int, str]]:
    """Return every port that the service listens on, with the variable that sets it."""
    ports = [(settings.port, "SLACKWATER_PORT")]
    return ports if settings.ksql_port is None else [*ports, (settings.ksql_port, "SLACKWATER_KSQL_PORT")]


def _port(settings: Settings, port: int, variable: str) -> Finding:
    subject = "Port" if port == settings.port else "Port for ksqlDB's clients"
    where = f"{settings.host}:{port}"
    try:
        family = socket.getaddrinfo(settings.host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, port))
    except OSError as error:
        running = _service_on(settings) if error.errno == errno.EADDRINUSE else None
        if running is not None and is_in_use(settings):
            return Finding(subject, True, f"{where}: the service of this data directory answers there ({running})")
        if running is not None and port == settings.port:
            remedy = f"stop it, or set {variable}; `slackwater config show` has the data directory of this one"
            return Finding(subject, False, f"{where}: a service of another data directory answers there ({running})", remedy)
        if error.errno == errno.EACCES:
            return Finding(
                subject, False, f"{where}: {error.strerror}", f"set {variable} to 1024 or more: lower ones are for root"
            )
        return Finding(subject, False, f"{where}: {error.strerror}", f"stop what uses it, or set {variable} (or SLACKWATER_HOST)")
    return Finding(subject, True, f"{where} is free")


def _service_on(settings: Settings) -> str | None:
    """Return name and version of a Slackwater that answers on the port; None if something else listens."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared, not bound
    try:
        answer = httpx.get(
            httpx.URL(scheme="http", host=host, port=settings.port, path="/v1/version"), timeout=ANSWER_SECONDS, trust_env=False
        )
        version = answer.json()
    except (httpx.HTTPError, ValueError):
        return None
    is_ours = isinstance(version, dict) and version.get("api") == "v1" and "version" in version
    return f"Slackwater {version['version']}" if is_ours else None


def _access(settings: Settings) -> Finding:
    """Report who may use the service. Open access on an open address is a fault, unless the operator knows of it."""
    where = f"SLACKWATER_AUTH={settings.auth}, SLACKWATER_HOST={settings.host}"
    if settings.is_key_required:
        return Finding("Access", True, f"every request needs an API key ({where}); `slackwater keys list` shows them")
    if settings.is_loopback:
        return Finding("Access", True, f"no API key is asked for: only this machine can reach the service ({where})")
    return Finding(
        "Access",
        False,
        f"everybody who reaches the service may do everything ({where})",
        "unset SLACKWATER_AUTH, unless a proxy before the service authenticates callers",
    )


def _issuer(settings: OidcSettings) -> Finding:
    """Ask the issuer for its keys, as the service does at the first token."""
    try:
        keys = asyncio.run(IssuerKeys(settings).fetch())
    except IssuerAway as error:
        return Finding(
            "Issuer",
            False,
            f"{settings.issuer}: {error}",
            "correct SLACKWATER_OIDC__ISSUER or …__JWKS_URL, or let this machine reach it",
        )
    usable = [name for name in settings.algorithm_names if any(key.fits(name) for key in keys)]
    if not usable:
        detail = f"{settings.issuer}: none of its {len(keys)} keys is for {settings.algorithms}"
        return Finding("Issuer", False, detail, "set SLACKWATER_OIDC__ALGORITHMS to what the issuer signs with")
    return Finding("Issuer", True, f"{settings.issuer} has {len(keys)} keys, for {', '.join(usable)}")


def _tracing(settings: Settings) -> Finding:
    try:
        tracing = tracing_of(settings, "slackwater")
    except TracingMissing as error:
        return Finding("Tracing", False, str(error), "pip install 'slackwater[otel]', or unset SLACKWATER_OTEL_ENDPOINT")
    if tracing is not None:
        tracing.close()
    return Finding("Tracing", True, f"spans go to {settings.otel_endpoint}")
