"""What commands open before they do their part: settings, the database, the data directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from app.effective_settings import UnknownSetting, load_settings
from app.settings import Settings
from app.store.database import migrate
from app.store.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresMissing
from app.store.schema_version import SchemaTooNew
from app.tracing import TracingMissing, tracing_of
from engine.connectors.schemas import Schemas

_err = Console(stderr=True)


def read_settings(**overrides: object) -> Settings:
    """Return the settings of the environment, with what the command line gave; says what is wrong with them, and exits."""
    try:
        settings = load_settings()
        given = {name: value for name, value in overrides.items() if value is not None}
        return Settings.model_validate({**dict(settings), **given}) if given else settings
    except UnknownSetting as error:
        _err.print(f"[red]{error}[/]", soft_wrap=True)
    except ValidationError as error:
        for fault in error.errors():
            name = "SLACKWATER_" + "__".join(str(part) for part in fault["loc"]).upper() if fault["loc"] else "SLACKWATER_…"
            _err.print(f"[red]{name}: {escape(fault['msg'])}[/]", soft_wrap=True)
    raise typer.Exit(2)


def require_tracing(settings: Settings) -> None:
    """Exit, and say what to install, where spans are asked for and cannot be made."""
    try:
        tracing = tracing_of(settings, "slackwater")
    except TracingMissing as error:
        _err.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(1) from error
    if tracing is not None:
        tracing.close()


@contextmanager
def open_database(settings: Settings, *, is_owner: bool = False) -> Iterator[str]:
    """Yield the DSN of the given database, or of an embedded one.

    The embedded one is kept alive by the service, which holds the data directory; it is stopped at the end by the service and by whoever
    started it.
    """
    if settings.dsn is not None:
        yield settings.dsn
        return
    embedded = EmbeddedPostgres(settings.data_dir / "postgres")
    try:
        dsn = embedded.start()
    except EmbeddedPostgresMissing as error:
        _err.print(f"[red]{error}[/]", soft_wrap=True)
        raise typer.Exit(1) from error
    if is_owner:
        embedded.keep()
    try:
        yield Schemas(settings.schema_prefix).carried_by(dsn)
    finally:
        if is_owner or not embedded.is_adopted:
            embedded.stop()


def make_current(dsn: str) -> None:
    """Migrate a database; says what is wrong where a newer version has been there, and exits."""
    try:
        migrate(dsn)
    except SchemaTooNew as error:
        _err.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(1) from error


def is_held(settings: Settings) -> bool:
    """Whether a service runs on the data directory."""
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
    """Hold the data directory: two services on one would stop each other's database. The kernel frees it, also after kill -9."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with _lock_path(settings).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            _err.print(
                f"[red]another service runs on {settings.data_dir}; stop it, or set SLACKWATER_DATA_DIR[/]", soft_wrap=True
            )
            raise typer.Exit(1) from error
        yield
