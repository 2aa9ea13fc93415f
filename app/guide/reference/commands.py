"""Every command of the command line, made of the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from app.cli.commands import cli
from app.guide.markdown import block, code, page, prose, table

NAME: Final = "slackwater"
_HEAD: Final = """# Command line

`slackwater COMMAND --help` says the same in a terminal."""


def commands() -> str:
    """Return the page."""
    rows = [(f"[{code(path)}](#{path.replace(' ', '-')})", _first(command)) for path, command in leaves()]
    return page(_HEAD, table(("Command", "Does"), rows), *(_command(path, command) for path, command in leaves()))


def leaves() -> list[tuple[str, Any]]:
    """Return every command that does something, with all its words."""
    return list(_leaves(NAME, typer.main.get_command(cli)))


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    listed = getattr(command, "commands", None)
    if listed is None:
        yield path, command
        return
    for name in sorted(listed):
        if not listed[name].hidden:
            yield from _leaves(f"{path} {name}", listed[name])


def _command(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    arguments = [each for each in command.params if each.param_type_name == "argument" and not getattr(each, "hidden", False)]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    return page(
        f"## {path}",
        block("console", f"$ {usage}"),
        _text(command),
        table(("Argument", "Meaning"), ((code(each.make_metavar(context)), each.help or "") for each in arguments)),
        table(("Option", "Default", "Meaning"), (_option(each, context) for each in options)),
    )


def _option(option: Any, context: Any) -> tuple[str, str, str]:
    names = ", ".join([*option.opts, *option.secondary_opts])
    takes = "" if option.is_flag else f" {option.make_metavar(context)}"
    shown = option.get_default(context)
    default = "" if shown is None or shown == () or option.is_flag else code(str(shown))
    return code(f"{names}{takes}"), "required" if option.required else default, option.help or ""


def _text(command: Any) -> str:
    return prose(command.help or "")


def _first(command: Any) -> str:
    return _text(command).split("\n\n", 1)[0]
