"""``slackwater sql``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import Command, context_file, invocation_of
from slackwater.cli.options.pairs import exclude
from slackwater.cli.shell.results import Format, Printer
from slackwater.cli.shell.session import Session
from slackwater.errors import SlackwaterError


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.command(cls=Command, rich_help_panel="SQL")(sql)


def sql(
    context: typer.Context,
    commands: Annotated[
        list[str] | None, typer.Option("--command", "-c", help="Carry this out and end; can be repeated.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Carry this file out and end; - is standard input.")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--output", "-o", help="How rows are written; without it a table, with --json JSON.")
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", "-v", help="name=value: what DEFINE would say, for ${name}; can be repeated."),
    ] = None,
) -> None:
    r"""Carry SQL out: interactively, or with -c, -f or from a pipe.

    slackwater sql -c "SELECT * FROM hourly WHERE origin = 'JFK';" --output csv

    Interactively a statement ends with a semicolon, Tab completes names, and `\?` lists shortcuts. A SELECT with EMIT shows rows as they come,
    until Ctrl-C.
    """
    here = invocation_of(context)
    if here.output.as_json and form is not Format.JSON:
        exclude("--json", {"--output": form}, "it says how rows are written, too")
    printer = Printer(here.output, form or (Format.JSON if here.output.as_json else Format.TABLE))
    session = Session(here.client, printer, _variables(variables or ()))
    scripts = [*(commands or ()), *(_read(path) for path in files or ())]
    if not scripts and not sys.stdin.isatty():
        scripts = [sys.stdin.read()]
    if scripts:
        _run(session, scripts)
        return
    # Only here: commands need neither a terminal nor what it takes to speak with one.
    from slackwater.cli.shell.names import Known, read_names
    from slackwater.cli.shell.prompting import InteractiveShell

    version = here.client.system.version().version
    here.output.say(f"Slackwater {version} at {here.service.url}. \\? helps, Ctrl-D leaves.")
    known = Known(partial(read_names, here.client))
    InteractiveShell(session, known, here.service.url, context_file().path.with_name("sql_history")).loop()


def _run(session: Session, scripts: list[str]) -> None:
    for number, script in enumerate(scripts, 1):
        try:
            session.run(script)
        except (SlackwaterError, UsageError):
            if number < len(scripts):
                session.printer.output.note(f"script {number} of {len(scripts)} failed; those behind it are not tried")
            raise


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _variables(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"{each!r} gives no value", "write name=value")
        found[name] = value
    return found
