"""Resources that commands open first: settings, the database, the data directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pydantic import ValidationError
from slackwater.cli.options.failing import CommandFailed, UsageError

from app.db.database import migrate
from app.db.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresMissing
from app.db.schema_version import SchemaVersion, SchemaVersionUnknown
from app.settings.effective_settings import UnknownSetting, load_settings
from app.settings.settings import Settings
from app.telemetry.tracing import TracingMissing, tracing_of
from engine.postgres.schemas import Schemas


def read_settings(**overrides: object) -> Settings:
    """Return the settings of the environment, with those of the command line.

    Raises:
        UsageError: a setting is invalid.
    """
    try:
        settings = load_settings()
        overridden = {name: value for name, value in overrides.items() if value is not None}
        return Settings.model_validate({**dict(settings), **overridden}) if overridden else settings
    except UnknownSetting as error:
        raise UsageError(str(error)) from error
    except ValidationError as error:
        raise UsageError("\n".join(_fault(fault["loc"], fault["msg"]) for fault in error.errors())) from error


def _fault(place: tuple[int | str, ...], text: str) -> str:
    return f"SLACKWATER_{'__'.join(map(str, place)).upper() if place else '…'}: {text}"


def require_tracing(settings: Settings) -> None:
    """Refuse to start if spans are configured and their packages are missing.

    Raises:
        CommandFailed: says what to install.
    """
    try:
        tracing = tracing_of(settings, "slackwater")
    except TracingMissing as error:
        raise CommandFailed(str(error)) from error
    if tracing is not None:
        tracing.close()


@contextmanager
def open_database(settings: Settings, *, is_owner: bool = False) -> Iterator[str]:
    """Yield the DSN of the given database, or of an embedded one.

    The service keeps the embedded one running, and owns the data directory; the service stops it at the end, and so does a command that
    started it.

    Raises:
        CommandFailed: no database is given, and there is no embedded one.
    """
    if settings.dsn is not None:
        yield settings.dsn
        return
    embedded = EmbeddedPostgres(settings.data_dir / "postgres")
    try:
        dsn = embedded.start()
    except EmbeddedPostgresMissing as error:
        raise CommandFailed(str(error)) from error
    if is_owner:
        embedded.keep()
    try:
        yield Schemas(settings.schema_prefix).carried_by(dsn)
    finally:
        if is_owner or not embedded.is_adopted:
            embedded.stop()


def make_current(dsn: str) -> SchemaVersion:
    """Migrate a database; return the version of its schema before.

    Raises:
        CommandFailed: this version does not know the database's schema, or the database does not answer.
    """
    try:
        return migrate(dsn)
    except SchemaVersionUnknown as error:
        raise CommandFailed(str(error)) from error
    except psycopg.OperationalError as error:
        detail = next(iter(str(error).splitlines()), type(error).__name__)
        raise CommandFailed(f"the database failed: {detail}", "slackwater doctor looks for the cause") from error


def is_in_use(settings: Settings) -> bool:
    """Return whether a service runs on the data directory."""
    try:
        with _lock_path(settings).open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_path(settings: Settings) -> Path:
    return (settings.data_dir / "serve.lock").resolve()


@contextmanager
def only_service(settings: Settings) -> Iterator[None]:
    """Lock the data directory: two services on one would stop each other's database. The kernel unlocks it, also after kill -9.

    Raises:
        CommandFailed: another service has locked it.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with _lock_path(settings).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandFailed(f"another service runs on {settings.data_dir}", "stop it, or set SLACKWATER_DATA_DIR") from error
        yield
