"""The commands. Each reads the settings, builds what it needs, and says in plain words what is wrong."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
import uvicorn
from pydantic import SecretStr, ValidationError
from rich.console import Console

from app import __version__
from app.cli.doctor import examine
from app.cli.server import run
from app.cli.test_command import run_tests
from app.main import create_app
from app.settings import Settings, UnknownSetting, effective, load_settings
from app.store.database import migrate
from app.store.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresMissing
from app.telemetry import configure_logging

# Long polls end with the connection; a client that follows reconnects.
GRACEFUL_SECONDS = 5

# Longer than clients keep an idle connection: who closes first while the other sends loses a request.
KEEP_ALIVE_SECONDS = 75

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="The right answer once, after time has settled.")
config = typer.Typer(no_args_is_help=True, help="What the service is told.")
cli.add_typer(config, name="config")
cli.command("test")(run_tests)
_out = Console()
_err = Console(stderr=True)


def main() -> None:
    """Entry point of ``slackwater``."""
    cli()


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; overrides SLACKWATER_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; overrides SLACKWATER_PORT.")] = None,
    no_driver: Annotated[bool, typer.Option("--no-driver", help="Serve HTTP only; drivers run elsewhere.")] = False,
) -> None:
    """Start everything: the database if none is given, its migrations, the HTTP service and one driver."""
    settings = _settings(host=host, port=port)
    configure_logging(settings.log)
    # As Ctrl-C does: uvicorn takes it while it serves and repeats it when it is done, and the database must be stopped after that.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _only_service(settings), _database(settings, is_owner=True) as dsn:
        migrate(dsn)
        app = create_app(settings.model_copy(update={"database_url": SecretStr(dsn)}), has_driver=not no_driver)
        shown = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
        _out.print(f"Slackwater {__version__}: http://{shown}:{settings.port}/docs describes every request", soft_wrap=True)
        serving = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        run(serving, app)


@cli.command()
def doctor() -> None:
    """Look for what would keep the service from running, and say how to mend it. Exits with 1 when something would."""
    settings = _settings()
    findings = examine(settings)
    for finding in findings:
        mark = "[green]ok   [/]" if finding.is_ok else "[red]wrong[/]"
        _out.print(f"{mark} {finding.subject}: ", end="")
        _out.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
        if finding.remedy is not None:
            _out.print(f"      → {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    if not all(finding.is_ok for finding in findings):
        raise typer.Exit(1)


@cli.command("migrate")
def migrate_command() -> None:
    """Bring the database's schema to this version."""
    settings = _settings()
    configure_logging(settings.log)
    with _database(settings) as dsn:
        migrate(dsn)
    _out.print("the schema is current")


@config.command("show")
def show_config() -> None:
    """List every setting with its value, its variable, and where the value comes from. Secrets are masked."""
    rows = [("SETTING", "VALUE", "FROM", "VARIABLE")]
    rows += [(row.name, row.value, row.origin, row.variable) for row in effective(_settings(), os.environ)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _settings(**overrides: object) -> Settings:
    try:
        settings = load_settings()
        given = {name: value for name, value in overrides.items() if value is not None}
        return Settings.model_validate({**dict(settings), **given}) if given else settings
    except UnknownSetting as error:
        _err.print(f"[red]{error}[/]", soft_wrap=True)
    except ValidationError as error:
        for fault in error.errors():
            name = "SLACKWATER_" + "__".join(str(part) for part in fault["loc"]).upper()
            _err.print(f"[red]{name}: {fault['msg']}[/]", soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def _database(settings: Settings, *, is_owner: bool = False) -> Iterator[str]:
    """Yield the DSN of the given database, or of an embedded one.

    The embedded one is stopped at the end by the service, which holds the data directory, and by whoever started it.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    embedded = EmbeddedPostgres(settings.data_dir / "postgres")
    try:
        dsn = embedded.start()
    except EmbeddedPostgresMissing as error:
        _err.print(f"[red]{error}[/]", soft_wrap=True)
        raise typer.Exit(1) from error
    try:
        yield dsn
    finally:
        if is_owner or not embedded.is_adopted:
            embedded.stop()


@contextmanager
def _only_service(settings: Settings) -> Iterator[None]:
    """Hold the data directory: two services on one would stop each other's database. The kernel frees it, also after kill -9."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    path = (settings.data_dir / "serve.lock").resolve()
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            _err.print(
                f"[red]another service runs on {settings.data_dir}; stop it, or set SLACKWATER_DATA_DIR[/]", soft_wrap=True
            )
            raise typer.Exit(1) from error
        yield
