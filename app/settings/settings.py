"""The one tree of settings: typed, frozen, passed down. ``app.settings.effective_settings`` reads it from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.settings.limit_settings import LimitSettings, PushSettings, SqlSettings
from app.settings.oidc_settings import OidcSettings, is_loopback
from app.settings.spark_settings import SparkSettings
from engine.connections.keys import SecretKeys
from engine.connections.secret_sources import SecretSources
from engine.definition.connections.hosts import HostBounds
from engine.expressions.durations import parse_duration
from engine.postgres.schemas import OPTION, BadPrefix, Schemas

ENV_PREFIX = "SLACKWATER_"
NESTING = "__"
COLLECTOR_HINT = "not a URL such as http://collector:4318 (headers for the collector go to OTEL_EXPORTER_OTLP_HEADERS)"
STATE_HINT = (
    "not the place of an object store, such as s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix, without user, password, "
    "port or parameters: credentials and endpoint go to the client's own variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, ...). Leave it out to keep "
    "state in the data directory, or in another one that SLACKWATER_CHECKPOINT_URL names"
)
LEAST_INTERVAL_MS = 10_000
"""Lower bound, because a retained commit costs some statements and a copy of all manifests."""
MOST_INTERVAL_MS = 86_400_000
_OBJECTS = re.compile(
    r"(?:s3|gs)://[a-z0-9][a-z0-9._-]+(?:/[A-Za-z0-9._=-]+)*/?|az://[a-z0-9]+/[a-z0-9-]+(?:/[A-Za-z0-9._=-]+)*/?"
)
_COLLECTOR = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
URL_HINT = "not a URL such as postgresql://user:password@host:5432/database (special characters of the password as %XX)"


class DriverSettings(BaseModel):
    """Timings of the managed driver, in milliseconds, and its limit of queries.

    Attributes:
        poll_ms: interval of looking for work without a notification.
        lease_ttl_ms: duration of a driver's lease of a query; without renewal, another driver may take the query.
        heartbeat_ms: interval of the driver's heartbeats and lease renewals.
        start_timeout_ms: time limit of a launch of a query; beyond it, the launch has failed and is retried.
        stop_timeout_ms: time limit for the running batch when a query or the driver stops in order.
        backoff_base_ms: wait before a failed query is launched again; it doubles each time.
        backoff_cap_ms: the longest such wait.
        max_attempts: failed launches in a row before the query fails for good. Failures of unavailable systems outside do not count.
        healthy_after_ms: after this time without failure, a query's attempts are counted from 0 again.
        max_queries: limit of queries; more wait for another driver (internal queries, of tables with `materialize`, do not count). Queries with
            low load share processes and connections; others need about 100 MB and three connections each (`execution` in their status).
        rebalance_after_ms: other drivers must have room for this long before a driver hands queries over to them.
        spare: keep a process (250 MB) that takes over when the driver dies: it has imported everything, so queries run again sooner.
        spare_after_ms: time after the driver is ready until its spare is started.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_ms: int = Field(default=2_000, ge=10)
    lease_ttl_ms: int = Field(default=15_000, ge=100, le=600_000)  # a longer one is taken for one of a clock that was set back
    heartbeat_ms: int = Field(default=3_000, ge=10)
    start_timeout_ms: int = Field(default=120_000, ge=1_000)
    stop_timeout_ms: int = Field(default=30_000, ge=100)
    backoff_base_ms: int = Field(default=1_000, ge=1)
    backoff_cap_ms: int = Field(default=60_000, ge=1)
    max_attempts: int = Field(default=10, ge=1)
    healthy_after_ms: int = Field(default=120_000, ge=0)
    max_queries: int = Field(default=100, ge=1, le=1_000)
    rebalance_after_ms: int = Field(default=60_000, ge=0)
    spare: bool = True
    spare_after_ms: int = Field(default=30_000, ge=0)


class LogSettings(BaseModel):
    """The service's own log.

    Attributes:
        format: lines of JSON, or text for people; ``auto``: text in a terminal, otherwise JSON.
        level: the least important level that is written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


class Settings(BaseSettings):
    """All settings of the service.

    Attributes:
        database_url: ``postgresql://…``; None: an embedded Postgres starts below ``data_dir``.
        schema_prefix: prefix of the names of our schemas in the database, such as ``acme_``. Services with different prefixes share a
            database and do not see each other. After a change of the prefix, a service finds none of its data.
        host: the address that the service listens on; if others can reach it, API keys are required (``auth``).
        port: the port that it listens on.
        ksql_port: port for clients of ksqlDB, in its protocol (8088 is what they expect); None: none.
        data_dir: embedded database, checkpoints and state; created if absent.
        checkpoint_url: directory of queries' checkpoints and state instead, as ``file:///directory``. On a cluster it must exist on a
            file system that the driver's host and all workers have mounted at this path.
        auth: whether requests need an API key or a token; ``auto``: no, if only this machine can reach the service and no issuer of tokens
            is set; otherwise yes.
        api_key: the key that the command line and the Python client send; the service itself does not read it.
        allowed_hosts: host names, separated by commas, that a service without keys answers to, beside localhost and addresses.
        files_root: sources read only directories below it; None: they read none.
        max_body_bytes: limit of bodies of appends; larger ones are answered 413.
        max_control_body_bytes: the same for all other requests. Such a body is parsed as a whole, while other requests wait.
        client_timeout_s: time limit for a request's head; its body must bring a KiB per second. Slower connections are closed.
        trim_interval_s: interval of deleting data of the log past its retention.
        changes_retention_ms: how long changes of derived tables can be followed or read again; at least as long as their readers need.
        history_rows: number of events, and of runs, stored per query: the newest.
        audit_retention_ms: how long entries of the audit log are stored.
        audit_rows: number of its entries of changes that are stored: the newest.
        otel_endpoint: base URL of an OTLP/HTTP collector, such as ``http://collector:4318``; None: no spans. Needs the extra ``otel``.
        state_url: an object store for queries' state instead of files, as ``s3://bucket/prefix`` (``gs://``, ``az://``).
            Credentials and endpoint are the client's own variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT``, …), in the environment of the
            driver and of a cluster's workers. ``file://`` means none.
        state_cache_dir: where each host stores copies of such state; by default ``state-cache`` below ``data_dir``.
        state_cache_bytes: size limit of these copies.
        state_retention: how long unused state is stored, as ``24h`` or ``90m``, so that a database restored from a dump of that time
            finds it.
        state_retained_bytes: limit of such state per query; the oldest is deleted first. On a disk that is nearly full, all of it
            is deleted.
        retained_commits_every: minimum time between two retained commits of a query, to which it can be rewound, ``10s`` or
            more; they thin out with age to some forty, and are deleted after ``state_retention``. ``0s``: none.
        delivery_root: results are delivered as files only to directories below it (``into.connector``); None: to none.
        undelivered_retention_ms: how long results wait in the log for an unavailable target, whatever their retention; then
            their retention applies, and the delivery stops (``delivery_overtaken``).
        secret_key: encrypts the secrets of connections in the database, 32 characters or more; ``new,old`` encrypts with the first and decrypts
            with all. None: connections have only references (``env:``, ``file:``). The same for all services, drivers and workers.
        secrets_dir: ``file:PATH`` of connections reads only below it; None: it reads nothing. It must exist on every host that runs queries.
        connection_hosts: names, patterns and networks that connections may reach, separated by commas
            (``*.kafka.example.com,10.0.0.0/8``); empty: all but link-local addresses.
        pool_size: database connections of each pool; ``docs/operations/sizing.md`` has their total.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=NESTING,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = None
    schema_prefix: str = ""
    data_dir: Path = Path(".slackwater")
    checkpoint_url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=1, le=65_535)
    ksql_port: int | None = Field(default=None, ge=1, le=65_535)
    auth: Literal["auto", "on", "off"] = "auto"
    api_key: SecretStr | None = None
    allowed_hosts: str = Field(default="", pattern=r"^[A-Za-z0-9._:, -]*$")
    files_root: Path | None = None
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1_024)
    max_control_body_bytes: int = Field(default=1024 * 1024, ge=1_024)
    client_timeout_s: float = Field(default=20.0, gt=0)
    trim_interval_s: float = Field(default=60.0, gt=0)
    changes_retention_ms: int = Field(default=7 * 86_400_000, ge=1)
    history_rows: int = Field(default=10_000, ge=100)
    audit_retention_ms: int = Field(default=366 * 86_400_000, ge=86_400_000)
    audit_rows: int = Field(default=100_000, ge=1_000)
    otel_endpoint: str | None = None
    state_url: str | None = None
    state_cache_dir: Path | None = None
    state_cache_bytes: int = Field(default=16 * 1024**3, ge=1024**2)
    state_retention: str = "24h"
    state_retained_bytes: int = Field(default=4 * 1024**3, ge=0)
    retained_commits_every: str = "1m"
    delivery_root: Path | None = None
    undelivered_retention_ms: int = Field(default=7 * 86_400_000, ge=0)
    secret_key: SecretStr | None = None
    secrets_dir: Path | None = None
    connection_hosts: str = ""
    pool_size: int = Field(default=4, ge=2, le=200)
    spark: SparkSettings = SparkSettings()
    driver: DriverSettings = DriverSettings()
    push: PushSettings = PushSettings()
    limits: LimitSettings = LimitSettings()
    oidc: OidcSettings = OidcSettings()
    sql: SqlSettings = SqlSettings()
    log: LogSettings = LogSettings()

    @field_validator("database_url")
    @classmethod
    def _is_url(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse URLs that libpq would refuse with a message that repeats the password."""
        if value is not None:
            try:
                if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
                    raise ValueError(URL_HINT)
                conninfo_to_dict(value.get_secret_value())
            except ProgrammingError:
                raise ValueError(URL_HINT) from None
        return value

    @field_validator("schema_prefix")
    @classmethod
    def _is_prefix(cls, value: str) -> str:
        return Schemas(value).prefix

    @field_validator("checkpoint_url")
    @classmethod
    def _is_directory(cls, value: str | None) -> str | None:
        """Refuse unusable places: state is files that are synced, renamed and memory-mapped."""
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme != "file":
            named = f"{parts.scheme}://" if parts.scheme else "a path without a scheme"
            raise ValueError(
                f"{named} is not supported, only file:///DIRECTORY. Mount the shared file system and name where it is"
            )
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not PurePosixPath(unquote(parts.path)).name:
            raise ValueError(f"{value}: not an absolute directory such as file:///mnt/shared/slackwater (three slashes)")
        return value

    @field_validator("state_url")
    @classmethod
    def _is_object_store(cls, value: str | None) -> str | None:
        if value is None or value in ("file://", "file:///"):
            return None
        if not _OBJECTS.fullmatch(value):
            raise ValueError(STATE_HINT)
        return value.rstrip("/")

    @field_validator("state_retention")
    @classmethod
    def _is_duration(cls, value: str) -> str:
        parse_duration(value)
        return value

    @field_validator("retained_commits_every")
    @classmethod
    def _is_interval(cls, value: str) -> str:
        interval_ms = parse_duration(value)
        if interval_ms and not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
            raise ValueError(f"'{value}': from 10s to 1d, or 0s for none")
        return value

    @field_validator("secret_key")
    @classmethod
    def _are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            SecretKeys.of(value.get_secret_value())
        return value

    @field_validator("connection_hosts")
    @classmethod
    def _are_hosts(cls, value: str) -> str:
        HostBounds.of(value)
        return value

    @field_validator("otel_endpoint")
    @classmethod
    def _is_collector(cls, value: str | None) -> str | None:
        if value is not None and not _COLLECTOR.fullmatch(value):
            raise ValueError(COLLECTOR_HINT)
        return value

    @model_validator(mode="after")
    def _uses_its_issuer(self) -> Self:
        if self.auth == "off" and self.oidc.issuer is not None:
            raise ValueError(
                "SLACKWATER_AUTH=off asks for nothing, so SLACKWATER_OIDC__ISSUER would be ignored; unset one of them"
            )
        return self

    @model_validator(mode="after")
    def _fits_the_cluster(self) -> Self:
        """Refuse settings that executors on other hosts could not use."""
        if self.spark.is_cluster and self.checkpoint_url is None and self.state_url is None:
            raise ValueError(
                f"SLACKWATER_SPARK__MASTER={self.spark.master} needs SLACKWATER_CHECKPOINT_URL=file:///…: a directory that the driver and "
                "every worker see at the same path, for executors keep state there; or SLACKWATER_STATE_URL=s3://…, an object store"
            )
        if not self.spark.is_elsewhere:
            return self
        if self.spark.auth_secret is None:
            raise ValueError(
                f"SLACKWATER_SPARK__MASTER={self.spark.master} needs SLACKWATER_SPARK__AUTH_SECRET (`openssl rand -hex 32`), the same as its "
                "master and workers have: records and the database's password travel between them"
            )
        host = self.spark.driver_host
        if host is not None and is_loopback(host):
            raise ValueError(
                f"SLACKWATER_SPARK__DRIVER_HOST={host}: executors of {self.spark.master} cannot reach the driver there"
            )
        if self.database_url is None or _is_here(conninfo_to_dict(self.database_url.get_secret_value())):
            raise ValueError(
                f"SLACKWATER_SPARK__MASTER={self.spark.master} needs a SLACKWATER_DATABASE_URL that executors on other hosts can reach: "
                "a Postgres with an address of its own, not the embedded one, a socket or localhost"
            )
        return self

    @model_validator(mode="after")
    def _has_one_prefix(self) -> Self:
        """Refuse a prefix in the URL, where processes pass it to each other, if it is invalid or differs from the setting."""
        try:
            carried = Schemas.of(self.database_url.get_secret_value()).prefix if self.database_url is not None else ""
        except BadPrefix as error:
            raise ValueError(f"SLACKWATER_DATABASE_URL: {error}; set SLACKWATER_SCHEMA_PREFIX instead") from None
        if carried and self.schema_prefix and carried != self.schema_prefix:
            raise ValueError(
                f"SLACKWATER_SCHEMA_PREFIX={self.schema_prefix}, and SLACKWATER_DATABASE_URL says {carried}: take {OPTION} out of the URL"
            )
        return self

    @property
    def dsn(self) -> str | None:
        """The URL of the database, including ``schema_prefix``, for every process and connection; None: the embedded one."""
        return None if self.database_url is None else Schemas(self.schema_prefix).carried_by(self.database_url.get_secret_value())

    @property
    def cache_dir(self) -> Path:
        """Directory of this host for copies of state in an object store."""
        if self.state_cache_dir is not None:
            return self.state_cache_dir.expanduser().absolute()
        return (self.data_dir / "state-cache").expanduser().resolve()

    @property
    def state_retention_ms(self) -> int:
        return parse_duration(self.state_retention)

    @property
    def retained_commits_every_ms(self) -> int:
        return parse_duration(self.retained_commits_every)

    @property
    def secret_sources(self) -> SecretSources:
        """Secrets for connections in this process. Drivers and workers read the same from their environment."""
        keys = None if self.secret_key is None else SecretKeys.of(self.secret_key.get_secret_value())
        return SecretSources(keys, os.environ, self.secrets_dir, HostBounds.of(self.connection_hosts))

    @property
    def is_key_required(self) -> bool:
        return self.auth == "on" or (self.auth == "auto" and (not self.is_loopback or self.oidc.issuer is not None))

    @property
    def host_names(self) -> frozenset[str]:
        """``allowed_hosts`` one by one, and the bound host."""
        return frozenset(name.strip() for name in f"{self.allowed_hosts},{self.host}".split(",")) - {""}

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service. A name other than localhost counts as open."""
        return is_loopback(self.host)

    @property
    def checkpoints_dir(self) -> Path:
        """Directory of queries' checkpoints and state; absolute, and the same in every process."""
        if self.checkpoint_url is not None:
            # Keep links: on another host the same link may lead elsewhere.
            return Path(unquote(urlsplit(self.checkpoint_url).path))
        return (self.data_dir / "checkpoints").expanduser().resolve()


def _is_here(database: Mapping[str, Any]) -> bool:
    """Return whether a database can be reached only from this machine."""
    hosts = str(database.get("hostaddr") or database.get("host") or "localhost").split(",")
    return any(host.startswith(("/", "@")) or is_loopback(host) for host in hosts)
