"""Common parts of every command: options that select the service and the form of answers, and the objects made from them."""

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
"""Short, because a person waits at a terminal: an unreachable service is reported after about a second."""


@dataclass(slots=True)
class Invocation:
    """The common options of one run of a command.

    Attributes:
        given: values of the options, by name.
    """

    given: dict[str, Any] = field(default_factory=dict)
    _client: Client | None = None

    @property
    def output(self) -> Output:
        """Where to print."""
        return Output(as_json=bool(self.given.get("as_json")))

    @property
    def service(self) -> Service:
        """The service to use."""
        asked = ServiceOptions(self.given.get("url"), self.given.get("key"), self.given.get("context"))
        return chosen(asked, os.environ, context_file())

    @property
    def client(self) -> Client:
        """The client of the service; made at first use."""
        if self._client is None:
            service = self.service
            headers = {"user-agent": "slackwater-cli"}
            # An empty key keeps the client from reading the environment, which ``chosen`` has done.
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
    """Return the common options of a run."""
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
    """Declare the options of every command that asks a service. It is never called."""


def _of_machine(
    as_json: Annotated[bool, _option("--json", "JSON instead of text for people.", None)] = False,
) -> None:
    """Declare the options of every command that works on this machine. It is never called."""


def common_options() -> tuple[Any, ...]:
    """Return the options of every command that asks a service."""
    return _options_of(_common)


@cache
def _options_of(function: Callable[..., None]) -> tuple[Any, ...]:
    """Return the options of a function; typer builds them, because its classes have other arguments in other versions.

    They are built once: this takes a millisecond, and 26 commands are built at each start.
    """
    maker = typer.Typer(add_completion=False)
    maker.command(add_help_option=False)(function)
    made: Any = typer.main.get_command(maker)
    return tuple(made.params)


class ReportingGroup(TyperGroup):
    """A program that reports an unreadable command line as commands report errors: in JSON with ``--json``."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """See ``click.Command``. Typer prints the error and ends the process; here the caller does that."""
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
"""Errors of the parser: typer has the class from click, or under a private name, depending on its version."""


def _refuse_unread(error: Any) -> int:
    """Print in JSON why a command line cannot be read; return the exit code."""
    context = getattr(error, "ctx", None)  # some errors of the library have none
    path = "slackwater" if context is None else context.command_path
    detail = error.format_message() or "Missing command."  # where a group is called alone, typer prints its help and says nothing
    failure = Failure("", detail, f"{path} --help says what it takes", error.exit_code)
    show(Output(as_json=True).err, failure, as_json=True)
    return failure.exit_code


class ReportingCommand(TyperCommand):
    """A command that reports its errors."""

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
        super().__init__(*args, params=[*(params or []), *_options_of(_of_machine)], **options)


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
