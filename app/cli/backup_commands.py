"""``slackwater backup`` and ``slackwater restore``: database and checkpoints together, because neither is useful alone."""

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

from app.catalog.stored.state_files import state_store_of
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
    timeout: Annotated[float, typer.Option(help="Seconds to wait until all queries are paused.")] = 300.0,
) -> None:
    """Copy the database and the state of all queries, as of one moment. The service continues; its queries are paused meanwhile."""
    with _failures():
        require_absent(directory)  # before a database is started
    settings = read_settings()
    configure_logging(settings.log)
    as_command()
    # SIGTERM must resume the queries before the command ends.
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
    """Restore a backup into an empty database and an empty data directory. Then start the service."""
    settings = read_settings()
    configure_logging(settings.log)
    as_command()
    with _failures(), only_service(settings), open_database(settings) as dsn:
        contents = put_back(dsn, settings.checkpoints_dir, state_store_of(settings), directory)
        undelivered = paused_deliveries(dsn)
    output = invocation_of(context).output
    if output.as_json:
        output.json({**_shown(directory, contents), "held_deliveries": undelivered})
        return
    output.say(f"the backup is back; {len(contents.user_queries)} queries run as soon as `slackwater serve` does")
    if undelivered:
        output.say(
            f"results of {undelivered} queries are not delivered for now, because the original service may still deliver them. "
            "If it does not, POST /v1/queries/{name}/restart; otherwise change `into.connector`"
        )


def _shown(directory: Path, contents: Contents) -> dict[str, Any]:
    """Return a backup in the form of ``--json``; its queries are those that were paused for it."""
    return {
        "directory": str(directory),
        "version": contents.version,
        "made_at": datetime.fromtimestamp(contents.at, UTC).isoformat(),
        "queries": list(contents.user_queries),
    }


@contextmanager
def _failures() -> Iterator[None]:
    """Convert errors into failures of the command."""
    try:
        yield
    except AppError as error:
        raise CommandFailed(error.detail, code=error.code) from error
    except (BackupFailed, EngineError, SchemaVersionUnknown, psycopg.Error, OSError) as error:
        raise CommandFailed(str(error)) from error
