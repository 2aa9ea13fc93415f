"""The commands. Each reads the settings, builds what it needs, and explains faults in plain words."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import psycopg
import typer
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text
from slackwater.cli.options.failing import FAILED, CommandFailed, UsageError
from slackwater.cli.options.invocation import MachineCommand, ReportingCommand, ReportingGroup, invocation_of

from app import __version__
from app.catalog.stored.state_files import state_store_of
from app.cli.doctor import examine
from app.cli.keys import as_command, keys, say_who_may
from app.cli.machine import Finding
from app.cli.opening import make_current, only_service, open_database, read_settings, require_tracing
from app.cli.test_command import run_tests
from app.db.schema_version import SchemaVersionUnknown
from app.errors.app_errors import AppError
from app.http.servers.ports import run, server_config
from app.main.main import create_app
from app.settings.effective_settings import effective
from app.telemetry.setup import configure_logging
from app.upkeep.backups import BackupFailed, Contents, back_up, paused_deliveries, put_back, require_absent
from engine.errors import EngineError
from engine.processes.python_processes import make_children_safe


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


# Long polls end with the connection; a client that follows reconnects.
GRACEFUL_SECONDS = 5

cli = typer.Typer(
    cls=ReportingGroup, no_args_is_help=True, add_completion=False, help="The right answer once, after time has settled."
)
config = typer.Typer(no_args_is_help=True, help="Settings of the service.")
cli.add_typer(config, name="config")
cli.add_typer(keys, name="keys")
cli.command("test", cls=MachineCommand)(run_tests)
cli.command(cls=MachineCommand)(backup)
cli.command(cls=MachineCommand)(restore)
_out = Console()
_MARKS: Final = {True: ("ok   ", "green"), False: ("wrong", "red")}
"""The beginning of a finding's line: text and style."""


def application() -> typer.Typer:
    make_children_safe()
    return cli


def main() -> None:
    """Entry point of ``python -P -m app.cli``."""
    application()()


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"slackwater {__version__}")
        raise typer.Exit


@cli.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """The right answer once, after time has settled."""


@cli.command(cls=ReportingCommand)
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on; overrides SLACKWATER_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; overrides SLACKWATER_PORT.")] = None,
    no_driver: Annotated[bool, typer.Option("--no-driver", help="Serve HTTP only; drivers run elsewhere.")] = False,
) -> None:
    """Start everything: the database if none is given, its migrations, the HTTP service and one driver."""
    if invocation_of(context).output.as_json:
        raise UsageError(
            "serve has no answer in JSON: it runs until it is stopped",
            "SLACKWATER_LOG__FORMAT=json writes its log in JSON",
        )
    settings = read_settings(host=host, port=port)
    require_tracing(settings)
    configure_logging(settings.log)
    # The same as Ctrl-C: uvicorn handles it while it serves and raises it again at its end; the database must be stopped after that.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with only_service(settings), open_database(settings, is_owner=True) as dsn:
        make_current(dsn)
        app = create_app(settings.model_copy(update={"database_url": SecretStr(dsn)}), has_driver=not no_driver)
        shown = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
        address = f"http://{shown}:{settings.port}"
        pages = f"{address}/console, documentation at {address}/guide, every request at {address}/docs"
        _out.print(f"Slackwater {__version__}: console at {pages}", soft_wrap=True, highlight=False)
        say_who_may(settings, dsn)
        run(server_config(app, settings, graceful_s=GRACEFUL_SECONDS, host=settings.host, port=settings.port), app)


@cli.command(cls=MachineCommand)
def doctor(context: typer.Context) -> None:
    """Find faults that keep the service from running, and say how to fix them. Exits with 1 if there is one."""
    findings = examine(read_settings())
    is_ok = all(finding.is_ok for finding in findings)
    output = invocation_of(context).output
    if output.as_json:
        output.json({"ok": is_ok, "findings": [_finding(each) for each in findings]})
    for finding in findings:
        output.say(Text.assemble(_MARKS[finding.is_ok], f" {finding.subject}: {finding.detail}"))
        if finding.remedy is not None:
            output.say(f"      → {finding.remedy}")
    if not is_ok:
        raise typer.Exit(FAILED)


def _finding(finding: Finding) -> dict[str, Any]:
    return {"subject": finding.subject, "ok": finding.is_ok, "detail": finding.detail, "remedy": finding.remedy}


@cli.command("migrate", cls=MachineCommand)
def migrate_command(context: typer.Context) -> None:
    """Migrate the database's schema to this version."""
    settings = read_settings()
    configure_logging(settings.log)
    with open_database(settings) as dsn:
        before = make_current(dsn)
    output = invocation_of(context).output
    if output.as_json:
        output.json({"schema_before": before.found, "schema": before.needed if before.is_behind else before.found})
    output.say("the schema is current")


@config.command("show", cls=MachineCommand)
def show_config(context: typer.Context) -> None:
    """List every setting with its value, its variable, and the value's origin. Secrets are masked."""
    settings = effective(read_settings(), os.environ)
    output = invocation_of(context).output
    if output.as_json:
        output.json({"settings": [asdict(each) for each in settings]})
        return
    output.table(
        ("SETTING", "VALUE", "FROM", "VARIABLE"), [(row.name, Text(row.value), row.origin, row.variable) for row in settings]
    )
