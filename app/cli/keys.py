"""``slackwater keys``: make, list and revoke API keys directly in the database, also the first one."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import sqlalchemy as sa
import typer
from rich.console import Console
from slackwater.cli.options.failing import CommandFailed
from slackwater.cli.options.invocation import MachineCommand, invocation_of

from app.access.keys.routes import ApiKeyAnswer, NewApiKeyAnswer, shown_key
from app.access.keys.sql import ApiKeyRow, create_key, has_keys, list_keys, revoke_key
from app.access.rules import PRINCIPAL, Principal, Role, key_name
from app.access.scopes import scope_of
from app.cli.opening import make_current, open_database, read_settings
from app.db.database import single_transaction
from app.errors.app_errors import AppError
from app.settings.settings import Settings
from app.telemetry.setup import configure_logging
from engine.expressions.durations import parse_duration

FIRST_KEY = "slackwater keys create first --role admin"
_PAGE = 1_000
keys = typer.Typer(no_args_is_help=True, help="API keys: who may read, write and administer.")
_out = Console()
_err = Console(stderr=True)
Name = Annotated[str, typer.Argument(help="Who uses the key.", show_default=False)]


@keys.command(cls=MachineCommand)
def create(
    context: typer.Context,
    name: Name,
    role: Annotated[Literal["read", "write", "admin"], typer.Option(help="What the key may do.")] = "read",
    expires_in: Annotated[str | None, typer.Option(help="Validity, such as 90d; by default until revoked.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="A pattern of names that the key may see, such as 'orders*'; may be repeated. Default: all."),
    ] = None,
) -> None:
    """Make a key and show it once: the service stores only its digest."""
    try:
        valid_ms = None if expires_in is None else parse_duration(expires_in)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expires-in") from error
    if valid_ms == 0:
        raise typer.BadParameter("a key must be valid for more than 0", param_hint="--expires-in")
    with _transaction() as connection:
        row, made = create_key(connection, key_name(name), Role.of(role), valid_ms, scope_of(scope or None))
    output = invocation_of(context).output
    if output.as_json:
        output.json(NewApiKeyAnswer(**shown_key(row), key=made.text).model_dump(mode="json"))
    else:
        output.say(made.text)
    output.note("Write it down now; it is not shown again. Send it as: Authorization: Bearer …")


@keys.command("list", cls=MachineCommand)
def list_command(context: typer.Context) -> None:
    """List every key: its name, its first characters, its role and scope, its expiry and its last use."""
    with _transaction() as connection:
        rows = list(_every_key(connection))
    output = invocation_of(context).output
    if output.as_json:
        output.json([ApiKeyAnswer(**shown_key(row)).model_dump(mode="json") for row in rows])
        return
    head = ("NAME", "KEY", "ROLE", "SCOPE", "CREATED", "LAST USED", "EXPIRES", "REVOKED")
    output.table(head, map(_row, rows), empty=f"there are no keys; make the first with: {FIRST_KEY}")


def _every_key(connection: sa.Connection) -> Iterator[ApiKeyRow]:
    page = list_keys(connection, _PAGE)
    while page:
        yield from page
        page = list_keys(connection, _PAGE, page[-1].id)


def _row(key: ApiKeyRow) -> tuple[str, ...]:
    moments = (key.created_at, key.last_used_at, key.expires_at, key.revoked_at)
    shown = ["" if moment is None else f"{moment:%Y-%m-%d %H:%M}" for moment in moments]
    return key.name, f"{key.prefix}…", key.role, ", ".join(key.scope or ()), *shown


@keys.command(cls=MachineCommand)
def revoke(context: typer.Context, name: Name) -> None:
    """Revoke a key: within five seconds no service accepts it any more."""
    with _transaction() as connection:
        revoke_key(connection, name)
    output = invocation_of(context).output
    if output.as_json:
        output.json({"revoked": name})
    output.say(f"the key '{name}' is revoked")


def say_who_may(settings: Settings, dsn: str) -> None:
    """Print at the start whether requests need a key, and how to make the first one."""
    if settings.is_key_required:
        _out.print("Every request needs an API key: Authorization: Bearer sw_…", soft_wrap=True)
        with single_transaction(dsn) as connection:
            is_first_missing = not has_keys(connection)
        if is_first_missing:
            _out.print(f"[yellow]There is none yet. Make the first with: {FIRST_KEY}[/]", soft_wrap=True)
    elif settings.is_loopback:
        _out.print(f"No API keys are required: only this machine can reach {settings.host}.", soft_wrap=True)
    else:
        _err.print(
            f"[yellow]SLACKWATER_AUTH=off: everybody who reaches {settings.host}:{settings.port} may do everything[/]",
            soft_wrap=True,
        )


@contextmanager
def _transaction() -> Iterator[sa.Connection]:
    """Open the service's database, with its schema current.

    Raises:
        CommandFailed: the command cannot be done.
    """
    settings = read_settings()
    configure_logging(settings.log)
    try:
        with open_database(settings) as dsn:
            make_current(dsn)
            as_command()
            with single_transaction(dsn) as connection:
                yield connection
    except AppError as error:
        raise CommandFailed(error.detail, code=error.code) from error


def as_command() -> None:
    """Name the operating-system user of this command in the audit log."""
    PRINCIPAL.set(Principal("cli", None, _user(), Role.ADMIN))


def _user() -> str:
    """Return the user of the command; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
