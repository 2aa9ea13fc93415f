"""What every command has: the options that say which service is meant and how answers look, and what is made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from slackwater.blocking.client import Client
from slackwater.cli.options.contexts import ContextFile, Service, ServiceOptions, chosen
from slackwater.cli.options.failing import FAILED, INTERRUPTED, CommandFailed, Failure, UsageError, failure_of, show
from slackwater.cli.options.output import Output
from slackwater.errors import SlackwaterError
from slackwater.settings import API_KEY_VARIABLE, CONTEXT_VARIABLE, URL_VARIABLE
from slackwater.transport.requests import Retries

PANEL: Final = "Which service, and how answers look"
_RETRIES: Final = Retries(attempts=3)
"""Somebody waits at a terminal: a service that is away is said after a second or so."""


@dataclass(slots=True)
class Invocation:
    """What the options of the command line come to. One for each run of a command.

    Attributes:
        given: values of the common options, by name.
    """

    given: dict[str, Any] = field(default_factory=dict)
    _client: Client | None = None

    @property
    def output(self) -> Output:
        """Where to print."""
        return Output(as_json=bool(self.given.get("as_json")))

    @property
    def service(self) -> Service:
        """The service that is meant."""
        asked = ServiceOptions(self.given.get("url"), self.given.get("key"), self.given.get("context"))
        return chosen(asked, os.environ, context_file())

    @property
    def client(self) -> Client:
        """The client of the service; made when first asked for."""
        if self._client is None:
            service = self.service
            headers = {"user-agent": "slackwater-cli"}
            # An empty key keeps the client from looking at the environment, which ``chosen`` has done.
            self._client = Client(service.url, api_key=service.key or "", retries=_RETRIES, headers=headers)
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


def context_file() -> ContextFile:
    """Return the file of contexts in the user's folder of settings."""
    return ContextFile(Path(typer.get_app_dir("slackwater")) / "contexts.json")


def invocation_of(context: typer.Context) -> Invocation:
    """Return what the options come to."""
    root = context.find_root()
    if not isinstance(root.obj, Invocation):
        root.obj = Invocation()
        root.call_on_close(root.obj.close)
    return root.obj


def _note(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    if value not in (None, False):
        invocation_of(context).given[str(parameter.name)] = value
    return value


def _option(name: str, text: str, panel: str | None = PANEL) -> Any:
    return typer.Option(name, help=text, callback=_note, expose_value=False, rich_help_panel=panel)


def _common(
    context: Annotated[
        str | None, _option("--context", f"A context of `slackwater context list`. Variable: {CONTEXT_VARIABLE}.")
    ] = None,
    url: Annotated[str | None, _option("--url", f"URL of the service. Variable: {URL_VARIABLE}.")] = None,
    key: Annotated[
        str | None,
        _option(
            "--key",
            f"API key. Other users of this machine can see it; a context or the variable hides it. Variable: {API_KEY_VARIABLE}.",
        ),
    ] = None,
    as_json: Annotated[bool, _option("--json", "JSON instead of text for people; of what goes on, a line for each.")] = False,
) -> None:
    """Have the options that every command has which speaks to a service. It is never called."""


def _of_machine(
    as_json: Annotated[bool, _option("--json", "JSON instead of text for people.", None)] = False,
) -> None:
    """Have the options that every command has which works on this machine. It is never called."""


@cache
def common_options() -> tuple[Any, ...]:
    """Return the options that every command has which speaks to a service.

    Once for all commands: that takes a millisecond, and 26 of them are made at each start.
    """
    return _options_of(_common)


@cache
def _machine_options() -> tuple[Any, ...]:
    return _options_of(_of_machine)


def _options_of(function: Callable[..., None]) -> tuple[Any, ...]:
    """Return the options of a function: typer makes them, as those of any command, for its classes have other arguments in other versions."""
    maker = typer.Typer(add_completion=False)
    maker.command(add_help_option=False)(function)
    made: Any = typer.main.get_command(maker)
    return tuple(made.params)


class ReportingGroup(TyperGroup):
    """A program whose command line, where it cannot be read, is refused as commands are: in JSON where that is asked for."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """See ``click.Command``. Typer tells people and ends the process, which is done here then."""
        words = sys.argv[1:] if args is None else [*args]
        is_json = standalone_mode and "--json" in takewhile(lambda word: word != "--", words)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode and not is_json, windows_expand_args, **extra)
        except _UNREADABLE as error:
            if not is_json:
                raise
            code = _refuse_unread(error)
        except typer.Abort:
            if not is_json:
                raise
            code = FAILED
        if is_json:
            sys.exit(code)
        return code


_UNREADABLE: Final[Any] = typer.BadParameter.__mro__[2]
"""What the parser raises: typer has it from click, or under a private name, as its version is."""


def _refuse_unread(error: Any) -> int:
    """Say in JSON why a command line cannot be read; return the exit code."""
    context = getattr(error, "ctx", None)  # not every error of the library has one
    path = "slackwater" if context is None else context.command_path
    detail = error.format_message() or "Missing command."  # where a group is called alone, typer prints its help and says nothing
    failure = Failure("", detail, f"{path} --help says what it takes", error.exit_code)
    show(Output(as_json=True).err, failure, as_json=True)
    return failure.exit_code


class ReportingCommand(TyperCommand):
    """A command whose errors are told."""

    def invoke(self, ctx: Any) -> Any:
        """See ``click.Command``."""
        try:
            return super().invoke(ctx)
        except (SlackwaterError, CommandFailed) as error:
            raise typer.Exit(tell(ctx, error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


class Command(ReportingCommand):
    """A command that speaks to the service: it has the common options."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*args, params=[*(params or []), *common_options()], **options)


class MachineCommand(ReportingCommand):
    """A command that works on the machine where it runs, such as those of the service: of the common options it has ``--json`` alone."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*args, params=[*(params or []), *_machine_options()], **options)


def tell(context: typer.Context, error: SlackwaterError | CommandFailed) -> int:
    """Say what went wrong; return the exit code."""
    here = invocation_of(context)
    try:
        url = here.service.url
    except UsageError:
        url = ""
    failure = failure_of(error, url)
    show(here.output.err, failure, as_json=here.output.as_json)
    return failure.exit_code
