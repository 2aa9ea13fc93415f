"""The commands. Each reads the settings, builds what it needs, and explains faults in plain words."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text
from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.invocation import MachineCommand, ReportingCommand, ReportingGroup, invocation_of

from app import __version__
from app.cli.backup_commands import backup, restore
from app.cli.doctor import examine
from app.cli.keys import keys, say_who_may
from app.cli.machine import Finding
from app.cli.opening import make_current, only_service, open_database, read_settings, require_tracing
from app.cli.test_command import run_tests
from app.http.servers.ports import run, server_config
from app.main.main import create_app
from app.settings.effective_settings import effective
from app.telemetry.setup import configure_logging
from engine.processes.python_processes import make_children_safe

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
