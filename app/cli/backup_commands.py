"""``slackwater backup`` and ``slackwater restore``: database and checkpoints together, for neither is worth anything alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.markup import escape

from app.cli.keys import as_command
from app.cli.opening import only_service, open_database, read_settings
from app.errors import AppError
from app.store.backups import BackupFailed, back_up, held_deliveries, put_back, require_absent
from app.store.schema_version import SchemaTooNew
from app.store.state_places import state_store_of
from app.telemetry import configure_logging
from engine.errors import EngineError

_err = Console(stderr=True)


def backup(
    directory: Annotated[Path, typer.Argument(help="Where to write it; must not exist.", show_default=False)],
    timeout: Annotated[float, typer.Option(help="Seconds that queries may take to come to rest.")] = 300.0,
) -> None:
    """Copy the database and the state of all queries, of one moment. The service goes on; its queries are paused meanwhile."""
    with _failures():
        require_absent(directory)  # before a database is started for it
    settings = read_settings()
    configure_logging(settings.log)
    as_command()
    # Told to end, it lets the queries go on first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _failures(), open_database(settings) as dsn:
        made = back_up(dsn, settings.checkpoints_dir, state_store_of(settings), directory, timeout)
    typer.echo(f"{directory} holds the database and the state of its queries; {len(made.user_queries)} were paused for it")


def restore(
    directory: Annotated[Path, typer.Argument(help="A backup.", exists=True, file_okay=False, show_default=False)],
) -> None:
    """Put a backup back, into an empty database and an empty data directory. Then start the service."""
    settings = read_settings()
    configure_logging(settings.log)
    as_command()
    with _failures(), only_service(settings), open_database(settings) as dsn:
        found = put_back(dsn, settings.checkpoints_dir, state_store_of(settings), directory)
        held = held_deliveries(dsn)
    typer.echo(f"the backup is back; {len(found.user_queries)} queries run as soon as `slackwater serve` does")
    if held:
        typer.echo(
            f"results of {held} queries are delivered nowhere for now, for the service of which this is a copy may still deliver them. "
            "Where it does not, POST /v1/queries/{name}/restart; else change `into.connector`"
        )


@contextmanager
def _failures() -> Iterator[None]:
    """Say what went wrong, and exit."""
    try:
        yield
    except (BackupFailed, AppError, EngineError, SchemaTooNew, psycopg.Error, OSError) as error:
        _err.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(1) from error
