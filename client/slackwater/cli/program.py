"""The one program ``slackwater``: the client's commands, and those of the service where that is installed.

Other distributions give commands by the entry-point group ``slackwater.commands``: each names a mapping from a command to ``Added``. What such a
command does is imported when it is called, so the client's commands stay quick beside a service of 500 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Protocol

import typer
from typer.core import TyperCommand, TyperGroup

import slackwater
from slackwater.cli import connecting, feeding, following, late, looking, steering
from slackwater.cli.definitions import commands as definitions
from slackwater.cli.opened import common_options
from slackwater.cli.shell import command as shell
from slackwater.cli.top import command as top

GROUP: Final = "slackwater.commands"
OF_SERVICE: Final = "The service on this machine"
EPILOG: Final = (
    "Exit codes: 0 done; 1 the service refused, or what was waited for did not come; 2 the command line is wrong; 3 diff: there is something "
    "to do, apply: something was left undone; 4 nobody answers."
)


class Added(Protocol):
    """A command that another distribution gives."""

    @property
    def help(self) -> str:
        """What it does, in a line."""
        ...

    @property
    def target(self) -> str:
        """``module:name`` of a function that returns the Typer application that has the command."""
        ...


@cache
def added() -> Mapping[str, Added]:
    """Return the commands of other distributions."""
    return {name: each for point in entry_points(group=GROUP) for name, each in point.load().items()}


@dataclass(frozen=True, slots=True)
class _Loading:
    """Finds what an added command does."""

    name: str
    target: str

    def command(self) -> Any:
        module, _, attribute = self.target.partition(":")
        made: Any = typer.main.get_command(getattr(import_module(module), attribute)())
        return made.commands[self.name]


class Program(TyperGroup):
    """Its own commands, then those of other distributions; these are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See ``click.Group``."""
        return [*super().list_commands(ctx), *(name for name in added() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See ``click.Group``; where commands are listed, one that is added is its line of help alone."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in added():
            return own
        found = added()[cmd_name]
        return TyperCommand(cmd_name, help=found.help, rich_help_panel=OF_SERVICE, add_help_option=False)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See ``click.Group``."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name not in self.commands and name in added():
            command = _Loading(name, added()[name].target).command()
        return name, command, rest


class _WithService(Program):
    """The program with the options that say which service is meant, which may stand before the command too."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*args, params=[*(params or []), *common_options()], **options)


cli = typer.Typer(
    cls=_WithService,
    no_args_is_help=True,
    help="The right answer once, after time has settled.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)
for part in (connecting, looking, following, late, steering, feeding, definitions, shell, top):
    part.add_to(cli)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"slackwater {slackwater.__version__}")
        raise typer.Exit


@cli.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """The right answer once, after time has settled."""


def run() -> None:
    """Run the command line."""
    cli(prog_name="slackwater")
