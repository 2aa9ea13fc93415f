"""``slackwater backup`` and ``slackwater restore``: database and checkpoints together, for neither is worth anything alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from slackwater.cli.options.failing import CommandFailed
from slackwater.cli.options.invocation import invocation_of

from app.catalog.stored.state_places import state_store_of
from app.cli.keys import as_command
from app.cli.opening import only_service, open_database, read_settings
from app.db.schema_version import SchemaVersionUnknown
from app.errors.app_errors import AppError
from app.telemetry.setup import configure_logging
from app.upkeep.backups import BackupFailed, Contents, back_up, paused_deliveries, put_back, require_absent
from engine.errors import EngineError


def backup(
    context: typer.Context,
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
    output = invocation_of(context).output
    if output.as_json:
        output.json(_shown(directory, made))
        return
    output.say(f"{directory} holds the database and the state of its queries; {len(made.user_queries)} were paused for it")


def restore(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="A backup.", exists=True, file_okay=False, show_default=False)],
) -> None:
    """Put a backup back, into an empty database and an empty data directory. Then start the service."""
    settings = read_settings()
    configure_logging(settings.log)
    as_command()
    with _failures(), only_service(settings), open_database(settings) as dsn:
        found = put_back(dsn, settings.checkpoints_dir, state_store_of(settings), directory)
        held = paused_deliveries(dsn)
    output = invocation_of(context).output
    if output.as_json:
        output.json({**_shown(directory, found), "held_deliveries": held})
        return
    output.say(f"the backup is back; {len(found.user_queries)} queries run as soon as `slackwater serve` does")
    if held:
        output.say(
            f"results of {held} queries are delivered nowhere for now, for the service of which this is a copy may still deliver them. "
            "Where it does not, POST /v1/queries/{name}/restart; else change `into.connector`"
        )


def _shown(directory: Path, contents: Contents) -> dict[str, Any]:
    """Return a backup as ``--json`` shows it; its queries are those that ran, and were paused for it."""
    return {
        "directory": str(directory),
        "version": contents.version,
        "made_at": datetime.fromtimestamp(contents.at, UTC).isoformat(),
        "queries": list(contents.user_queries),
    }


@contextmanager
def _failures() -> Iterator[None]:
    """Let the command tell what went wrong."""
    try:
        yield
    except AppError as error:
        raise CommandFailed(error.detail, code=error.code) from error
    except (BackupFailed, EngineError, SchemaVersionUnknown, psycopg.Error, OSError) as error:
        raise CommandFailed(str(error)) from error
