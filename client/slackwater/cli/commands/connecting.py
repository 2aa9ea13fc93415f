"""``slackwater context``: which services there are, and which one is in use."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from slackwater.blocking.client import Client
from slackwater.cli.options.contexts import Context, checked_key, checked_url, shown
from slackwater.cli.options.failing import UsageError
from slackwater.cli.options.invocation import Command, Invocation, context_file, invocation_of
from slackwater.cli.options.pairs import exclude
from slackwater.errors import SlackwaterError

contexts = typer.Typer(no_args_is_help=True, help="Services by name: URL and key.")
Name = Annotated[str, typer.Argument(help="Name of the context, such as prod.", show_default=False)]


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.add_typer(contexts, name="context", rich_help_panel="Connecting")


@contexts.command(cls=Command)
def add(
    context: typer.Context,
    name: Name,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    without_key: Annotated[bool, typer.Option("--no-key", help="The service asks for no key; nothing is asked here.")] = False,
    unchecked: Annotated[bool, typer.Option("--no-check", help="Do not ask the service whether the key counts.")] = False,
) -> None:
    """Add a context, or replace it.

    slackwater context add prod --url https://slackwater.example.com

    The key is --key, or SLACKWATER_API_KEY, or asked for without being shown. The file is readable by you alone, and no command shows the key.
    """
    here = invocation_of(context)
    url = here.given.get("url")
    if url is None:
        raise UsageError("say where the service is", f"slackwater context add {name} --url https://…")
    url = checked_url(str(url))
    exclude(f"context add {name}", {"--context": here.given.get("context")}, f"{name} is the context's name")
    if without_key:
        exclude("--no-key", {"--key": here.given.get("key")}, "the context has no key")
    key = None if without_key else here.given.get("key")
    if key is None and not without_key and sys.stdin.isatty():
        key = typer.prompt("API key (empty: the service asks for none)", default="", hide_input=True, show_default=False) or None
    service = Context(url, checked_key(key))
    if not unchecked:
        with Client(service.url, api_key=key or "", timeout=10.0) as client:
            try:
                version = client.system.version().version
                next(iter(client.streams()), None)
            except SlackwaterError:
                here.output.note("the context is not added; --no-check adds it all the same", None)
                raise
        here.output.say(f"{service.url} answers: Slackwater {version}")
    file = context_file()
    found = file.read().with_context(name, service)
    file.write(found.using(name) if use else found)
    state = "in use" if use or found.current == name else f"not in use yet: slackwater context use {name}"
    here.output.say(f"context {name} is added, and {state}")
    if here.output.as_json:
        here.output.json(shown(name, service, is_current=use or found.current == name))


@contexts.command(cls=Command)
def use(context: typer.Context, name: Name) -> None:
    """Use a context from now on."""
    here = _of_file_alone(context)
    file = context_file()
    found = file.read().using(name)
    file.write(found)
    here.output.say(f"in use: {name}, {found.by_name[name].url}")
    if here.output.as_json:
        here.output.json(shown(name, found.by_name[name], is_current=True))


@contexts.command("list", cls=Command)
def list_command(context: typer.Context) -> None:
    """List the contexts, without their keys, and say which service commands speak to now."""
    here = invocation_of(context)
    found = context_file().read()
    service = here.service
    listed = [shown(name, each, is_current=name == found.current) for name, each in sorted(found.by_name.items())]
    if here.output.as_json:
        here.output.json(
            {"contexts": listed, "service": {"url": service.url, "key": service.key is not None, "from": service.origin}}
        )
        return
    rows = [("*" if each["current"] else "", each["name"], each["url"], "yes" if each["key"] else "no") for each in listed]
    here.output.table(("", "NAME", "URL", "KEY"), rows, empty="there are none: slackwater context add NAME --url URL")
    here.output.note(f"commands speak to {service.url} ({service.origin})")


@contexts.command(cls=Command)
def remove(context: typer.Context, name: Name) -> None:
    """Remove a context with its key."""
    here = _of_file_alone(context)
    file = context_file()
    file.write(file.read().without(name))
    here.output.say(f"context {name} is removed")
    if here.output.as_json:
        here.output.json({"removed": name})


def _of_file_alone(context: typer.Context) -> Invocation:
    """Return what the options come to, of a command that asks no service.

    Raises:
        UsageError: they name one.
    """
    here = invocation_of(context)
    given = {f"--{option}": here.given.get(option) for option in ("url", "context", "key")}
    exclude(f"context {context.info_name}", given, "it asks no service")
    return here
