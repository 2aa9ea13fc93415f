"""The one program ``slackwater``: the client's commands, and those of the service if it is installed.

Other distributions add commands with the entry-point group ``slackwater.commands``: each names a mapping from a command to ``Added``. The code
of such a command is imported when it is called, so the client's commands stay fast beside a service of 500 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Protocol

import typer
from typer.core import TyperCommand

import slackwater
from slackwater.cli.commands import connecting, feeding, following, late, looking, steering
from slackwater.cli.definitions import commands as definitions
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import ReportingGroup, common_options, invocation_of, tell
from slackwater.cli.shell import command as shell
from slackwater.cli.top import command as top

GROUP: Final = "slackwater.commands"
OF_SERVICE: Final = "The service on this machine"
_LISTING: Final = "slackwater.listing"
"""In the context of a program whose commands are listed."""
_NAMES_SERVICE: Final = ("context", "url", "key")
_HELP: Final = ("-h", "--help")

EPILOG: Final = (
    "Exit codes: 0 done; 1 the service refused, or what was waited for did not come; 2 the command line is wrong; 3 diff: there is something "
    "to do, apply: something was left undone; 4 nobody answers, or something else than the service."
)


class Added(Protocol):
    """A command of another distribution."""

    @property
    def help(self) -> str:
        """What it does, in one line."""
        ...

    @property
    def target(self) -> str:
        """``module:name`` of a function that returns the Typer application of the command."""
        ...

    @property
    def elsewhere(self) -> str:
        """What to do for the service of another machine."""
        ...


@cache
def added() -> Mapping[str, Added]:
    """Return the commands of other distributions."""
    return {name: each for point in entry_points(group=GROUP) for name, each in point.load().items()}


def _loaded(name: str) -> Any:
    """Return an added command from its distribution."""
    module, _, function = added()[name].target.partition(":")
    made: Any = typer.main.get_command(getattr(import_module(module), function)())
    return made.commands[name]


def _refuse_another_service(context: Any, name: str, rest: list[str]) -> None:
    """End the program if options before a command of this machine name another service: it would run on the wrong one.

    The environment and the current context are for commands that ask a service; they do not matter here.
    """
    given = [f"--{option}" for option in _NAMES_SERVICE if option in invocation_of(context).given]
    if given and not {*_HELP} & {*rest}:
        detail = f"slackwater {name} works on this machine alone, whatever {' and '.join(given)} names"
        raise typer.Exit(tell(context, UsageError(detail, added()[name].elsewhere)))


class Program(ReportingGroup):
    """Its own commands, then those of other distributions, whose code is imported when they are called or described in full."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See ``click.Group``."""
        return [*super().list_commands(ctx), *(name for name in added() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See ``click.Group``; for lists and completion, an added command is only its line of help."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in added():
            return own
        if ctx.resilient_parsing or ctx.meta.get(_LISTING):
            return TyperCommand(cmd_name, help=added()[cmd_name].help, rich_help_panel=OF_SERVICE, add_help_option=False)
        return _loaded(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See ``click.Group``."""
        ctx.meta[_LISTING] = True
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See ``click.Group``; for completion of its options, a command is loaded with them."""
        if args and args[0] not in self.commands and args[0] in added() and not ctx.resilient_parsing:
            _refuse_another_service(ctx, args[0], args[1:])
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name not in self.commands and name in added():
            command = _loaded(name)
        return name, command, rest


class _WithService(Program):
    """The program with the options that select the service; they may come before the command too."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*args, params=[*(params or []), *common_options()], **options)


cli = typer.Typer(
    cls=_WithService,
    no_args_is_help=True,
    help="The right answer once, after time has settled.",
    epilog=EPILOG,
    context_settings={"help_option_names": [*_HELP]},
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
